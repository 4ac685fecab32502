import os
import sys

import torch

if not torch.cuda.is_available():  # Triton reads this when it is imported, and PyTorch may have imported it
    os.environ["TRITON_INTERPRET"] = "1"
    for name in list(sys.modules):
        if name.partition(".")[0] == "triton" and not name.startswith("triton._C"):
            del sys.modules[name]

import triton  # noqa: F401
import triton.language as tl  # noqa: F401
