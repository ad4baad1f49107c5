"""The shell: wakes the pump when the operating system has something for it. The only asyncio on the server's side.

All descriptors of the broker are in one epoll of our own, and asyncio watches that one. So a turn takes everything
that is readable with one system call, whatever the number of connections; and after a turn the shell can look again
without going through the event loop, which is what makes waiting awake (`spin.py`) cheap. Measured with an echo of
200 bytes on two shared cores: 60 to 77 µs a round trip asleep, with this or with one reader per connection in the
loop; 20 to 23 µs awake. Between two looks the processor is offered to others: without that the spinning process at
times keeps the very client from running that it waits for (p99 126 µs instead of 43).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import select
import signal
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from polymq.server.network import SocketStream
from polymq.server.settings import ShellSettings
from polymq.server.spin import SpinPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.gateways.contract import GatewayFactory
    from polymq.server.connection import Connection
    from polymq.server.network import SocketListener
    from polymq.server.pump import Pump

__all__ = ["ROOM_KEPT", "ROOM_TO_REFUSE", "Poller", "Shell", "WakeUp"]

_READABLE: Final = select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR
_WRITABLE: Final = select.EPOLLOUT | select.EPOLLHUP | select.EPOLLERR
_EVENTS_PER_POLL: Final = 1024
_ACCEPTS_PER_EVENT: Final = 64
# Looks between two offers of the processor to others while spinning: an offer costs as much as a look.
_LOOKS_PER_OFFER: Final = 4
# A listener's `room`: steps of `connections_spare` beyond the limit.
ROOM_TO_REFUSE: Final = 1
ROOM_KEPT: Final = 2
_TELL_FULL_NS: Final = 60_000_000_000
# Out of descriptors: try again when some may have become free.
_ACCEPT_PAUSE_S: Final = 0.1
# The event loop's timers have a resolution of a millisecond; anything shorter would be a busy loop.
_TIMER_DELAY_S_MIN: Final = 0.001
# One request to stop may come as two signals: to the process group, and from the parent that got it as well.
_SAME_SIGNAL_NS: Final = 500_000_000
_NS_PER_S: Final = 1_000_000_000

log = logging.getLogger(__name__)


class Poller:
    """One epoll, and what is behind each of its descriptors. The pump's `Watcher`."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self.connections: dict[int, Connection] = {}
        self.callbacks: dict[int, Callable[[], None]] = {}
        self.poll = self._epoll.poll

    def fileno(self) -> int:
        """Return the descriptor that is readable when anything behind it is ready."""
        return self._epoll.fileno()

    def watch(self, connection: Connection, *, readable: bool, writable: bool) -> None:
        """Watch a connection of the pump."""
        stream = connection.stream
        assert isinstance(stream, SocketStream)
        descriptor = stream.fileno()
        mask = (select.EPOLLIN if readable else 0) | (select.EPOLLOUT if writable else 0)
        if not mask:  # not a mask of 0: hang-ups are reported whatever the mask, and would be without end
            if self.connections.pop(descriptor, None) is not None:
                self._epoll.unregister(descriptor)
        elif descriptor in self.connections:
            self._epoll.modify(descriptor, mask)
        else:
            self._epoll.register(descriptor, mask)
            self.connections[descriptor] = connection

    def add(self, descriptor: int, callback: Callable[[], None], *, writable: bool = False) -> None:
        """Call `callback` whenever `descriptor` is readable, or instead `writable`, as it is when it is connected."""
        self._epoll.register(descriptor, select.EPOLLOUT if writable else select.EPOLLIN)
        self.callbacks[descriptor] = callback

    def remove(self, descriptor: int) -> None:
        """Take a callback away."""
        if self.callbacks.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def close(self) -> None:
        """Give the descriptor back."""
        self._epoll.close()


class WakeUp:
    """What a worker's thread calls to have a turn taken: its results are handed out by the store's poll."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """Return the descriptor that is readable after a call."""
        return self._descriptor

    def __call__(self) -> None:
        """Wake the shell up. From any thread."""
        os.eventfd_write(self._descriptor, 1)

    def clear(self) -> None:
        """Be awake: forget the calls so far."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._descriptor)

    def close(self) -> None:
        """Give the descriptor back; nobody calls any more."""
        os.close(self._descriptor)


