"""Memory that a judge makes and a runner maps: memfd on the CPU, CUDA's virtual memory API on a GPU.

The judge creates a `Buffer` and passes its descriptor; the runner attaches it as a `Mapping` at an address that stays
the same when the memory behind it is replaced. A runner's read-only mapping on the GPU stops accidents, not attackers
(the runner could map it again); on the CPU the judge seals the descriptor against new writable mappings.
PyTorch's own CUDA IPC is not used: it is refused between users.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import warnings
from abc import ABC, abstractmethod
from typing import Any

import torch

_F_ADD_SEALS = 1033
_F_SEAL_SHRINK, _F_SEAL_GROW, _F_SEAL_FUTURE_WRITE = 0x2, 0x4, 0x10
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_PAGE = mmap.PAGESIZE


class Buffer(ABC):
    """Memory of the judge's that can be exported. `flat` is the judge's own view, uint8.

    Use `open_descriptor()` for a descriptor to send and close; `close()` unmaps (memory lives while a runner maps it).
    """

    flat: torch.Tensor
    nbytes: int

    @abstractmethod
    def open_descriptor(self, *, writable: bool) -> int: ...

    @abstractmethod
    def close(self) -> None: ...


class Mapping(ABC):
    """A runner's view of a buffer. `flat` stays valid, at the same address, over `detach` and `attach`."""

    flat: torch.Tensor

    @abstractmethod
    def attach(self, descriptor: int) -> None: ...

    @abstractmethod
    def detach(self) -> None: ...


def create_buffer(device: str, nbytes: int) -> Buffer:
    """A new buffer on "cpu" or "cuda". Raises MemoryError when the device has no room."""
    return CpuBuffer(nbytes) if device == "cpu" else CudaBuffer(nbytes)


def create_mapping(device: str, nbytes: int, *, writable: bool) -> Mapping:
    """An address range for a buffer of `nbytes`, nothing behind it yet."""
    return CpuMapping(nbytes, writable=writable) if device == "cpu" else CudaMapping(nbytes, writable=writable)


def make_ready(device: str) -> None:
    """Of a runner's process, at its start.

    On a GPU what the first buffer or mapping wants is imported (30 ms). On the CPU the allocator keeps what is freed:
    the C library would learn to from what is freed first, and a runner that has drawn inputs reuses its memory where
    another one takes new pages from the kernel in every call of the same forward (four times as long, measured).
    """
    if device == "cuda":
        _driver()
    else:
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)


def _tensor_over(memory: mmap.mmap | memoryview) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that a read-only buffer is not writable: that is the point
        return torch.frombuffer(memory, dtype=torch.uint8)


