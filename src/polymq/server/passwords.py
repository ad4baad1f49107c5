"""Passwords that are hashed slowly, looked at without holding a turn: who carries out a `PasswordCheck`.

bcrypt takes 50 to 300 ms, which is what it is for; it lets go of the interpreter meanwhile. Each core has a thread, which runs
when nothing else has to, so that somebody who guesses costs the others nothing; and addresses take turns, so that he waits
for himself. Threads are daemons, so that the process can end.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

import bcrypt

from polymq.gateways.login import PasswordCheck
from polymq.limits import PASSWORD_THREADS_MAX, PASSWORDS_WAITING_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.gateways.contract import Asked
    from polymq.server.ports import Alarms, Outside
    from polymq.server.shell import Poller, WakeUp
    from polymq.server.timers import Alarm

__all__ = ["PasswordOutside", "is_right"]

_AT_ONCE: Final = 0  # a due time that is always past
# bcrypt takes no more of a password; Go's overlooks the rest, and so do we.
_PASSWORD_SIZE_BYTES_MAX: Final = 72
_NICENESS: Final = 10
# Of an IPv6 address this much is somebody's own network.
_NETWORK_BITS: Final = 64


def is_right(check: PasswordCheck) -> bool:
    """Say whether this is the password. What is no hash is nobody's."""
    try:
        return bcrypt.checkpw(check.password[:_PASSWORD_SIZE_BYTES_MAX], check.password_hash)
    except ValueError:
        return False


class _Queue:
    """What is to be looked at, by the address that asked first: addresses take turns. Shared by the loop and the threads."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.closed = False
        self._by_origin: dict[str, deque[PasswordCheck]] = {}

    def put(self, check: PasswordCheck) -> None:
        """Line up."""
        with self.changed:
            self._by_origin.setdefault(_origin(check.remote_host), deque()).append(check)
            self.changed.notify()

    def take(self) -> PasswordCheck | None:
        """Wait for the next one; None: it is over."""
        with self.changed:
            while not self._by_origin:
                if self.closed:
                    return None
                self.changed.wait()
            origin = next(iter(self._by_origin))
            waiting = self._by_origin.pop(origin)
            check = waiting.popleft()
            if waiting:
                self._by_origin[origin] = waiting  # behind all others
            return check

    def take_back(self, remote_host: str) -> PasswordCheck | None:
        """Take the last one of the address that has most, if that is more than this address has, for it to have room."""
        with self.changed:
            if not self._by_origin:
                return None
            origin = max(self._by_origin, key=lambda each: len(self._by_origin[each]))
            waiting = self._by_origin[origin]
            if len(waiting) <= len(self._by_origin.get(_origin(remote_host), ())) + 1:
                return None
            return waiting.pop()

    def close(self) -> None:
        """Have nothing taken any more."""
        with self.changed:
            self.closed = True
            self._by_origin.clear()
            self.changed.notify_all()


def _origin(host: str) -> str:
    """Name whose turn it is: an address, or the network of one of IPv6."""
    if ":" not in host:
        return host
    try:
        address = int(ipaddress.IPv6Address(host.partition("%")[0]))
    except ValueError:
        return host
    return f"{address >> (128 - _NETWORK_BITS):x}/{_NETWORK_BITS}"


def _threads_max() -> int:
    """Say how many threads there are to be: as many as cores, but two, so that one slow hash is not everything."""
    return min(max(len(os.sched_getaffinity(0)), 2), PASSWORD_THREADS_MAX)


class _Asking:
    """Somebody who has asked. The `Asked` of who asked."""

    __slots__ = ("alarm", "answered")

    def __init__(self, answered: Callable[[object], None]) -> None:
        self.answered: Callable[[object], None] | None = answered
        self.alarm: Alarm | None = None

    def cancel(self) -> None:
        """Want no answer any more. What has begun runs to its end, for nothing."""
        self.answered = None
        if self.alarm is not None:
            self.alarm.cancel()


class PasswordOutside:
    """The `Outside` port for passwords; it passes on what is no `PasswordCheck`.

    Who asks what somebody else is asking already has the same answer. Limits: PASSWORDS_WAITING_MAX different questions;
    then the last one of the address that asks most is told that there is no answer, or who has come.
    """

    def __init__(
        self, others: Outside, alarms: Alarms, poller: Poller, wake_up: WakeUp, *, look: Callable[[PasswordCheck], bool] = is_right
    ) -> None:
        self._others = others
        self._alarms = alarms
        self._poller = poller
        self._wake_up = wake_up
        self._look = look
        self._waiting: dict[PasswordCheck, list[_Asking]] = {}
        self._queue = _Queue()
        self._threads_max = _threads_max()
        # deque.append and popleft are atomic: this and the queue are all that the threads share with the loop.
        self._ended: deque[tuple[PasswordCheck, bool | None]] = deque()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        poller.add(wake_up.fileno(), self.run_completions)

    def ask(self, request: object, answered: Callable[[object], None]) -> Asked:
        """Have a password looked at; `answered` gets True, False, or None if there are too many."""
        if not isinstance(request, PasswordCheck):
            return self._others.ask(request, answered)
        asking = _Asking(answered)
        if request in self._waiting:
            self._waiting[request].append(asking)
        elif len(self._waiting) >= PASSWORDS_WAITING_MAX and not self._make_room(request):
            asking.alarm = self._alarms.call_at(_AT_ONCE, partial(answered, None))
        else:
            self._waiting[request] = [asking]
            if len(self._threads) < min(len(self._waiting), self._threads_max):
                thread = threading.Thread(target=self._run, name=f"polymq-passwords-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._queue.put(request)
        return asking

    def _make_room(self, request: PasswordCheck) -> bool:
        """Have somebody give way who asks more than this one does."""
        given_up = self._queue.take_back(request.remote_host)
        if given_up is None:
            return False
        for asking in self._waiting.pop(given_up):
            if asking.answered is not None:
                asking.alarm = self._alarms.call_at(_AT_ONCE, partial(asking.answered, None))
        return True

    def run_completions(self) -> None:
        """Hand out what has been found."""
        self._wake_up.clear()
        while self._ended:
            check, right = self._ended.popleft()
            wanted = [asking for asking in self._waiting.pop(check) if asking.answered is not None]
            if right is None and wanted:  # somebody has come since a thread saw that nobody waits
                self._waiting[check] = wanted
                self._queue.put(check)
                continue
            for asking in wanted:
                if asking.answered is not None:  # still
                    asking.answered(right)

    def close(self) -> None:
        """Answer nobody any more; threads end when they are done."""
        with self._lock:
            self._queue.close()
        self._poller.remove(self._wake_up.fileno())
        self._wake_up.close()

    def _run(self) -> None:
        """Be one thread."""
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        while (check := self._queue.take()) is not None:
            # Who was given up meanwhile costs nothing. The list is only read here.
            wanted = any(asking.answered is not None for asking in tuple(self._waiting.get(check, ())))
            self._ended.append((check, self._look(check) if wanted else None))
            with self._lock:
                if self._queue.closed:
                    return
                self._wake_up()
