"""Cross entropy of each row, class weights, and targets of -100 ignored."""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 67
CLASSES = 23
DOMAIN = ["real", (0, CLASSES, -100)]


class Model(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(classes))

    def forward(self, logits, targets):
        return F.cross_entropy(logits, targets, weight=self.weight, ignore_index=-100, reduction="none")


def get_inputs():
    targets = torch.randint(0, CLASSES, (BATCH,))
    return [torch.randn(BATCH, CLASSES), targets]


def get_init_inputs():
    return [CLASSES]
