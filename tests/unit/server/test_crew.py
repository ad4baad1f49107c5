from __future__ import annotations

import socket
import threading

import pytest

from polymq.server.connection import ConnectionState
from polymq.server.crew import CREW_SIZE_BYTES_MIN, Crew, Job, send_views
from tests.unit.server.fakes import Stream, World


class Pair(Stream):
    """Its send ends only when that of the other one has begun: two of them need two threads."""

    def __init__(self, barrier: threading.Barrier) -> None:
        super().__init__()
        self.barrier = barrier

    def send(self, view: memoryview) -> int:
        self.barrier.wait(timeout=30)
        return super().send(view)


class Failing(Stream):
    def send(self, view: memoryview) -> int:
        raise ConnectionResetError(f"{len(view)} bytes for nobody")


def test_two_threads_send_at_once() -> None:
    crew, barrier = Crew(), threading.Barrier(2)
    for _ in range(3):
        streams = [Pair(barrier) for _ in range(6)]
        jobs = [Job(stream, [memoryview(b"%d" % number)]) for number, stream in enumerate(streams)]
        crew.run(jobs)
        assert [bytes(stream.outgoing) for stream in streams] == [b"0", b"1", b"2", b"3", b"4", b"5"]
        assert [job.result() for job in jobs] == [1] * 6


def test_what_goes_wrong_is_for_who_asks() -> None:
    jobs = [Job(stream, [memoryview(b"abc")]) for stream in (Failing(), Stream(), Failing())]
    Crew().run(jobs)
    assert jobs[1].result() == 3
    for job in (jobs[0], jobs[2]):
        with pytest.raises(ConnectionResetError, match="3 bytes"):
            job.result()


class Broken(Stream):
    def send(self, view: memoryview) -> int:
        raise ValueError(len(view))


def test_a_bug_in_sending_costs_one_connection_and_holds_nobody_up() -> None:
    crew = Crew()
    for _ in range(3):
        jobs = [Job(stream, [memoryview(b"abc")]) for stream in (Broken(), Stream(), Broken(), Stream())]
        crew.run(jobs)
        assert [job.error is None for job in jobs] == [False, True, False, True]


def test_a_bug_in_sending_ends_that_connection_alone(caplog: pytest.LogCaptureFixture) -> None:
    world = World(crew=Crew())
    ends = [world.connect() for _ in range(3)]
    ends[1][0].send = Broken().send  # type: ignore[method-assign]
    for _, gateway, _ in ends:
        world.deliver(gateway, b"x" * CREW_SIZE_BYTES_MIN)
    world.turn()
    assert [len(stream.outgoing) for stream, _, _ in ends] == [CREW_SIZE_BYTES_MIN, 0, CREW_SIZE_BYTES_MIN]
    assert [connection.state is ConnectionState.OPEN for _, _, connection in ends] == [True, False, True]
    assert "ValueError" in caplog.text


def test_pieces_are_sent_until_the_peer_takes_no_more() -> None:
    stream = Stream()
    pieces = [memoryview(b"abc"), memoryview(b"def"), memoryview(b"ghi")]
    stream.room = 5
    assert send_views(stream, pieces) == 5
    assert stream.outgoing == b"abcde"
    stream.room = 3
    assert send_views(stream, pieces) == 3
    with pytest.raises(BlockingIOError):
        send_views(stream, pieces)


class Noting(Crew):
    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[list[int]] = []

    def run(self, jobs: list[Job]) -> None:  # type: ignore[override]  # of a sequence, the pump gives a list
        self.sizes.append([sum(map(len, job.views)) for job in jobs])
        super().run(jobs)


def test_the_pump_sends_what_is_large_and_for_several_at_once() -> None:
    crew = Noting()
    world = World(crew=crew)
    ends = [world.connect() for _ in range(4)]
    large = b"x" * CREW_SIZE_BYTES_MIN
    for (_, gateway, _), data in zip(ends, (large, large, large, b"small"), strict=True):
        world.deliver(gateway, data)
    ends[1][0].room = 10
    ends[2][0].room = 0
    world.turn()
    assert crew.sizes == [[CREW_SIZE_BYTES_MIN] * 3]
    assert [len(stream.outgoing) for stream, _, _ in ends] == [CREW_SIZE_BYTES_MIN, 10, 0, 5]
    assert [connection.unsent for _, _, connection in ends] == [False, True, True, False]
    for stream, _, connection in ends:
        stream.room = 1 << 40
        world.pump.writable(connection)
    assert [bytes(stream.outgoing) for stream, _, _ in ends] == [large, large, large, b"small"]


def test_one_alone_is_sent_as_ever() -> None:
    crew = Noting()
    world = World(crew=crew)
    ends = [world.connect() for _ in range(2)]
    for (_, gateway, _), data in zip(ends, (b"x" * CREW_SIZE_BYTES_MIN, b"small"), strict=True):
        world.deliver(gateway, data)
    world.turn()
    assert crew.sizes == []
    assert [len(stream.outgoing) for stream, _, _ in ends] == [CREW_SIZE_BYTES_MIN, 5]


def test_real_sockets() -> None:
    pairs = [socket.socketpair() for _ in range(8)]
    for ours, _ in pairs:
        ours.setblocking(False)
    jobs = [Job(ours, [memoryview(b"%d" % number * 1000)]) for number, (ours, _) in enumerate(pairs)]  # type: ignore[arg-type]  # only send() is used
    Crew().run(jobs)
    for number, (ours, theirs) in enumerate(pairs):
        assert theirs.recv(2000) == b"%d" % number * 1000
        ours.close()
        theirs.close()