@dataclass(slots=True, eq=False)
class _Door:
    """A listener, who handles what comes in there, and whether that is wanted at the moment."""

    listener: SocketListener
    factory: GatewayFactory
    connections_max: int
    watched: bool = False


class Shell:
    """Runs a pump until it is told to stop."""

    def __init__(self, pump: Pump, poller: Poller, wake_up: WakeUp, settings: ShellSettings | None = None) -> None:
        self._pump = pump
        self._poller = poller
        self._wake_up = wake_up
        self._settings = settings or ShellSettings()
        self._policy = SpinPolicy(self._settings.spin)
        self._doors: list[_Door] = []
        self._told_full_ns: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ns = 0
        self._turn_ended_ns = 0
        self._spun = False
        self._failure: BaseException | None = None
        self._signalled_ns = 0
        self._stop_at_ns: int | None = None
        self._stopped: asyncio.Event | None = None

    def listen(self, listener: SocketListener, factory: GatewayFactory, *, room: int = 0) -> None:
        """Have connections that come in at `listener` handled by gateways that `factory` makes. Before `run`.

        `room`: beyond the limit it takes more, to refuse them in words (ROOM_TO_REFUSE), or because whoever comes there
        must not be kept out by clients (ROOM_KEPT).
        """
        settings = self._settings
        self._doors.append(_Door(listener, factory, settings.connections_max + room * settings.connections_spare))

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT has been dealt with; the caller stops broker and store.

        An exception in a turn is a bug of ours, and nobody knows how far the turn came: it is raised here, at once.
        """
        self._loop = loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._fail)
        self._stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        self._poller.add(self._wake_up.fileno(), self._wake_up.clear)
        self._accept_again()
        loop.add_reader(self._poller.fileno(), self._wake)
        self._turn()
        self._sleep()
        try:
            await self._stopped.wait()
        finally:
            loop.remove_reader(self._poller.fileno())
            if self._timer is not None:
                self._timer.cancel()
            self._stop_accepting()
            self._poller.remove(self._wake_up.fileno())
        if self._failure is not None:
            raise self._failure

    def heed_signals(self) -> None:
        """Stop in order on SIGTERM and SIGINT from here on: to be called, in the loop, before anybody can connect."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)

    def heed(self, number: signal.Signals, function: Callable[[], None]) -> None:
        """Call a function on a signal, between two turns. To be called in the loop."""

        def signalled() -> None:
            function()
            self._turn()
            self._sleep()

        asyncio.get_running_loop().add_signal_handler(number, signalled)

    def close(self, listener: SocketListener) -> None:
        """Take no more connections at one listener; the others go on."""
        for door in self._doors:
            if door.listener is listener:
                self._stop_watching(door)
                listener.close()
                self._doors.remove(door)
                return

    def stop_soon(self) -> None:
        """Stop, but not in the middle of a turn."""
        asyncio.get_running_loop().call_soon(self.stop)

    def stop(self) -> None:
        """Take no more connections, ask those that there are to end; `run` returns when they have."""
        if self._stop_at_ns is not None:
            return
        self._stop_at_ns = time.monotonic_ns() + self._settings.stop_timeout_ns
        self._stop_accepting()
        self._pump.stop()
        self._turn()
        self._sleep()

    def _fail(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        assert self._stopped is not None
        self._failure = context.get("exception") or RuntimeError(context["message"])
        self._stopped.set()

    def _signalled(self, number: int) -> None:
        if self._stop_at_ns is not None:
            if time.monotonic_ns() - self._signalled_ns < _SAME_SIGNAL_NS:
                return
            log.warning("second signal: stopping at once")
            os._exit(128 + number)
        self._signalled_ns = time.monotonic_ns()
        log.info("signal %d: stopping", number)
        self.stop()

    # Turns

    def _wake(self) -> None:
        """Something is ready: take turns until nothing is, but let the event loop have its share."""
        now_ns = time.monotonic_ns()
        self._policy.observe(now_ns - self._turn_ended_ns, spun=self._spun, slept=True)
        busy_until_ns = now_ns + self._settings.busy_ns
        poll = self._poller.poll
        events = poll(0, _EVENTS_PER_POLL)
        while events or self._overdue():
            self._handle(events)
            self._turn()
            if self._turn_ended_ns > busy_until_ns:
                break
            events = poll(0, _EVENTS_PER_POLL) or self._spin()
        self._sleep()

    def _handle(self, events: list[tuple[int, int]]) -> None:
        connections, pump = self._poller.connections, self._pump
        for descriptor, mask in events:
            connection = connections.get(descriptor)
            if connection is None:
                callback = self._poller.callbacks.get(descriptor)
                if callback is not None:  # else it was closed a moment ago
                    callback()
                continue
            readable, writable = connection.watched
            if readable and mask & _READABLE:
                pump.readable(connection)
            if writable and mask & _WRITABLE:
                pump.writable(connection)

    def _turn(self) -> None:
        self._pump.end_turn()
        self._turn_ended_ns = time.monotonic_ns()

    def _overdue(self) -> bool:
        due_ns = self._pump.due_ns()
        return due_ns is not None and due_ns <= time.monotonic_ns()

    def _spin(self) -> list[tuple[int, int]]:
        """Wait awake for the next input, if that has paid lately."""
        budget_ns = self._policy.budget_ns()
        self._spun = budget_ns > 0
        if not budget_ns or self._overdue():
            return []
        poll, now, offer = self._poller.poll, time.monotonic_ns, os.sched_yield
        ended_ns = self._turn_ended_ns
        until_ns = ended_ns + budget_ns
        looks = 0
        while (now_ns := now()) < until_ns:
            looks += 1
            if looks % _LOOKS_PER_OFFER == 0:
                offer()
            events = poll(0, _EVENTS_PER_POLL)
            if events:
                self._policy.observe(now_ns - ended_ns, spun=True, slept=False)
                return events
        return []

    # Time

    def _sleep(self) -> None:
        """Have the event loop call again when something is due, or when something is ready."""
        assert self._loop is not None
        assert self._stopped is not None
        due_ns = self._pump.due_ns()
        if self._stop_at_ns is not None:
            if not self._pump.connections:
                self._stopped.set()
                return
            due_ns = self._stop_at_ns if due_ns is None else min(due_ns, self._stop_at_ns)
        if due_ns is None or (self._timer is not None and self._timer_due_ns <= due_ns):
            return  # a timer that comes too early finds that out and sets another
        if self._timer is not None:
            self._timer.cancel()
        delay_s = (due_ns - time.monotonic_ns()) / _NS_PER_S
        self._timer_due_ns = due_ns
        self._timer = self._loop.call_later(max(delay_s, _TIMER_DELAY_S_MIN) if delay_s > 0 else 0, self._time)

    def _time(self) -> None:
        self._timer = None
        if self._stop_at_ns is not None and time.monotonic_ns() >= self._stop_at_ns:
            self._pump.abandon()
        self._turn()
        self._sleep()

    # Listeners

    def _accept(self, door: _Door) -> None:
        for _ in range(_ACCEPTS_PER_EVENT):
            count = len(self._pump.connections)
            if count >= self._settings.connections_max:
                self._tell_full()
                if count >= door.connections_max:
                    self._pause_accepting(door)
                    return
            try:
                stream, peer = door.listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    log.warning("cannot accept connections at the moment: %s", error.strerror)
                    self._pause_accepting(door)
                    return
                continue  # that one connection was lost before it was taken
            try:
                gateway = door.factory(peer)
            except Exception:
                log.exception("%s: a connection could not be taken", peer)
                stream.close()
            else:
                self._pump.open(stream, gateway, peer)

    def _tell_full(self) -> None:
        """Have it logged that there are too many, but not all the time that it lasts."""
        now_ns = time.monotonic_ns()
        if self._told_full_ns is None or now_ns - self._told_full_ns >= _TELL_FULL_NS:
            self._told_full_ns = now_ns
            text = "%d connections, as many as server.connections_max allows: more are refused (NATS clients) or have to wait (all others)"
            log.warning(text, self._settings.connections_max)

    def _pause_accepting(self, door: _Door) -> None:
        assert self._loop is not None
        self._stop_watching(door)
        self._loop.call_later(_ACCEPT_PAUSE_S, self._accept_again)

    def _accept_again(self) -> None:
        if self._stop_at_ns is not None:
            return
        for door in self._doors:
            if not door.watched:
                door.watched = True
                self._poller.add(door.listener.fileno(), partial(self._accept, door))

    def _stop_watching(self, door: _Door) -> None:
        if door.watched:
            door.watched = False
            self._poller.remove(door.listener.fileno())

    def _stop_accepting(self) -> None:
        for door in self._doors:
            self._stop_watching(door)
            door.listener.close()
        self._doors.clear()
