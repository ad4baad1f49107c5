"""The shell over real sockets of this machine: connections, timers, threads, signals."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from polymq.config_values import UnixAddress
from polymq.gateways.effects import Send, SetTimer, TimerName
from polymq.server.network import SocketListener
from polymq.server.pump import Pump
from polymq.server.settings import ShellSettings
from polymq.server.shell import ROOM_KEPT, ROOM_TO_REFUSE, Poller, Shell, WakeUp
from polymq.server.spin import SpinSettings
from tests.unit.server.fakes import Broker, Gateway, Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path


class RealClock:
    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def wall_ns(self) -> int:
        return time.time_ns()


class Running:
    """A shell with an echo on a unix socket."""

    def __init__(self, folder: Path, settings: ShellSettings | None = None) -> None:
        self.path = str(folder / "socket")
        self.broker = Broker()
        self.store = Store(self.broker.calls)
        self.poller = Poller()
        self.wake_up = WakeUp()
        self.gateways: list[Gateway] = []
        self.pump = Pump(self.broker, self.store, RealClock(), self.poller)  # type: ignore[arg-type]  # deliveries are simpler here
        self.shell = Shell(self.pump, self.poller, self.wake_up, settings)
        self.shell.listen(SocketListener(UnixAddress(self.path), backlog=10), self._gateway)

    def _gateway(self, _peer: object) -> Gateway:
        gateway = Gateway()
        gateway.on_line = lambda line, effects: effects.append(Send(line + b"\n"))
        self.gateways.append(gateway)
        return gateway

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(self.path)

    def run(self, story: Callable[[], Awaitable[None]], *, stop: bool = True) -> None:
        async def main() -> None:
            shell = asyncio.create_task(self.shell.run())
            await asyncio.sleep(0)  # let it begin
            await story()
            if stop:
                self.shell.stop()
            await shell

        async def bounded() -> None:
            await asyncio.wait_for(main(), 20)

        try:
            asyncio.run(bounded())
        finally:
            self.pump.abandon()
            self.poller.close()
            self.wake_up.close()


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: bytes) -> bytes:
    writer.write(line + b"\n")
    return await reader.readline()


@pytest.mark.parametrize("spin_ns", [0, 1_000_000])
def test_many_connections_are_served(tmp_path: Path, spin_ns: int) -> None:
    running = Running(tmp_path, ShellSettings(spin=SpinSettings(spin_ns=spin_ns)))

    async def story() -> None:
        pairs = [await running.connect() for _ in range(20)]
        for count in range(20):
            lines = [b"%d" % (count * 100 + index) for index in range(len(pairs))]
            answers = await asyncio.gather(*(ask(*pair, line) for pair, line in zip(pairs, lines, strict=True)))
            assert answers == [line + b"\n" for line in lines]
        for _, writer in pairs:
            writer.close()

    running.run(story)
    assert all(gateway.calls[-1] == "ended" for gateway in running.gateways)


def test_much_output_is_written_as_the_peer_reads(tmp_path: Path) -> None:
    running = Running(tmp_path)
    line = b"x" * 3_000_000

    async def story() -> None:
        reader, writer = await asyncio.open_unix_connection(running.path, limit=4_000_000)
        assert await ask(reader, writer, line) == line + b"\n"
        writer.close()

    running.run(story)


def test_timers_come_without_traffic(tmp_path: Path) -> None:
    running = Running(tmp_path)

    async def story() -> None:
        reader, writer = await running.connect()
        assert await ask(reader, writer, b"hello") == b"hello\n"
        [gateway] = running.gateways
        gateway.on_line = lambda _line, effects: effects.append(SetTimer(TimerName.FLUSH, time.monotonic_ns() + 3_000_000))
        gateway.on["timer flush"] = lambda effects: effects.append(Send(b"time\n"))
        assert await ask(reader, writer, b"wake me") == b"time\n"
        writer.close()

    running.run(story)


def test_the_broker_is_called_at_its_time_and_at_once(tmp_path: Path) -> None:
    running = Running(tmp_path)
    called = asyncio.Event()
    running.broker.due = time.monotonic_ns() + 2_000_000
    ticks: list[int] = []

    def tick() -> None:
        now_ns = time.monotonic_ns()
        if running.broker.due is not None and now_ns >= running.broker.due:
            ticks.append(now_ns)
            running.broker.due = None if len(ticks) == 5 else now_ns  # it wants more turns at once, four times
            if running.broker.due is None:
                called.set()

    running.broker.on_tick = tick

    async def story() -> None:
        await called.wait()

    running.run(story)
    assert len(ticks) == 5


def test_a_thread_can_ask_for_a_turn(tmp_path: Path) -> None:
    running = Running(tmp_path)
    polled = asyncio.Event()

    async def story() -> None:
        running.store.on_commit = polled.set
        thread = threading.Thread(target=running.wake_up)
        thread.start()
        await polled.wait()
        thread.join()

    running.run(story)


def test_connections_beyond_the_limit_wait(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    running = Running(tmp_path, ShellSettings(connections_max=2))

    async def story() -> None:
        first, second, third = [await running.connect() for _ in range(3)]
        assert await ask(*first, b"1") == b"1\n"
        assert await ask(*second, b"2") == b"2\n"
        answer = asyncio.create_task(ask(*third, b"3"))
        assert await ask(*first, b"4") == b"4\n"
        assert not answer.done()
        first[1].close()
        assert await answer == b"3\n"
        second[1].close()
        third[1].close()

    running.run(story)
    assert "have to wait" in caplog.text


def test_some_listeners_have_room_beyond_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("polymq.server.shell._ACCEPT_PAUSE_S", 0.001)
    running = Running(tmp_path, ShellSettings(connections_max=1, connections_spare=2))
    factory = running.shell._doors[0].factory
    for name, room in (("clients", ROOM_TO_REFUSE), ("pages", ROOM_KEPT)):
        running.shell.listen(SocketListener(UnixAddress(str(tmp_path / name)), backlog=10), factory, room=room)

    async def story() -> None:
        served = [await running.connect()]
        waiting = []
        assert await ask(*served[0], b"x") == b"x\n"
        for path, more in ((running.path, 0), (str(tmp_path / "clients"), 2), (str(tmp_path / "pages"), 2)):
            for _ in range(more):
                served.append(await asyncio.open_unix_connection(path))
                assert await ask(*served[-1], b"x") == b"x\n"
            waiting.append(pair := await asyncio.open_unix_connection(path))
            pair[1].write(b"y\n")
        for _ in range(20):
            assert await ask(*served[0], b"x") == b"x\n"
        assert len(running.pump.connections) == 5, "one, two more, two more again"
        for _, writer in served:
            writer.close()
        for reader, writer in reversed(waiting):
            assert await reader.readline() == b"y\n"
            writer.close()

    running.run(story)
    assert len([record for record in caplog.records if "as many as server.connections_max allows" in record.getMessage()]) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_in_an_orderly_way(tmp_path: Path, number: int) -> None:
    running = Running(tmp_path)

    async def story() -> None:
        reader, writer = await running.connect()
        assert await ask(reader, writer, b"hello") == b"hello\n"
        running.gateways[0].on["stopping"] = lambda effects: effects.append(Send(b"bye\n"))
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)  # process groups and parents often send it twice
        assert await reader.readline() == b"bye\n"
        assert await reader.read() == b""
        with pytest.raises(OSError):
            await running.connect()
        writer.close()

    running.run(story, stop=False)
    assert running.gateways[0].calls[-1] == "ended"


def test_a_second_signal_stops_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = Running(tmp_path)
    exits: list[int] = []
    monkeypatch.setattr(os, "_exit", exits.append)
    monkeypatch.setattr("polymq.server.shell._SAME_SIGNAL_NS", 0)

    async def story() -> None:
        running.shell._signalled(signal.SIGTERM)
        running.shell._signalled(signal.SIGTERM)

    running.run(story, stop=False)
    assert exits == [128 + signal.SIGTERM]


def test_patience_with_connections_that_do_not_end_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = Running(tmp_path, ShellSettings(stop_timeout_ns=20_000_000))

    async def story() -> None:
        reader, writer = await running.connect()
        assert await ask(reader, writer, b"hello") == b"hello\n"
        monkeypatch.setattr(running.gateways[0], "stopping", lambda _effects: None)
        running.shell.stop()
        assert await reader.read() == b""
        writer.close()

    running.run(story, stop=False)


def test_a_hung_up_connection_that_is_not_read_does_not_keep_the_loop_busy(tmp_path: Path) -> None:
    running = Running(tmp_path)

    async def story() -> None:
        reader, writer = await running.connect()
        assert await ask(reader, writer, b"hello") == b"hello\n"
        [connection] = running.pump.connections
        connection.paused = True
        running.pump._follow(connection)
        writer.close()
        await writer.wait_closed()
        turns = running.broker.calls.count("tick")
        for _ in range(50):
            await asyncio.sleep(0)
        assert running.broker.calls.count("tick") - turns < 5

    running.run(story)


def test_a_bug_in_a_turn_ends_the_run(tmp_path: Path) -> None:
    running = Running(tmp_path)

    def bug() -> None:
        raise ZeroDivisionError

    async def story() -> None:
        _, writer = await running.connect()
        running.broker.on_tick = bug
        writer.write(b"hello\n")
        writer.close()

    with pytest.raises(ZeroDivisionError):
        running.run(story, stop=False)


def test_a_connection_that_no_gateway_can_be_made_for_is_closed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    running = Running(tmp_path)

    def bug(_peer: object) -> Gateway:
        raise ZeroDivisionError

    async def story() -> None:
        running.shell._doors[0].factory = bug
        reader, writer = await running.connect()
        assert await reader.read() == b""
        writer.close()

    running.run(story)
    assert "could not be taken" in caplog.text


def test_accepting_pauses_when_there_are_no_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("polymq.server.shell._ACCEPT_PAUSE_S", 0.001)
    running = Running(tmp_path)
    listener = running.shell._doors[0].listener
    accept, errors = listener.accept, [OSError(errno.EMFILE, "too many open files"), OSError(errno.ECONNABORTED, "gone")]

    def failing() -> object:
        if errors:
            raise errors.pop(0)
        return accept()

    monkeypatch.setattr(listener, "accept", failing)

    async def story() -> None:
        reader, writer = await running.connect()
        assert await ask(reader, writer, b"hello") == b"hello\n"
        writer.close()

    running.run(story)
    assert "too many open files" in caplog.text


def test_a_signal_is_heeded_between_turns(tmp_path: Path) -> None:
    running = Running(tmp_path)
    heard: list[str] = []

    async def story() -> None:
        running.shell.heed(signal.SIGUSR2, lambda: heard.append("signal"))
        reader, writer = await running.connect()
        os.kill(os.getpid(), signal.SIGUSR2)
        assert await ask(reader, writer, b"x") == b"x\n"
        asyncio.get_running_loop().remove_signal_handler(signal.SIGUSR2)
        writer.close()

    running.run(story)
    assert heard == ["signal"]


def test_one_listener_is_closed_and_the_other_goes_on(tmp_path: Path) -> None:
    running = Running(tmp_path)
    other = SocketListener(UnixAddress(str(tmp_path / "other")), backlog=10)
    running.shell.listen(other, running._gateway)

    async def story() -> None:
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "other"))
        running.shell.close(other)
        running.shell.close(other)
        with pytest.raises(OSError, match=r"."):
            await asyncio.open_unix_connection(str(tmp_path / "other"))
        assert await ask(reader, writer, b"still here") == b"still here\n"
        writer.close()
        reader, writer = await running.connect()
        assert await ask(reader, writer, b"x") == b"x\n"
        writer.close()
        running.shell.stop_soon()

    running.run(story, stop=False)
