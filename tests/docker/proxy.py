"""A TCP port on 127.0.0.1 in front of the engine, so that a test can be far from it, and lose it."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self
from urllib.parse import urlsplit

from kbenv.sandbox.engine import address


class EngineProxy:
    """Carries connections to the engine that DOCKER_HOST names now, each way until that ends; a context manager."""

    def __init__(self) -> None:
        self._engine = urlsplit(address())
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._flows = threading.Event()
        self._flows.set()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """For DOCKER_HOST."""
        return f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self) -> None:
        """Drops every connection; new ones are carried."""
        for pair in list(self._pairs):
            for sock in pair:
                _end(sock, socket.SHUT_RDWR)

    def freeze(self) -> None:
        """Connections stay and new ones are taken, but nothing passes until they are cut."""
        self._flows.clear()

    def close(self) -> None:
        """Drops every connection and takes no more; no thread is left."""
        _end(self._listener, socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        self._flows.set()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._carry_both, args=(near, self._connect()), daemon=True))
            self._threads[-1].start()

    def _connect(self) -> socket.socket:
        if self._engine.scheme == "unix":
            sock = socket.socket(socket.AF_UNIX)
            sock.connect(self._engine.path)
            return sock
        assert self._engine.scheme == "tcp", f"the engine must be at a unix socket or a TCP port; found {self._engine}"
        return socket.create_connection((self._engine.hostname, self._engine.port))

    def _carry_both(self, near: socket.socket, far: socket.socket) -> None:
        with near, far:
            self._pairs.append((near, far))
            back = threading.Thread(target=self._carry, args=(far, near), daemon=True)
            back.start()
            self._carry(near, far)
            back.join()
            self._pairs.remove((near, far))

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                self._flows.wait()
                sink.sendall(data)
        except OSError:
            _end(source, socket.SHUT_RDWR)
            _end(sink, socket.SHUT_RDWR)
        _end(sink, socket.SHUT_WR)


def _end(sock: socket.socket, how: int) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(how)
