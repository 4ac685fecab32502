"""Running count, mean and variance of many features, brought up to date in place by a batch.

Category: state.
The batch is read once and nothing of its size is written: means and sums of squares of each column must be formed in
the same pass, over rows that lie far apart, without taking the variance as a difference of large numbers, and joined
with what the state holds (Chan). The operators go over the batch three times and write a copy of it. Count and state
are updated where they are; what comes back is how far the batch lies off.
Writes: 0, 1.
Bound: 2.15 GB.
"""

import torch
from torch import nn

ROWS = 131072
FEATURES = 4096
SIZES = {"gpu": {"ROWS": 131072, "FEATURES": 4096}, "cpu": {"ROWS": 4096, "FEATURES": 256}}


class Model(nn.Module):
    """state = (mean, deviation) of all that was seen; returns (the batch's mean - the mean before) / new deviation."""

    def forward(self, count: torch.Tensor, state: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Updates count (1,) and state (2, FEATURES) by x (ROWS, FEATURES) in place; returns (FEATURES,)."""
        mean = x.mean(dim=0)
        squares = (x - mean).square().sum(dim=0)
        share = x.shape[0] / (count + x.shape[0]).to(x.dtype)
        distance = mean - state[0]
        variance = squares / x.shape[0] * share + state[1].square() * (1.0 - share)
        state[1] = torch.sqrt(variance + distance.square() * share * (1.0 - share) + 1e-6)
        state[0] += distance * share
        count += x.shape[0]
        return distance / state[1]


def get_inputs() -> list[torch.Tensor]:
    level, spread = 2.0 * torch.randn(FEATURES), 0.3 + torch.rand(FEATURES)
    state = torch.stack((level + 0.5 * torch.randn(FEATURES), spread))
    # About as much was seen as the batch brings.
    return [torch.randint(ROWS // 2, 2 * ROWS, (1,)), state, level + spread * torch.randn(ROWS, FEATURES)]


def get_init_inputs() -> list[int]:
    return []