class CpuBuffer(Buffer):
    def __init__(self, nbytes: int) -> None:
        self.nbytes = -(-nbytes // _PAGE) * _PAGE
        self._descriptor = os.memfd_create("kbenv", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._descriptor, self.nbytes)
        os.fchmod(self._descriptor, 0o600)  # a runner under another uid cannot open it again through /proc
        # Without this a runner could shrink the file under the judge, whose next access would be a SIGBUS.
        fcntl.fcntl(self._descriptor, _F_ADD_SEALS, _F_SEAL_SHRINK | _F_SEAL_GROW)
        self._memory = mmap.mmap(self._descriptor, self.nbytes)
        self.flat = _tensor_over(self._memory)

    def open_descriptor(self, *, writable: bool) -> int:
        if writable:
            return os.dup(self._descriptor)
        fcntl.fcntl(self._descriptor, _F_ADD_SEALS, _F_SEAL_FUTURE_WRITE)  # the judge's own mapping stays writable
        return os.open(f"/proc/self/fd/{self._descriptor}", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        self.flat = torch.empty(0, dtype=torch.uint8)
        os.close(self._descriptor)  # the mapping goes with the last tensor that views it


class CpuMapping(Mapping):
    def __init__(self, nbytes: int, *, writable: bool) -> None:
        self._nbytes = -(-nbytes // _PAGE) * _PAGE
        self._writable = writable

    def attach(self, descriptor: int) -> None:
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if self._writable else 0)
        self.flat = _tensor_over(mmap.mmap(descriptor, self._nbytes, mmap.MAP_SHARED, protection))
        os.close(descriptor)

    def detach(self) -> None:
        del self.flat  # the mapping goes with the last tensor that views it; no plan for the CPU takes memory back


class _CudaArray:
    """The CUDA array interface over raw memory, for torch.as_tensor."""

    def __init__(self, pointer: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (pointer, False), "shape": (nbytes,), "typestr": "|u1", "version": 3, "strides": None,
        }  # fmt: skip


def _driver() -> Any:
    from cuda.bindings import driver

    return driver


def _check(result: tuple[Any, ...]) -> Any:
    driver = _driver()
    code, *values = result
    if code == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        raise MemoryError("the device has no room")
    if code != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"CUDA driver: {code}")
    return values[0] if len(values) == 1 else tuple(values)


def _properties() -> Any:
    driver = _driver()
    properties = driver.CUmemAllocationProp()
    properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = torch.cuda.current_device()
    properties.requestedHandleTypes = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    return properties


def _whole_granules(nbytes: int) -> int:
    driver = _driver()
    flag = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
    granularity = int(_check(driver.cuMemGetAllocationGranularity(_properties(), flag)))
    return -(-nbytes // granularity) * granularity


class _CudaRange:
    """A reserved address range that physical memory is mapped into."""

    def __init__(self, nbytes: int, *, writable: bool) -> None:
        torch.empty(1, device="cuda")  # makes the primary context current for the driver calls below
        self.nbytes = _whole_granules(nbytes)
        self.pointer = _check(_driver().cuMemAddressReserve(self.nbytes, 0, 0, 0))
        self._writable = writable

    def map(self, handle: Any) -> None:
        driver = _driver()
        _check(driver.cuMemMap(self.pointer, self.nbytes, 0, handle, 0))
        access = driver.CUmemAccessDesc()
        access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = torch.cuda.current_device()
        flags = driver.CUmemAccess_flags
        access.flags = (
            flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE if self._writable else flags.CU_MEM_ACCESS_FLAGS_PROT_READ
        )
        _check(driver.cuMemSetAccess(self.pointer, self.nbytes, [access], 1))

    def unmap(self) -> None:
        torch.cuda.synchronize()
        _check(_driver().cuMemUnmap(self.pointer, self.nbytes))

    def free(self) -> None:
        _check(_driver().cuMemAddressFree(self.pointer, self.nbytes))

    def tensor(self) -> torch.Tensor:
        return torch.as_tensor(_CudaArray(int(self.pointer), self.nbytes), device="cuda")


class CudaBuffer(Buffer):
    def __init__(self, nbytes: int) -> None:
        driver = _driver()
        self._range = _CudaRange(nbytes, writable=True)
        self.nbytes = self._range.nbytes
        try:
            self._handle = _check(driver.cuMemCreate(self.nbytes, _properties(), 0))
        except MemoryError:
            self._range.free()
            raise
        self._range.map(self._handle)
        self.flat = self._range.tensor()

    def open_descriptor(self, *, writable: bool) -> int:
        kind = _driver().CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        return int(_check(_driver().cuMemExportToShareableHandle(self._handle, kind, 0)))

    def close(self) -> None:
        self.flat = torch.empty(0, dtype=torch.uint8)
        self._range.unmap()
        _check(_driver().cuMemRelease(self._handle))
        self._range.free()


class CudaMapping(Mapping):
    def __init__(self, nbytes: int, *, writable: bool) -> None:
        self._range = _CudaRange(nbytes, writable=writable)
        self._created = False

    def attach(self, descriptor: int) -> None:
        driver = _driver()
        kind = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        handle = _check(driver.cuMemImportFromShareableHandle(descriptor, kind))
        os.close(descriptor)
        self._range.map(handle)
        _check(driver.cuMemRelease(handle))  # the mapping keeps the memory
        if not self._created:
            self.flat = self._range.tensor()
            self._created = True

    def detach(self) -> None:
        self._range.unmap()


def wait_for_value(flag: torch.Tensor, value: int) -> None:
    """Makes the legacy default stream wait until the 32-bit `flag` in device memory is at least `value`."""
    driver = _driver()
    geq = driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ.value
    _check(driver.cuStreamWaitValue32(driver.CUstream(0), driver.CUdeviceptr(flag.data_ptr()), value, geq))


def write_value(flag: torch.Tensor, value: int) -> None:
    """Writes `value` to the 32-bit `flag`, after all work on the current stream, visible device-wide."""
    driver = _driver()
    stream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
    _check(driver.cuStreamWriteValue32(stream, driver.CUdeviceptr(flag.data_ptr()), value, 0))


def descriptor_bytes(descriptor: int, offset: int, tensor: torch.Tensor) -> None:
    """Writes a CPU tensor's bytes into a file at `offset`."""
    contiguous = tensor.detach().cpu().contiguous()
    nbytes = contiguous.numel() * contiguous.element_size()
    view = memoryview((ctypes.c_char * nbytes).from_address(contiguous.data_ptr())).cast("B") if nbytes else b""
    while view:
        written = os.pwrite(descriptor, view[: 1 << 30], offset)
        view, offset = view[written:], offset + written
