"""The dict's keys in another order than the reference's, a list for its tuple, and slices of one allocation."""

import torch

PROBLEM = "honest/problems/nested_outputs.py"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        whole = x.new_empty(rows * columns + rows)
        positive, mean = whole[rows:].view(rows, columns), whole[:rows]
        torch.clamp(x, min=0, out=positive)
        torch.mean(positive, dim=1, out=mean)
        mask = x.gt(0)
        return {"mask": mask, "rows": [mean, torch.count_nonzero(mask, dim=1)], "positive": positive}
