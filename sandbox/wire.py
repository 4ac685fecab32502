"""Messages between host, judge, zygote and runners: one bounded JSON object a frame, over a socket.

A frame is a four-byte big-endian length and that many bytes of UTF-8 JSON. Descriptors travel with a frame's first
byte (SCM_RIGHTS) and only where the receiver asks for them: a judge never takes any from a runner. Nothing is
unpickled, and a frame that is too long or not an object is `MalformedError`, whoever sent it.
"""

from __future__ import annotations

import array
import contextlib
import json
import math
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

Message = dict[str, Any]

MAX_FRAME_BYTES = 32 << 20
"""Of trusted senders: a job carries a problem and a source of at most 5 MB each."""
MAX_RUNNER_FRAME_BYTES = 1 << 20
_HEADER = struct.Struct("!I")
_MAX_DESCRIPTORS = 16
_CHUNK_BYTES = 1 << 16
"""Read at once. A buffer of a megabyte for each look at a socket made a clock of 0.2 ms of one of microseconds."""


class ClosedError(ConnectionError):
    """The other end is gone."""


class MalformedError(ValueError):
    """The other end sent something that is not a frame of this protocol."""


class DeadlineError(TimeoutError):
    """No whole frame came in time."""


class Channel:
    """One end of a connection.

    Args:
        sock: a connected stream socket; the channel owns it.
        max_frame_bytes: longest frame that is accepted.
        spin: poll without sleeping (a microsecond clock on a machine with cores to spare) instead of blocking.
    """

    def __init__(self, sock: socket.socket, *, max_frame_bytes: int = MAX_FRAME_BYTES, spin: bool = False) -> None:
        self._socket = sock
        self._max_frame_bytes = max_frame_bytes
        self.spin = spin
        self._received = bytearray()  # what came of a frame before a deadline is kept, and
        self._descriptors: list[int] = []  # the descriptors that came with it
        self._chunk = bytearray(_CHUNK_BYTES)
        sock.setblocking(False)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def shut(self) -> None:
        """Ends the conversation from any thread: one that waits in `receive` finds the other end gone."""
        with contextlib.suppress(OSError):  # it is closed already
            self._socket.shutdown(socket.SHUT_RDWR)

    def send(self, message: Message, descriptors: Sequence[int] = (), *, timeout_s: float = 60.0) -> None:
        """Sends one frame. Raises ClosedError, or DeadlineError when the other end does not read."""
        body = _ENCODER.encode(message).encode()
        data = memoryview(_HEADER.pack(len(body)) + body)
        deadline = time.monotonic() + timeout_s
        ancillary = []
        if descriptors:
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        while data:
            try:
                sent = self._socket.sendmsg([data], ancillary)
            except BlockingIOError:
                self._wait(select.POLLOUT, deadline)
                continue
            except OSError as e:
                raise ClosedError("the other end closed the connection") from e
            data, ancillary = data[sent:], []

    def receive(self, timeout_s: float | None = None) -> Message:
        """Receives one frame; descriptors sent along are closed by the kernel."""
        return self._receive(timeout_s, take_descriptors=False)

    def receive_with_descriptors(self, timeout_s: float | None = None) -> tuple[Message, list[int]]:
        """Receives one frame and the descriptors that came with it (the caller owns them)."""
        message = self._receive(timeout_s, take_descriptors=True)
        descriptors, self._descriptors = self._descriptors, []
        return message, descriptors

    def _receive(self, timeout_s: float | None, *, take_descriptors: bool) -> Message:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while (body := self._take_frame()) is None:
            self._read_some(deadline, take_descriptors=take_descriptors)
        return _parse(body)

    def _take_frame(self) -> bytes | None:
        if len(self._received) < _HEADER.size:
            return None
        (length,) = _HEADER.unpack(self._received[: _HEADER.size])
        if length > self._max_frame_bytes:
            raise MalformedError(f"a frame of {length} bytes; at most {self._max_frame_bytes} are accepted")
        end = _HEADER.size + length
        if len(self._received) < end:
            return None
        body = bytes(self._received[_HEADER.size : end])
        del self._received[:end]
        return body

    def _read_some(self, deadline: float | None, *, take_descriptors: bool) -> None:
        try:
            if not take_descriptors:
                count = self._socket.recv_into(self._chunk)
            else:
                item = array.array("i").itemsize
                space = socket.CMSG_LEN(_MAX_DESCRIPTORS * item)
                count, ancillary, _, _ = self._socket.recvmsg_into([self._chunk], space)
                for level, kind, payload in ancillary:
                    if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                        received = array.array("i")
                        received.frombytes(payload[: len(payload) - len(payload) % item])
                        self._descriptors.extend(received)
        except BlockingIOError:
            self._wait(select.POLLIN, deadline)
            return
        except OSError as e:
            raise ClosedError("the connection broke") from e
        if count == 0:
            raise ClosedError("the other end closed the connection")
        self._received += memoryview(self._chunk)[:count]

    def _wait(self, event: int, deadline: float | None) -> None:
        remaining = None if deadline is None else deadline - time.monotonic()
        if remaining is not None and remaining <= 0:
            raise DeadlineError("no answer in time")
        if self.spin:
            return
        poll = select.poll()
        poll.register(self._socket, event)
        poll.poll(None if remaining is None else max(1, int(remaining * 1000) + 1))


def _parse(body: bytes) -> Message:
    """The object in a frame, fit to be sent on: finite numbers, and text that is valid Unicode."""
    try:
        message = _DECODER.decode(body.decode())
        if b"\\ud" in body.lower():  # half a surrogate pair, perhaps: a file name in a traceback can hold one
            message = _without_surrogates(message)
    except (ValueError, RecursionError) as e:
        raise MalformedError(f"a frame that is not JSON: {body[:40]!r}") from e
    if not isinstance(message, dict):
        raise MalformedError("a frame that is not a JSON object")
    return message


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


_ENCODER = json.JSONEncoder(allow_nan=False)
_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets, for a parent and the child that it starts."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
