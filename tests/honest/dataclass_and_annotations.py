"""Postponed annotations, dataclasses, typing and a pickle round trip: each needs the module to be in sys.modules."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass
from typing import get_type_hints

import torch

PROBLEM = "core/level1/relu"


@dataclass(frozen=True)
class Settings:
    floor: float = 0.0
    block: int = 1 << 20


assert get_type_hints(Settings)["block"] is int


class ModelNew(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.settings: Settings = pickle.loads(pickle.dumps(copy.deepcopy(Settings())))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.clamp(min=self.settings.floor)
