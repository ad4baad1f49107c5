"""The load generator against a scripted server: what it sends is right, and what it is told wrong ends the run."""

from __future__ import annotations

import json
import queue
import socket
import struct
import threading
from typing import TYPE_CHECKING, BinaryIO

import pytest
from bench.harness.generator import Generator, LoadError

from polymq.wire.deflate import DeflateLayer
from polymq.wire.snappy import SnappyLayer
from tests.interop.scripted import Scripted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from polymq.wire.layers import Layer

OK = struct.pack(">ii", 6, 0) + b"OK"
HEARTBEAT = struct.pack(">ii", 15, 0) + b"_heartbeat_"
CLOSE_WAIT = struct.pack(">ii", 14, 0) + b"CLOSE_WAIT"


def message(number: int, *, attempts: int = 1, body: bytes = b"x" * 8) -> bytes:
    data = struct.pack(">qH", 1, attempts) + b"%016x" % number + body
    return struct.pack(">ii", 4 + len(data), 2) + data


class Unpacked:
    """What comes out of a byte layer, read as a file is."""

    def __init__(self, connection: socket.socket, layer: Layer) -> None:
        self.connection = connection
        self.layer = layer
        self.rest = b""

    def _more(self) -> bool:
        data = self.connection.recv(65536)
        self.rest += self.layer.receive(data)
        while self.layer.holding:
            self.rest += self.layer.receive(b"")
        return bool(data)

    def read(self, size: int) -> bytes:
        while len(self.rest) < size and self._more():
            pass
        found, self.rest = self.rest[:size], self.rest[size:]
        return found

    def readline(self) -> bytes:
        while b"\n" not in self.rest and self._more():
            pass
        return self.read(self.rest.index(b"\n") + 1 if b"\n" in self.rest else 0)


class Peer:
    """The server's end of one connection, past IDENTIFY."""

    def __init__(self, connection: socket.socket, file: BinaryIO) -> None:
        self.connection = connection
        self.file: BinaryIO | Unpacked = file
        self.layer: Layer | None = None
        assert self.file.read(4) == b"  V2"
        assert self.file.readline() == b"IDENTIFY\n"
        self.wishes = json.loads(self.body())
        self.send(struct.pack(">ii", 6, 0) + b"{}")

    def compress(self, layer: Layer) -> None:
        """From here on both directions are compressed, an OK first."""
        self.layer = layer
        self.file = Unpacked(self.connection, layer)
        self.send(OK)

    def send(self, data: bytes) -> None:
        self.connection.sendall(self.layer.send(data) if self.layer is not None else data)

    def line(self) -> bytes:
        return self.file.readline()

    def body(self) -> bytes:
        (size,) = struct.unpack(">i", self.file.read(4))
        return self.file.read(size)

    def subscribed(self) -> None:
        assert self.line() == b"SUB bench bench\n"
        self.send(OK)


def scripted(*scripts: Callable[[Peer], None]) -> Scripted[Peer]:
    return Scripted(Peer, *scripts)


def test_what_is_published_is_whole(generator: Generator) -> None:
    batches: list[list[bytes]] = []

    def script(peer: Peer) -> None:
        while peer.line() == b"MPUB bench\n":
            content = peer.body()
            (count,) = struct.unpack_from(">i", content)
            position, bodies = 4, []
            for _ in range(count):
                (size,) = struct.unpack_from(">i", content, position)
                bodies.append(content[position + 4 : position + 4 + size])
                position += 4 + size
            assert position == len(content)
            batches.append(bodies)
            peer.send(OK)

    server = scripted(script)
    result = generator.run("mpub", server.address, messages=60, batch=20, size=11, window=2, deadline_s=10)
    server.check()
    assert [len(batch) for batch in batches] == [20, 20, 20]
    assert {len(body) for batch in batches for body in batch} == {11}
    assert (result["messages"], result["complete"], result["samples"]) == (60, True, 3)


