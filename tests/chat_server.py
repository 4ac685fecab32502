"""A service that speaks the OpenAI chat protocol on loopback, by a script: one behaviour for each request, in order.

Real clients talk to it over real sockets, so that what they do with rate limits, silence and broken answers is what
they do with a provider's.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Behaviour = Callable[["Handler", dict[str, Any]], None]
KEY = "sk-loopback-0123456789"
"""What the clients are given as their key."""


class Handler(BaseHTTPRequestHandler):
    """One request. `server` is the `ChatServer`'s."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        chat: ChatServer = self.server.chat  # type: ignore[attr-defined]
        with suppress(BrokenPipeError, ConnectionResetError):  # a client that gave up waiting
            chat.next(body, {name.lower(): value for name, value in self.headers.items()})(self, body)

    def send_json(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
        self.send_raw(status, json.dumps(content).encode(), headers)

    def send_raw(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Nothing: tests read the server's own record."""


class ChatServer:
    """A context manager; `url` is for OPENAI_API_BASE, `requests` and `headers` list what came."""

    def __init__(self, script: Sequence[Behaviour]) -> None:
        self.script = list(script)
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.chat = self  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def next(self, body: dict[str, Any], headers: dict[str, str]) -> Behaviour:
        with self._lock:
            self.requests.append(body)
            self.headers.append(headers)
            self.times.append(time.monotonic())
            behaviour = self.script[min(len(self.requests), len(self.script)) - 1]

        def counted(handler: Handler, request: dict[str, Any]) -> None:
            with self._lock:
                self.at_once += 1
                self.most_at_once = max(self.most_at_once, self.at_once)
            try:
                behaviour(handler, request)
            finally:
                with self._lock:
                    self.at_once -= 1

        return counted

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def completion(message: dict[str, Any], finish_reason: str = "stop", **more: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "some-model",
        "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 21, "completion_tokens": 9, "total_tokens": 30},
    } | more  # fmt: skip


def says(text: str | None, finish_reason: str = "stop", **more: Any) -> Behaviour:
    """Answers; in pieces where that is asked for."""

    def behave(handler: Handler, request: dict[str, Any]) -> None:
        if request.get("stream"):
            _stream(handler, text or "", finish_reason)
        else:
            handler.send_json(200, completion({"content": text}, finish_reason, **more))

    return behave


def calls_tool(arguments: str) -> Behaviour:
    """Answers with a call of the first tool that was offered."""

    def behave(handler: Handler, request: dict[str, Any]) -> None:
        name = request["tools"][0]["function"]["name"]
        call = {"id": "call-1", "type": "function", "function": {"name": name, "arguments": arguments}}
        handler.send_json(200, completion({"content": None, "tool_calls": [call]}, "tool_calls"))

    return behave


def fails(status: int, message: str = "no", headers: dict[str, str] | None = None, **error: Any) -> Behaviour:
    """Answers with an error."""
    content = {"error": {"message": message, "type": "error", "param": None, "code": None} | error}
    return lambda handler, _: handler.send_json(status, content, headers)


def sends(data: bytes, status: int = 200) -> Behaviour:
    """Answers with these bytes as the body."""
    return lambda handler, _: handler.send_raw(status, data)


def waits(seconds: float, then: Behaviour) -> Behaviour:
    """Is silent first."""

    def behave(handler: Handler, request: dict[str, Any]) -> None:
        time.sleep(seconds)
        then(handler, request)

    return behave


def hangs_up(handler: Handler, request: dict[str, Any]) -> None:
    """Promises a long body and closes the connection after a few bytes."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    handler.wfile.write(b'{"id": "chatcmpl-1", "choices": [')
    handler.close_connection = True


def stops_streaming(text: str, last: bytes = b"") -> Behaviour:
    """Sends a part of an answer in pieces, then perhaps something else, and closes the connection."""

    def behave(handler: Handler, request: dict[str, Any]) -> None:
        _stream(handler, text, None)
        handler.wfile.write(last)

    return behave


def _stream(handler: Handler, text: str, finish_reason: str | None) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.close_connection = True
    pieces: list[dict[str, Any]] = [{"content": text[i : i + 20]} for i in range(0, len(text), 20)]
    for piece in [{"role": "assistant", "content": ""}, *pieces]:
        _send_piece(handler, [{"index": 0, "delta": piece, "finish_reason": None}])
    if finish_reason is not None:
        _send_piece(handler, [{"index": 0, "delta": {}, "finish_reason": finish_reason}])
        _send_piece(handler, [], usage={"prompt_tokens": 21, "completion_tokens": 9, "total_tokens": 30})
        handler.wfile.write(b"data: [DONE]\n\n")


def _send_piece(handler: Handler, choices: list[dict[str, Any]], **more: Any) -> None:
    piece = {
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "some-model", "choices": choices,
    } | more  # fmt: skip
    handler.wfile.write(f"data: {json.dumps(piece)}\n\n".encode())
