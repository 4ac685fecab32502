"""One number out of a million, added as a binary tree: an order, and an error, other than the library's."""

import torch

PROBLEM = "honest/problems/mean_square_error.py"


class ModelNew(torch.nn.Module):
    def forward(self, prediction, target):
        terms = (prediction - target).square_().flatten()
        count = terms.numel()
        while terms.numel() > 1:
            half = terms.numel() // 2
            odd = terms[2 * half :]
            terms = torch.cat([terms[:half] + terms[half : 2 * half], odd])
        return terms[0] / count
