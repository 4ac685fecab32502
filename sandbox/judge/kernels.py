"""What the judge asks of outputs of gigabytes, in one pass on a GPU: kernels of its own, compiled when wanted.

PyTorch's operators do the same in five to ten passes (`blocks`, `compare`), much of what a verdict takes on a problem
that moves gigabytes; they do where there is no NVRTC. Only for contiguous tensors on the device.
"""

from __future__ import annotations

import functools

import torch

from ..runner import cuda_raw

_BLOCK, _GRID = 256, 132 * 16
"""Threads; and blocks of a kernel that goes over all of it: enough for any device."""
_WARP = 32
_LARGEST = 3.5e38
_SOURCE = """
struct alignas(16) Words { unsigned x, y, z, w; };

__global__ void differ(const Words* a, const Words* b, long long count, int* found) {
    const long long step = (long long)gridDim.x * blockDim.x;
    unsigned any = 0;
    #pragma unroll 4
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        const Words p = a[i], q = b[i];
        any |= (p.x ^ q.x) | (p.y ^ q.y) | (p.z ^ q.z) | (p.w ^ q.w);
    }
    if (any) *found = 1;
}

// A warp for each block of `length` elements. `largest` is negative where a difference is not finite.
template <typename Expected>
__global__ void errors(
    const Expected* expected, const float* found, long long elements, int length,
    double* largest, double* squares, double* values
) {
    const long long block = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const long long start = block * length;
    if (start >= elements) return;
    const int lane = threadIdx.x % 32, count = min((long long)length, elements - start);
    double most = 0, square = 0, value = 0;
    bool finite = true;
    #pragma unroll 8
    for (int i = lane; i < count; i += 32) {
        const Expected e = expected[start + i];
        const double off = fabs((double)(found[start + i] - e));  // in fp32 where both are
        finite &= off <= LARGEST;
        most = fmax(most, off);
        square += off * off;
        value += (double)e * e;
    }
    for (int step = 16; step > 0; step /= 2) {
        most = fmax(most, __shfl_xor_sync(~0u, most, step));
        square += __shfl_xor_sync(~0u, square, step);
        value += __shfl_xor_sync(~0u, value, step);
    }
    finite = __all_sync(~0u, finite);
    if (lane == 0) {
        largest[block] = finite ? most : -1.0;
        squares[block] = square;
        values[block] = value;
    }
}
"""


def may_take(*flats: torch.Tensor) -> bool:
    """Whether all lie on a GPU, and NVRTC is there for them."""
    return all(x.is_cuda for x in flats) and _has_nvrtc()


def are_words(*flats: torch.Tensor) -> bool:
    """Whether each begins and ends at a multiple of 16 bytes, as `differ` reads them: a part of a leaf need not."""
    return all(x.data_ptr() % 16 == 0 and x.numel() * x.element_size() % 16 == 0 for x in flats)


def differ(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of the same number of bytes differ in any bit; of those for which `are_words` holds."""
    found = torch.zeros(1, dtype=torch.int32, device=a.device)
    count = a.numel() * a.element_size() // 16
    _kernel("differ(const Words* a, const Words* b, long long count, int* found)")(_GRID, _BLOCK, a, b, count, found)
    return bool(found)


def errors(expected: torch.Tensor, found: torch.Tensor, length: int) -> tuple[torch.Tensor, ...]:
    """By block of `length` elements (the last may be shorter), float64.

    Args:
        expected: flat, fp32 or fp64.
        found: flat, fp32, as long.

    Returns:
        Of the differences the largest magnitude, negative where one is not finite, and the sum of squares; and the sum
        of squares of `expected`.
    """
    blocks = -(-found.numel() // length)
    by_block = torch.empty(3, blocks, dtype=torch.float64, device=found.device)
    kind = "double" if expected.dtype is torch.float64 else "float"
    kernel = _kernel(
        f"errors<{kind}>(const {kind}* expected, const float* found, long long elements, int length, double* largest, "
        "double* squares, double* values)"
    )
    grid = -(-blocks * _WARP // _BLOCK)
    kernel(grid, _BLOCK, expected, found, found.numel(), length, *by_block.unbind())
    return by_block.unbind()


@functools.cache
def _has_nvrtc() -> bool:
    """cuda-bindings look for it where they are, and do not bring it; what else is asked of them the driver has."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, OSError, RuntimeError):  # of the last kind is what says that a library was not found
        return False
    return True


@functools.cache
def _kernel(signature: str) -> cuda_raw.Kernel:
    return cuda_raw.compile(_SOURCE, signature, [f"-DLARGEST={_LARGEST}"])
