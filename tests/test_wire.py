"""Frames: what arrives in pieces is put together, and what is no frame of ours is refused, whoever sent it."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbenv.sandbox.wire import Channel, ClosedError, DeadlineError, MalformedError, pair

SOON_S = 0.02


@pytest.fixture
def raw() -> Iterator[tuple[socket.socket, Channel]]:
    """A raw socket (the other end, which may send anything) and a channel that accepts frames of up to 1000 bytes."""
    ours, theirs = pair()
    channel = Channel(ours, max_frame_bytes=1000)
    with theirs:
        yield theirs, channel
    channel.close()


@pytest.fixture
def channels() -> Iterator[tuple[Channel, Channel]]:
    """Two connected channels."""
    one, other = (Channel(sock) for sock in pair())
    yield one, other
    one.close()
    other.close()


def frame(body: bytes) -> bytes:
    return struct.pack("!I", len(body)) + body


def pipe_holding(data: bytes) -> int:
    """The reading end of a pipe that holds `data`."""
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    return reading


def test_messages_arrive_in_order_and_unchanged(channels):
    sender, receiver = channels
    messages = [
        {"op": "load", "n": 1, "x": 0.1, "text": "‘ü’ \U0001f600 \0", "none": None, "list": [{}, []]},
        {},
        {"a": True},
    ]
    for message in messages:
        sender.send(message)
    assert [receiver.receive(1.0) for _ in messages] == messages


@pytest.mark.parametrize("spin", [False, True])
def test_a_frame_may_arrive_byte_by_byte(raw, spin):
    theirs, channel = raw
    channel.spin = spin

    def trickle() -> None:
        for byte in frame(b'{"a": 1}'):
            theirs.send(bytes([byte]))
            time.sleep(0.001)

    thread = threading.Thread(target=trickle)
    thread.start()
    assert channel.receive(5.0) == {"a": 1}
    thread.join()


@pytest.mark.parametrize("spin", [False, True])
def test_a_deadline_comes_in_time_and_loses_nothing(raw, spin):
    theirs, channel = raw
    channel.spin = spin
    data = frame(b'{"a": 1}') + frame(b'{"b": 2}')
    theirs.send(data[:7])
    started = time.monotonic()
    with pytest.raises(DeadlineError):
        channel.receive(SOON_S)
    assert SOON_S <= time.monotonic() - started < 1.0
    theirs.send(data[7:])
    assert channel.receive(1.0) == {"a": 1}
    assert channel.receive(1.0) == {"b": 2}


def test_what_has_arrived_is_received_without_waiting(channels):
    sender, receiver = channels
    sender.send({"a": 1})
    assert receiver.receive(0.0) == {"a": 1}
    with pytest.raises(DeadlineError):
        receiver.receive(0.0)


def test_a_large_frame_passes_through_a_small_socket_buffer(channels):
    sender, receiver = channels
    message = {"source": "x" * (8 << 20)}
    received = []
    thread = threading.Thread(target=lambda: received.append(receiver.receive(30.0)))
    thread.start()
    sender.send(message)
    thread.join()
    assert received == [message]


def test_sending_to_one_who_does_not_read_ends_at_the_deadline(channels):
    sender, _ = channels
    with pytest.raises(DeadlineError):
        sender.send({"source": "x" * (8 << 20)}, timeout_s=SOON_S)


def test_a_frame_that_announces_too_much_is_refused_at_once(raw):
    theirs, channel = raw
    theirs.send(struct.pack("!I", 1001))
    with pytest.raises(MalformedError, match="1001 bytes; at most 1000"):
        channel.receive(1.0)


def test_a_flood_without_end_is_not_collected(raw):
    theirs, channel = raw
    theirs.setblocking(False)
    sent = theirs.send(b"\xff" * (1 << 20))
    with pytest.raises(MalformedError):
        channel.receive(1.0)
    assert sent > 0


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="cut off"),
        pytest.param(b"\x80\x04N.", id="pickle"),
        pytest.param(b"[1]", id="a list"),
        pytest.param(b"null", id="null"),
        pytest.param(b'"text"', id="text"),
        pytest.param(b'{"a": 1} {"b": 2}', id="two objects"),
        pytest.param(b'{"a": "\xff"}', id="no UTF-8"),
        pytest.param(b'{"a": "\xed\xa0\x80"}', id="a surrogate as bytes"),
        pytest.param('{"a": 1}'.encode("utf-16"), id="UTF-16"),
        pytest.param(b'{"a": NaN}', id="NaN"),
        pytest.param(b'{"a": -Infinity}', id="infinity"),
        pytest.param(b'{"a": 1e999}', id="a number too large"),
        pytest.param(b'{"a": 1' + b"0" * 900 + b".5}", id="a long number too large"),
    ],
)
def test_what_is_no_json_object_is_refused(raw, body):
    theirs, channel = raw
    theirs.send(frame(body))
    with pytest.raises(MalformedError):
        channel.receive(1.0)


def test_deeply_nested_json_is_refused_and_not_a_crash():
    ours, theirs = pair()
    channel = Channel(ours)
    thread = threading.Thread(target=theirs.sendall, args=(frame(b'{"a":' + b"[" * 500_000),))
    thread.start()
    with pytest.raises(MalformedError):
        channel.receive(10.0)
    thread.join()
    theirs.close()
    channel.close()


def test_integers_too_long_to_parse_are_refused():
    ours, theirs = pair()
    channel = Channel(ours)
    theirs.sendall(frame(b'{"a": ' + b"1" * 5000 + b"}"))
    with pytest.raises(MalformedError):
        channel.receive(1.0)
    theirs.close()
    channel.close()


def test_half_surrogate_pairs_are_replaced_and_whole_ones_kept(raw):
    theirs, channel = raw
    theirs.send(frame(b'{"detail": ["a\\ud800b \\uDC00"], "\\ud83d": 1, "smile": "\\ud83d\\ude00"}'))
    message = channel.receive(1.0)
    assert message == {"detail": ["a?b ?"], "?": 1, "smile": "\U0001f600"}
    json.dumps(message, ensure_ascii=False).encode()


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_waited_for(data):
    ours, theirs = pair()
    channel = Channel(ours, max_frame_bytes=1000)
    theirs.send(data)
    try:
        message = channel.receive(0.0)
    except (MalformedError, DeadlineError):
        pass
    else:
        assert isinstance(message, dict)
    finally:
        theirs.close()
        channel.close()


def test_numbers_that_are_not_finite_are_not_sent(channels):
    with pytest.raises(ValueError, match="not JSON compliant"):
        channels[0].send({"a": float("nan")})


def test_a_closed_end_is_its_own_error(channels):
    one, other = channels
    other.send({"last": 1})
    other.close()
    assert one.receive(1.0) == {"last": 1}
    with pytest.raises(ClosedError):
        one.receive(1.0)
    with pytest.raises(ClosedError):
        one.send({"a": 1})


def test_descriptors_travel_with_their_frame(channels):
    sender, receiver = channels
    sent = [pipe_holding(b"one"), pipe_holding(b"two")]
    sender.send({"n": 1}, sent)
    sender.send({"n": 2})
    message, received = receiver.receive_with_descriptors(1.0)
    assert message == {"n": 1}
    assert [os.read(descriptor, 10) for descriptor in received] == [b"one", b"two"]
    assert receiver.receive_with_descriptors(1.0) == ({"n": 2}, [])
    for descriptor in (*sent, *received):
        os.close(descriptor)


def test_descriptors_outlast_a_deadline(raw):
    theirs, channel = raw
    data, descriptor = frame(b'{"n": 1}'), pipe_holding(b"late")
    socket.send_fds(theirs, [data[:3]], [descriptor])
    os.close(descriptor)
    with pytest.raises(DeadlineError):
        channel.receive_with_descriptors(SOON_S)
    theirs.send(data[3:])
    message, received = channel.receive_with_descriptors(1.0)
    assert message == {"n": 1}
    assert os.read(received[0], 10) == b"late"
    os.close(received[0])


def test_descriptors_that_nobody_asked_for_are_not_taken(raw):
    theirs, channel = raw
    before = set(os.listdir("/proc/self/fd"))
    descriptor = pipe_holding(b"unasked")
    socket.send_fds(theirs, [frame(b'{"n": 1}')], [descriptor])
    os.close(descriptor)
    assert channel.receive(1.0) == {"n": 1}
    assert set(os.listdir("/proc/self/fd")) == before
