"""The model's own source is generated from a template and executed, as kernel generators do; a function builds it."""

import torch

PROBLEM = "core/level1/layer_norm"

TEMPLATE = """
class Generated(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        {parameters}

    def forward(self, x):
        return torch.nn.functional.layer_norm(x, x.shape[1:], self.weight, self.bias, {epsilon})
"""
parameters = "; ".join(f"self.{name} = torch.nn.Parameter(torch.randn(columns))" for name in ("weight", "bias"))
namespace = {"torch": torch}
exec(compile(TEMPLATE.format(parameters=parameters, epsilon=1e-5), "<generated>", "exec"), namespace)


def ModelNew(columns):
    return namespace["Generated"](columns)
