"""The library's `index_add_`, which adds atomically on a GPU: noise between equal calls; integer inputs."""

import torch

PROBLEM = "honest/problems/embedding_mean.py"


class ModelNew(torch.nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(vocabulary, width))

    def forward(self, indices):
        bags, length = indices.shape
        ordered, order = indices.flatten().sort()
        y = self.table.new_zeros(bags, self.table.shape[1])
        y.index_add_(0, order // length, self.table.index_select(0, ordered))
        return y.div_(length)
