"""Not honest work: asks for a terabyte of the device's memory."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        workspace = torch.empty(1 << 40, dtype=torch.uint8, device=x.device)
        return torch.relu(x) + workspace[0]
