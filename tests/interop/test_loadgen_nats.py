"""The NATS half of the load generator against a scripted server: what it sends is right, and what it may not be told ends the run."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

import pytest
from bench.harness.generator import Generator, LoadError

from tests.interop.scripted import Scripted

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

INFO = b'INFO {"server_id":"S","max_payload":1048576} \r\n'


def body(number: int, *, publisher: int = 0, size: int = 16) -> bytes:
    return struct.pack("=QI", number, publisher).ljust(size, b"x")


def message(number: int, *, subject: bytes = b"bench", sid: int = 1, publisher: int = 0, size: int = 16) -> bytes:
    return b"MSG %b %d %d\r\n%b\r\n" % (subject, sid, size, body(number, publisher=publisher, size=size))


class Peer:
    """The server's end of one connection, past CONNECT."""

    def __init__(self, connection: socket.socket, file: BinaryIO) -> None:
        self.connection = connection
        self.file = file
        self.send(INFO)
        verb, self.wishes = self.line().split(b" ", 1)
        assert verb == b"CONNECT"
        # 2.12 and newer say a second INFO.
        self.send(INFO)

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    def line(self) -> bytes:
        line = self.file.readline()
        assert line.endswith(b"\r\n"), line
        return line[:-2]

    def published(self) -> tuple[bytes, bytes]:
        """The next message: the line without its size, and the body."""
        verb, rest = self.line().split(b" ", 1)
        assert verb == b"PUB"
        head, size = rest.rsplit(b" ", 1)
        data = self.file.read(int(size) + 2)
        assert data.endswith(b"\r\n")
        return head, data[:-2]

    def ready(self, *subscriptions: bytes) -> None:
        """What comes before the clock starts."""
        for each in subscriptions:
            assert self.line() == b"SUB " + each
        self.pinged()

    def pinged(self) -> None:
        assert self.line() == b"PING"
        self.send(b"PONG\r\n")


def scripted(*scripts: Callable[[Peer], None]) -> Scripted[Peer]:
    return Scripted(Peer, *scripts)


def silent_publisher(peer: Peer, *, count: int) -> None:
    """Take `count` messages, and do nothing with them."""
    peer.ready()
    for _ in range(count):
        peer.published()
    peer.pinged()


def run(generator: Generator, *scripts: Callable[[Peer], None], mode: str = "nats-both", **options: Any) -> dict[str, Any]:
    """Run a load against the scripts, which must see what they expect if it ends well."""
    server = scripted(*scripts)
    try:
        result = generator.run(mode, server.address, **{"size": 16, "deadline_s": 10, **options})
    finally:
        server.acceptor.join()
        for thread in server.threads:
            thread.join()
    server.check()
    return result


