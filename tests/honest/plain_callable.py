"""No `nn.Module` at all: a class with `__slots__` and `__call__`."""

PROBLEM = "core/level1/softmax"


class ModelNew:
    __slots__ = ("dim",)

    def __init__(self):
        self.dim = 1

    def __call__(self, x):
        powers = (x - x.amax(dim=self.dim, keepdim=True)).exp_()
        return powers.div_(powers.sum(dim=self.dim, keepdim=True))
