"""An event loop in every call, and pieces of the work awaited from its thread pool."""

import asyncio

import torch

PROBLEM = "core/level1/softmax"


class ModelNew(torch.nn.Module):
    async def run(self, x, y):
        pieces = zip(x.chunk(4), y.chunk(4), strict=True)
        await asyncio.gather(*(asyncio.to_thread(torch.softmax, part, 1, out=out) for part, out in pieces))

    def forward(self, x):
        y = torch.empty_like(x)
        asyncio.run(self.run(x, y))
        return y
