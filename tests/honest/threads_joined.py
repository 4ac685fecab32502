"""Splits the rows over a thread that is joined and a pool that is kept between calls."""

import concurrent.futures
import threading

import torch

PROBLEM = "core/level1/relu"


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = concurrent.futures.ThreadPoolExecutor(2)

    def forward(self, x):
        out = torch.empty_like(x)
        half = x.shape[0] // 2
        quarter = half // 2
        thread = threading.Thread(target=torch.clamp, args=(x[:half],), kwargs={"min": 0, "out": out[:half]})
        thread.start()
        spans = [(half, half + quarter), (half + quarter, x.shape[0])]
        list(self.pool.map(lambda span: torch.clamp(x[span[0] : span[1]], min=0, out=out[span[0] : span[1]]), spans))
        thread.join()
        return out
