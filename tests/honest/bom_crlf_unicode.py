"""Written on Windows: a byte order mark, CRLF line ends, and text that is not ASCII (ÄÖÜ ß — “quotes” Ω 汉字 🚀)."""

import torch

PROBLEM = "core/level1/relu"
WRITTEN_AS = "bom-crlf"  # by the test: editors and formatters would undo it here

ΣΤΑΘΕΡΆ = 0.0
GREETING = "Grüße, 世界 — ∀x: max(x, 0) 🚀"


class ModelNew(torch.nn.Module):
    """Schaltet negative Werte ab."""

    def forward(self, x):
        print(GREETING)
        # Ein mehrzeiliger Text, dessen Zeilenenden Teil des Textes sind:
        text = """erste
zweite"""
        assert text.split() == ["erste", "zweite"]
        return torch.clamp(x, min=ΣΤΑΘΕΡΆ)
