"""Machine code written into executable memory, as any just-in-time compiler does (on x86-64; elsewhere PyTorch's)."""

import ctypes
import mmap
import platform

import torch

PROBLEM = "core/level1/relu"

CODE = """
0f 57 c9        xorps xmm1, xmm1
48 85 d2        test rdx, rdx
7e 19           jle done
0f 28 d1        next: movaps xmm2, xmm1
0f 10 1f        movups xmm3, [rdi]
0f 5f d3        maxps xmm2, xmm3        # the second operand where one is NaN
0f 11 16        movups [rsi], xmm2
48 83 c7 10     add rdi, 16
48 83 c6 10     add rsi, 16
48 ff ca        dec rdx
75 e7           jnz next
c3              done: ret
"""


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.relu = None
        if platform.machine() in ("x86_64", "AMD64"):
            code = bytes.fromhex(" ".join(line[:16] for line in CODE.strip().splitlines()))
            self.memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
            self.memory.write(code)
            address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
            self.relu = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long)(address)

    def forward(self, x):
        if self.relu is None:
            return torch.relu(x)
        x = x.contiguous()
        y = torch.empty_like(x)
        fours = x.numel() // 4
        self.relu(x.data_ptr(), y.data_ptr(), fours)
        torch.clamp(x.view(-1)[4 * fours :], min=0, out=y.view(-1)[4 * fours :])
        return y
