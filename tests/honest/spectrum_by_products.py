"""A Fourier transform as two products with tables, returned as the conjugate of what it computed: a lazy view."""

import math

import torch

PROBLEM = "honest/problems/real_spectrum.py"


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = {}

    def forward(self, x):
        samples = x.shape[1]
        if samples not in self.tables:
            times, frequencies = torch.arange(samples), torch.arange(samples // 2 + 1)
            turns = (times[:, None] * frequencies) % samples  # exact: the angle stays small
            angles = turns.double() * (2 * math.pi / samples)
            tables = (angles.cos() / samples**0.5, angles.sin() / samples**0.5)
            self.tables[samples] = tuple(table.to(device=x.device, dtype=x.dtype) for table in tables)
        cosines, sines = self.tables[samples]
        y = torch.complex(x @ cosines, x @ sines).conj()
        assert y.is_conj()
        return y
