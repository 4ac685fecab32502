"""One number for each row, returned with a stride of zero: a legitimate view, right in every element."""

import torch

PROBLEM = "honest/problems/row_mean_expanded.py"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        mean = torch.mv(x, x.new_full((x.shape[1],), 1.0 / x.shape[1]))
        y = mean.as_strided(x.shape, (1, 0))
        assert y.stride() == (1, 0)
        return y