def test_the_window_bounds_what_is_unanswered(generator: Generator) -> None:
    def script(peer: Peer) -> None:
        for left in range(10, 0, -3):
            for _ in range(min(3, left)):
                assert peer.line() == b"DPUB bench 500\n"
                assert len(peer.body()) == 8
            peer.connection.settimeout(0.2)
            with pytest.raises(TimeoutError):
                peer.connection.recv(1, socket.MSG_PEEK)
            peer.connection.settimeout(10)
            peer.send(OK * min(3, left))

    server = scripted(script)
    result = generator.run("pub", server.address, messages=10, size=8, window=3, defer_ms=500, deadline_s=10)
    server.check()
    assert result["messages"] == 10


def test_each_message_is_settled_and_a_second_delivery_is_counted_apart(generator: Generator) -> None:
    def script(peer: Peer) -> None:
        peer.subscribed()
        assert peer.line() == b"RDY 3\n"
        stream = message(1) + HEARTBEAT + message(2) + message(1, attempts=2) + message(3)
        # Frames arrive in pieces as well.
        for start in range(0, len(stream), 7):
            peer.send(stream[start : start + 7])
        assert sorted(peer.line() for _ in range(5)) == sorted([b"NOP\n", *(b"FIN %016x\n" % number for number in (1, 1, 2, 3))])
        assert peer.line() == b"CLS\n"
        peer.send(CLOSE_WAIT)

    server = scripted(script)
    result = generator.run("sub", server.address, messages=3, rdy=3, deadline_s=10)
    server.check()
    assert (result["received"], result["redelivered"], result["messages"]) == ([3], 1, 3)


def test_the_first_message_can_be_held_back(generator: Generator) -> None:
    def script(peer: Peer) -> None:
        peer.subscribed()
        assert peer.line() == b"RDY 2500\n"
        peer.send(message(1) + message(2))
        assert peer.line() == b"FIN %016x\n" % 2
        assert peer.line() == b"CLS\n"
        peer.send(CLOSE_WAIT)

    server = scripted(script)
    generator.run("sub", server.address, messages=2, hold_first=True, deadline_s=10)
    server.check()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (struct.pack(">ii", 4 + 20, 1) + b"E_PUB_FAILED exiting", "E_PUB_FAILED exiting"),
        (message(1), "unexpected message"),
        (struct.pack(">ii", 6, 0) + b"NO", "unexpected response: NO"),
        (struct.pack(">ii", 3, 0), "frame size 3"),
        (struct.pack(">ii", -1, 0), "frame size"),
        (struct.pack(">ii", 4, 7), "frame type 7"),
        (struct.pack(">ii", 4 + 25, 2) + b"x" * 25, "message frame of 29 bytes"),
        (OK * 2, "more answers than commands"),
        (b"", "closed the connection"),
    ],
)
def test_a_wrong_answer_ends_the_run(generator: Generator, answer: bytes, words: str) -> None:
    def script(peer: Peer) -> None:
        assert peer.line() == b"PUB bench\n"
        peer.body()
        peer.send(answer)
        peer.connection.shutdown(socket.SHUT_WR)
        peer.connection.recv(1)

    server = scripted(script)
    with pytest.raises(LoadError, match=words):
        generator.run("pub", server.address, messages=100, window=1, size=8, deadline_s=10)
    server.check()


def test_the_deadline_ends_a_run_that_hangs(generator: Generator) -> None:
    def script(peer: Peer) -> None:
        peer.subscribed()
        peer.line()
        peer.send(message(1))
        peer.connection.recv(100)
        peer.connection.recv(1)

    server = scripted(script)
    with pytest.raises(LoadError, match=r"deadline came first \(after 1 messages\)"):
        generator.run("sub", server.address, messages=2, deadline_s=0.5)
    server.check()


