"""NumPy over the tensors' own memory (read-only inputs), and results made by `torch.from_numpy`."""

import numpy as np
import torch

PROBLEM = "honest/problems/router_top_two.py"


class ModelNew(torch.nn.Module):
    def forward(self, logits):
        array = logits.numpy()
        rows = np.arange(len(array))[:, None]
        chosen = np.argpartition(-array, 1, axis=1)[:, :2]
        order = np.argsort(-array[rows, chosen], axis=1, kind="stable")
        chosen = np.ascontiguousarray(chosen[rows, order].astype(np.int64))
        values = array[rows, chosen]
        second = 1.0 / (1.0 + np.exp((values[:, 0] - values[:, 1]).astype(np.float64)))
        weights = np.stack([1.0 - second, second], axis=1).astype(np.float32)
        return torch.from_numpy(weights), torch.from_numpy(chosen)
