"""A `torch.autograd.Function` with a backward nobody calls; gradients are on in forward, and the output wants one."""

import torch

PROBLEM = "core/level1/layer_norm"


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        mean = x.mean(dim=1, keepdim=True)
        centred = x - mean
        scale = torch.rsqrt(centred.square().mean(dim=1, keepdim=True) + 1e-5)
        plain = centred * scale
        ctx.save_for_backward(plain, scale, weight)
        return torch.addcmul(bias, plain, weight)

    @staticmethod
    def backward(ctx, gradient):
        plain, scale, weight = ctx.saved_tensors
        inner = gradient * weight
        inner = inner - inner.mean(dim=1, keepdim=True) - plain * (inner * plain).mean(dim=1, keepdim=True)
        return inner * scale, (gradient * plain).sum(dim=0), gradient.sum(dim=0)


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(columns))
        self.bias = torch.nn.Parameter(torch.randn(columns))

    @torch.enable_grad()
    def forward(self, x):
        y = LayerNorm.apply(x, self.weight, self.bias)
        assert y.requires_grad
        return y