def test_latency_is_from_publish_to_receive(generator: Generator) -> None:
    published: queue.Queue[bytes] = queue.Queue()

    def consumer(peer: Peer) -> None:
        peer.subscribed()
        assert peer.line() == b"RDY 100\n"
        for number in range(5):
            body = published.get(timeout=10)
            # 50 ms on top of everything else.
            threading.Event().wait(0.05)
            peer.send(message(number, body=body))
            assert peer.line().startswith(b"FIN ")
        assert peer.line() == b"CLS\n"
        peer.send(CLOSE_WAIT)

    def publisher(peer: Peer) -> None:
        for _ in range(5):
            assert peer.line() == b"PUB bench\n"
            published.put(peer.body())
            peer.send(OK)

    server = scripted(consumer, publisher)
    result = generator.run("latency", server.address, messages=5, rate=10, rdy=100, size=16, deadline_s=10)
    server.check()
    assert 50_000 <= result["p50_us"] <= 90_000
    assert result["samples"] == 5


def test_wrong_use_is_explained(generator: Generator) -> None:
    for options in ({"messages": 7, "batch": 2}, {"size": 0}, {"nonsense": 1}, {"batch": 20_000, "size": 1000}):
        with pytest.raises(LoadError):
            generator.run("mpub", "127.0.0.1:1", deadline_s=1, **options)


def test_a_program_is_built_once(generator: Generator, tmp_path: Path) -> None:
    built = generator.program.stat().st_mtime_ns
    assert Generator(generator.program.parent).program.stat().st_mtime_ns == built
    assert Generator(tmp_path / "other").program.exists()


LAYERS: dict[str, Callable[[], Layer]] = {"snappy": SnappyLayer, "deflate": lambda: DeflateLayer(6)}


@pytest.mark.parametrize("kind", LAYERS)
def test_what_is_published_compressed_is_the_same(generator: Generator, kind: str) -> None:
    bodies: list[bytes] = []

    def script(peer: Peer) -> None:
        assert (peer.wishes["snappy"], peer.wishes["deflate"]) == (kind == "snappy", kind == "deflate")
        peer.compress(LAYERS[kind]())
        for index in range(10):
            # The answer to the heartbeat goes between two commands that were compressed long before.
            assert not index or peer.line() == b"NOP\n"
            assert peer.line() == b"MPUB bench\n"
            content = peer.body()
            assert struct.unpack_from(">i", content) == (500,)
            assert len(content) == 4 + 500 * 204
            bodies.extend(content[8 + at : 208 + at] for at in range(0, 500 * 204, 204))
            peer.send(HEARTBEAT + OK)

    server = scripted(script)
    result = generator.run("mpub", server.address, messages=5000, batch=500, window=1, compression=kind, words=True, deadline_s=10)
    server.check()
    assert result["complete"]
    assert len({*bodies}) > 400
    assert all(len(word) < 10 for body in bodies for word in body.split(b" "))


@pytest.mark.parametrize("kind", LAYERS)
def test_what_is_consumed_compressed_is_settled(generator: Generator, kind: str) -> None:
    count = 3000

    def script(peer: Peer) -> None:
        peer.compress(LAYERS[kind]())
        peer.subscribed()
        assert peer.line() == b"RDY 5000\n"
        stream = b"".join(message(number, body=b"%d " % number * 40) for number in range(count)) + HEARTBEAT
        for start in range(0, len(stream), 100_000):
            peer.send(stream[start : start + 100_000])
        lines = [peer.line() for _ in range(count + 1)]
        assert sorted(lines) == sorted([b"NOP\n", *(b"FIN %016x\n" % number for number in range(count))])
        assert peer.line() == b"CLS\n"
        peer.send(CLOSE_WAIT)

    server = scripted(script)
    result = generator.run("sub", server.address, messages=count, rdy=5000, compression=kind, deadline_s=10)
    server.check()
    assert result["received"] == [count]


