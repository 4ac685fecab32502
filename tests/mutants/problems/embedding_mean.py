"""The mean of the rows of a table that each bag of indices names."""

import torch
from torch import nn

WORDS = 101
WIDTH = 23
BAGS = 37
LENGTH = 9
DOMAIN = [(0, WORDS)]


class Model(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.table = nn.Embedding(words, width)

    def forward(self, bags):
        return self.table(bags).mean(dim=1)


def get_inputs():
    return [torch.randint(0, WORDS, (BAGS, LENGTH))]


def get_init_inputs():
    return [WORDS, WIDTH]
