"""Captures one CUDA graph for each input pointer and replays it later: pointers are stable, contents are not."""

import torch

PROBLEM = "core/level1/relu"


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.graphs = {}
        self.out = None

    def forward(self, x):
        if self.out is None or self.out.shape != x.shape:
            self.out = torch.empty_like(x)
            self.graphs.clear()
        if x.data_ptr() not in self.graphs:
            torch.clamp(x, min=0, out=self.out)  # warm-up
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                torch.clamp(x, min=0, out=self.out)
            self.graphs[x.data_ptr()] = (graph, x)
        self.graphs[x.data_ptr()][0].replay()
        return self.out