def test_a_damaged_chunk_ends_the_run(generator: Generator) -> None:
    def script(peer: Peer) -> None:
        peer.compress(SnappyLayer())
        assert peer.line() == b"PUB bench\n"
        peer.body()
        assert peer.layer is not None
        chunk = bytearray(peer.layer.send(OK))
        chunk[5] ^= 1
        peer.connection.sendall(chunk)
        peer.connection.recv(1)

    server = scripted(script)
    with pytest.raises(LoadError, match="wrong checksum"):
        generator.run("pub", server.address, messages=1, compression="snappy", deadline_s=10)
    server.check()


def test_logging_in_comes_before_everything(generator: Generator) -> None:
    def script(peer: Peer) -> None:
        assert peer.line() == b"AUTH\n"
        assert peer.body() == b"a secret"
        peer.send(struct.pack(">ii", 4 + 2, 0) + b"{}")
        assert peer.line() == b"PUB bench\n"
        peer.body()
        peer.send(OK)

    server = scripted(script)
    generator.run("pub", server.address, messages=1, auth="a secret", deadline_s=10)
    server.check()


def test_topics_get_the_same_and_each_of_their_channels_is_consumed(generator: Generator) -> None:
    subscribed: list[bytes] = []
    published: list[bytes] = []
    done = threading.Event()

    def consumer(peer: Peer) -> None:
        subscribed.append(peer.line())
        peer.send(OK)
        assert peer.line() == b"RDY 10\n"
        assert done.wait(10)
        peer.send(message(1) + message(2))
        assert [peer.line() for _ in range(2)] == [b"FIN %016x\n" % 1, b"FIN %016x\n" % 2]
        assert peer.line() == b"CLS\n"
        peer.send(CLOSE_WAIT)

    def publisher(peer: Peer) -> None:
        for _ in range(6):
            published.append(peer.line())
            peer.body()
            peer.send(OK)
        done.set()

    server = scripted(*[consumer] * 6, publisher)
    result = generator.run("both", server.address, messages=6, batch=1, topics=3, channels=2, rdy=10, window=6, deadline_s=10)
    server.check()
    assert subscribed == [b"SUB bench-%05d bench%b\n" % (topic, channel) for topic in range(3) for channel in (b"", b"-1")]
    assert published == [b"PUB bench-%05d\n" % (index % 3) for index in range(6)]
    assert result["messages"] == 6


def test_a_publisher_waits_for_another_process_that_consumes(generator: Generator, tmp_path: Path) -> None:
    told = tmp_path / "told"
    told.write_bytes(bytes(8))

    def script(peer: Peer) -> None:
        for number in range(1, 11):
            assert peer.line() == b"MPUB bench\n"
            peer.body()
            peer.send(OK)
            if number == 4:
                # 40 are out, 30 may be: nothing more comes until it is told that some have been received.
                peer.connection.settimeout(0.3)
                with pytest.raises(TimeoutError):
                    peer.connection.recv(1, socket.MSG_PEEK)
                peer.connection.settimeout(10)
                told.write_bytes(struct.pack("=Q", 100))

    server = scripted(script)
    result = generator.run("mpub", server.address, messages=100, batch=10, window=1, follow=told, lead_max=30, deadline_s=10)
    server.check()
    assert result["messages"] == 100
    with pytest.raises(LoadError, match="nowhere"):
        generator.run("mpub", server.address, follow=tmp_path / "nowhere")


def test_what_was_done_until_the_deadline_may_be_enough(generator: Generator) -> None:
    def script(peer: Peer) -> None:
        peer.subscribed()
        assert peer.line() == b"RDY 2500\n"
        peer.send(message(1) + message(2))
        while peer.line():
            pass

    server = scripted(script)
    load = generator.start("sub", server.address, messages=3, deadline_s=0.5, ready=True)
    assert load.stdout is not None
    assert json.loads(load.stdout.readline()) == {"ready": True}
    result = generator.finish(load, whole=False)
    server.check()
    assert (result["messages"], result["complete"]) == (2, False)