def test_what_is_published_is_whole_and_numbered_by_subject(generator: Generator) -> None:
    got: list[tuple[bytes, int, int]] = []

    def script(peer: Peer) -> None:
        peer.ready()
        for _ in range(10):
            subject, data = peer.published()
            assert len(data) == 20
            assert data[12:].isalpha()
            got.append((subject, *struct.unpack_from("=QI", data)))
        peer.pinged()

    result = run(generator, script, mode="nats-pub", messages=10, topics=3, size=20)
    assert got == [(b"bench.%05d" % (index % 3), index // 3, 0) for index in range(10)]
    assert (result["messages"], result["complete"]) == (10, True)


def test_numbers_go_on_from_round_to_round_and_publishers_share(generator: Generator) -> None:
    count = 20_001
    numbers: dict[int, list[int]] = {}

    def script(peer: Peer) -> None:
        peer.ready()
        own: list[int] = []
        rounds = pongs = publisher = 0
        for line in iter(peer.file.readline, b""):
            if line == b"PING\r\n":
                rounds += 1
                # Its own answer goes behind a later round.
                peer.send(b"PING\r\nPONG\r\n" if rounds == 1 else b"PONG\r\n")
            elif line == b"PONG\r\n":
                pongs += 1
            else:
                assert line == b"PUB bench 1000\r\n"
                number, publisher = struct.unpack_from("=QI", peer.file.read(1002))
                own.append(number)
        assert (rounds > 2, pongs) == (True, 1)
        numbers[publisher] = own

    result = run(generator, script, script, mode="nats-pub", messages=count, connections=2, size=1000)
    assert numbers == {0: list(range(count // 2 + 1)), 1: list(range(count // 2))}
    assert result["messages"] == count


def test_each_subscriber_and_the_group_must_get_everything(generator: Generator) -> None:
    stream = message(0) + b"PING\r\n" + message(1) + INFO + message(2)

    def subscriber(peer: Peer) -> None:
        peer.ready(b"bench 1")
        # Operations arrive in pieces as well.
        for start in range(0, len(stream), 7):
            peer.send(stream[start : start + 7])
        assert peer.line() == b"PONG"
        peer.pinged()

    def member(peer: Peer, *, numbers: tuple[int, ...]) -> None:
        peer.ready(b"bench workers 1")
        peer.send(b"".join(message(number) for number in numbers))
        peer.pinged()

    scripts = (subscriber, subscriber, partial(member, numbers=(0, 2)), partial(member, numbers=(1,)), partial(silent_publisher, count=3))
    result = run(generator, *scripts, messages=3, subscribers=2, members=2)
    assert (result["messages"], result["received"], result["members"], result["complete"]) == (3, [3, 3, 3], [2, 1], True)


def test_subjects_have_subscriptions_of_their_own_or_one_pattern(generator: Generator) -> None:
    def subscriber(peer: Peer, *, wildcard: bool) -> None:
        peer.ready(*([b"bench.* 1"] if wildcard else [b"bench.00000 1", b"bench.00001 2"]))
        for index in range(4):
            peer.send(message(index // 2, subject=b"bench.%05d" % (index % 2), sid=1 if wildcard else 1 + index % 2))
        peer.pinged()

    for wildcard in (False, True):
        options: dict[str, Any] = {"wildcard": True} if wildcard else {}
        scripts = (partial(subscriber, wildcard=wildcard), partial(silent_publisher, count=4))
        assert run(generator, *scripts, messages=4, subscribers=1, topics=2, **options)["received"] == [4]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (message(1), "lost: number 1 of stream 0 instead of 0"),
        (message(0) + message(0), "out of order or twice: number 0 of stream 0 instead of 1"),
        (message(0) + message(1) + message(2), "number 2 of stream 0 was never sent"),
        (message(0, publisher=1), "a message of publisher 1"),
        (message(0, subject=b"bench2"), "unexpected message on bench2"),
        (message(0, subject=b"bend!"), "unexpected message on bend!"),
        (message(0, sid=2), "subject 0 came with sid 2"),
        (message(0, size=17), "a message of 17 bytes"),
        (b"MSG bench 1 16\r\n" + b"x" * 20, "no line end behind a message of 16 bytes"),
        (b"MSG bench 1 -1\r\n", "unexpected: MSG bench 1 -1"),
        (b"MSG bench 1 1234567890\r\n", "unexpected: MSG bench"),
        (b"MSG bench 1 999999999\r\n", "a message of 999999999 bytes"),
        (b"MSG bench 1\r\n", "unexpected: MSG bench 1"),
        (b"MSG bench 1 2 3 4\r\n", "unexpected: MSG bench 1 2 3 4"),
        (b"MSG \r\n", "unexpected: MSG"),
        (b"HMSG bench 1 12 12\r\nNATS/1.0\r\n\r\n\r\n", "unexpected: HMSG bench 1 12 12"),
        (b"-ERR 'Slow Consumer'\r\n", "unexpected: -ERR 'Slow Consumer'"),
        (b"PONG\r\n", "unexpected PONG"),
        (b"PING\n", "unexpected: PING"),
        (b"\r\n", "unexpected: "),
        (b"y" * 4000, "unexpected: yyy"),
        (b"", "closed the connection"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_what_may_not_come_ends_the_run(generator: Generator, said: bytes, words: str) -> None:
    def subscriber(peer: Peer) -> None:
        peer.ready(b"bench 1")
        peer.send(said)
        peer.connection.shutdown(1)
        peer.file.read()

    def publisher(peer: Peer) -> None:
        peer.ready()
        peer.file.read()

    with pytest.raises(LoadError, match=re.escape(words)):
        run(generator, subscriber, publisher, messages=2, subscribers=1)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ((0, 1, 1), (), "out of order or twice: number 1"),
        ((1, 0), (), "out of order or twice: number 0"),
        ((0, 1), (1,), "twice: number 1 of stream 0"),
    ],
)
def test_a_group_gets_nothing_twice_and_a_member_nothing_out_of_order(
    generator: Generator, first: tuple[int, ...], second: tuple[int, ...], words: str
) -> None:
    def member(peer: Peer, *, numbers: tuple[int, ...]) -> None:
        peer.ready(b"bench others 1")
        peer.send(b"".join(message(number) for number in numbers))
        peer.file.read()

    def publisher(peer: Peer) -> None:
        peer.ready()
        peer.file.read()

    with pytest.raises(LoadError, match=words):
        scripts = (partial(member, numbers=first), partial(member, numbers=second), publisher)
        run(generator, *scripts, messages=4, members=2, queue="others")


def test_a_copy_too_many_is_seen_after_the_last_message(generator: Generator) -> None:
    def subscriber(peer: Peer) -> None:
        peer.ready(b"bench 1")
        peer.send(message(0))
        assert peer.line() == b"PING"
        peer.send(message(0) + b"PONG\r\n")
        peer.file.read()

    with pytest.raises(LoadError, match="out of order or twice"):
        run(generator, subscriber, partial(silent_publisher, count=1), messages=1, subscribers=1)


def test_a_slow_subscriber_reads_when_the_others_are_through(generator: Generator) -> None:
    through = threading.Event()

    def fast(peer: Peer) -> None:
        peer.ready(b"bench 1")
        peer.send(message(0) + message(1))
        peer.pinged()
        through.set()

    def slow(peer: Peer, *, ends: bool) -> None:
        peer.ready(b"bench 1")
        peer.send(message(0))
        assert through.wait(10)
        if not ends:
            peer.send(message(1))
            peer.file.read()
            return
        # Cut off within a message.
        peer.send(message(1)[:-5])

    scripts = (fast, partial(slow, ends=True), partial(slow, ends=False), partial(silent_publisher, count=2))
    result = run(generator, *scripts, messages=2, subscribers=1, slow=2)
    assert (result["received"], result["slow_received"], result["slow_ended"]) == ([2], [1, 2], 1)


def test_a_slow_subscriber_may_not_miss_one_in_between(generator: Generator) -> None:
    def fast(peer: Peer) -> None:
        peer.ready(b"bench 1")
        peer.send(b"".join(message(number) for number in range(3)))
        peer.pinged()

    def slow(peer: Peer) -> None:
        peer.ready(b"bench 1")
        peer.send(message(0) + message(2))
        peer.file.read()

    with pytest.raises(LoadError, match="lost: number 2"):
        run(generator, fast, slow, partial(silent_publisher, count=3), messages=3, subscribers=1, slow=1)


def test_publishers_stay_within_their_lead(generator: Generator) -> None:
    size, count = 60_000, 20
    seen = threading.Semaphore(0)

    def subscriber(peer: Peer) -> None:
        peer.ready(b"bench 1")
        for number in range(count):
            assert seen.acquire(timeout=10)
            peer.send(message(number, size=size))
        peer.pinged()

    def publisher(peer: Peer) -> None:
        peer.ready()
        for taken in range(0, count, 5):
            for _ in range(5):
                peer.published()
            peer.pinged()
            if taken + 5 < count:
                peer.connection.settimeout(0.1)
                with pytest.raises(TimeoutError):
                    peer.connection.recv(1)
                peer.connection.settimeout(10)
            for _ in range(5):
                seen.release()

    run(generator, subscriber, publisher, messages=count, subscribers=1, size=size, lead_max=5)


def test_questions_are_asked_one_at_a_time(generator: Generator) -> None:
    asked: list[bytes] = []
    peers: list[Peer] = []
    done = threading.Event()

    def responder(peer: Peer) -> None:
        peer.ready(b"bench 1")
        peers.append(peer)
        assert done.wait(10)

    def requester(peer: Peer) -> None:
        peer.ready(b"_INBOX.loadgen.* 1")
        for _ in range(4):
            head, data = peer.published()
            subject, inbox = head.split()
            assert subject == b"bench"
            asked.append(inbox)
            peers[0].send(b"MSG bench 1 %b %d\r\n%b\r\n" % (inbox, len(data), data))
            answered, answer = peers[0].published()
            assert (answered, answer) == (inbox, data)
            # 20 ms on top of everything else.
            threading.Event().wait(0.02)
            peer.send(b"MSG %b 1 %d\r\n%b\r\n" % (inbox, len(answer), answer))
        done.set()

    result = run(generator, responder, requester, mode="nats-request", messages=4)
    assert asked == [b"_INBOX.loadgen.%08x" % number for number in range(4)]
    assert result["samples"] == 4
    assert 20_000 <= result["p50_us"] <= 60_000


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"MSG _INBOX.loadgen.00000001 1 16\r\n" + body(0) + b"\r\n", "unexpected message on _INBOX"),
        (b"MSG _INBOX.loadgen.00000000 1 16\r\n" + body(1) + b"\r\n", "the answer to question 1 instead of 0"),
        (b"MSG _INBOX.loadgen.00000000 1 3\r\nabc\r\n", "an answer of 3 bytes"),
        (b"HMSG _INBOX.loadgen.00000000 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n", "unexpected: HMSG _INBOX"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_a_wrong_answer_ends_the_run(generator: Generator, answer: bytes, words: str) -> None:
    def responder(peer: Peer) -> None:
        peer.ready(b"bench 1")
        peer.file.read()

    def requester(peer: Peer) -> None:
        peer.ready(b"_INBOX.loadgen.* 1")
        peer.published()
        peer.send(answer)
        peer.file.read()

    with pytest.raises(LoadError, match=words):
        run(generator, responder, requester, mode="nats-request", messages=4)


def test_idle_connections_say_when_they_are_there_and_answer_pings(generator: Generator) -> None:
    def script(peer: Peer, *, number: int) -> None:
        peer.ready(b"bench.%d.0 1" % number, b"bench.%d.1 2" % number)
        peer.send(b"PING\r\n")
        assert peer.line() == b"PONG"
        peer.file.read()

    server = scripted(partial(script, number=0), partial(script, number=1))
    load = generator.start("nats-idle", server.address, connections=2, subscriptions=2, deadline_s=0.5)
    assert load.stdout is not None
    assert json.loads(load.stdout.readline()) == {"ready": True, "connections": 2}
    assert generator.finish(load)["complete"]
    server.check()


def test_those_who_receive_may_have_another_server_and_a_token_is_told(generator: Generator) -> None:
    def subscriber(peer: Peer) -> None:
        assert json.loads(peer.wishes)["auth_token"] == "s3cret"
        peer.ready(b"bench 1")
        peer.send(message(0))
        peer.pinged()

    other = scripted(subscriber)
    options: dict[str, Any] = {"messages": 1, "subscribers": 1, "other_address": other.address, "auth": "s3cret", "settle_ms": 10}
    assert run(generator, partial(silent_publisher, count=1), **options)["received"] == [1]
    other.check()


def test_the_deadline_ends_a_run_that_hangs(generator: Generator) -> None:
    def subscriber(peer: Peer) -> None:
        peer.ready(b"bench 1")
        peer.send(message(0))
        peer.file.read()

    with pytest.raises(LoadError, match=r"deadline came first \(after 1 messages\)"):
        run(generator, subscriber, partial(silent_publisher, count=2), messages=2, subscribers=1, deadline_s=0.5)


def test_wrong_use_is_explained(generator: Generator) -> None:
    for options in (
        {"size": 11},
        {"messages": 1, "connections": 2},
        {"subscribers": 0},
        {"auth": 'a"b'},
        {"topic": "a b"},
        {"nonsense": 1},
    ):
        with pytest.raises(LoadError):
            generator.run("nats-both", "127.0.0.1:1", deadline_s=1, **{"subscribers": 1, **options})
    for mode, more in (("nats-pub", {"subscribers": 1}), ("nats-request", {"topics": 2}), ("nats-pub", {"lead_max": 1})):
        with pytest.raises(LoadError):
            generator.run(mode, "127.0.0.1:1", deadline_s=1, **more)
    told = subprocess.run([str(generator.program), "--help"], capture_output=True, text=True, check=True).stdout
    assert "nats-both" in told


def test_what_others_publish_is_only_counted(generator: Generator) -> None:
    def script(peer: Peer) -> None:
        peer.ready(b"bench 1")
        for number in (7, 7, 3):
            peer.send(message(number))
        peer.pinged()

    result = run(generator, script, mode="nats-sub", messages=3, subscribers=1, ready=True)
    assert (result["messages"], result["received"], result["complete"]) == (3, [3], True)
    assert result["ended_s"] > result["began_s"]


def test_who_only_listens_is_no_member(generator: Generator) -> None:
    for options in ({}, {"subscribers": 1, "members": 1}, {"subscribers": 1, "slow": 1}):
        with pytest.raises(LoadError, match="--subscribers"):
            generator.run("nats-sub", "127.0.0.1:1", messages=3, size=16, **options)
