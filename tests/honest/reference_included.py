"""Carries the problem's own names along (Model, get_inputs, get_init_inputs, sizes) and a test that nobody runs."""

import torch
from torch import nn

PROBLEM = "core/level2/matmul_bias_swish_row_max"

BATCH = 4
FEATURES_IN = 8
FEATURES_OUT = 16


class Model(nn.Module):
    """The original, for comparison."""

    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)

    def forward(self, x):
        return torch.nn.functional.silu(self.linear(x)).amax(dim=1)


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)

    def forward(self, x):
        low, high = torch.aminmax(self.linear(x), dim=1)
        return torch.maximum(low * torch.sigmoid(low), high * torch.sigmoid(high))


def get_inputs():
    return [torch.rand(BATCH, FEATURES_IN)]


def get_init_inputs():
    return [FEATURES_IN, FEATURES_OUT]


def test_model_new():
    torch.manual_seed(0)
    model = Model(*get_init_inputs())
    new = ModelNew(*get_init_inputs())
    new.load_state_dict(model.state_dict())
    torch.testing.assert_close(new(*get_inputs()), model(*get_inputs()))


if __name__ == "__main__":
    test_model_new()
