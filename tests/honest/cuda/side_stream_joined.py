"""Half of the work on a side stream that waits for the current one and is joined before the return."""

import torch

PROBLEM = "core/level1/relu"


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.side = None

    def forward(self, x):
        if self.side is None:
            self.side = torch.cuda.Stream()
        out = torch.empty_like(x)
        half = x.shape[0] // 2
        current = torch.cuda.current_stream()
        self.side.wait_stream(current)
        with torch.cuda.stream(self.side):
            torch.clamp(x[:half], min=0, out=out[:half])
        torch.clamp(x[half:], min=0, out=out[half:])
        current.wait_stream(self.side)
        out.record_stream(self.side)
        return out
