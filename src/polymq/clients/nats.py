"""A small asyncio client of NATS: publish, and subscribe. At most once: what nobody listens to, or reads too slowly, is gone.

    async with NatsPublisher("127.0.0.1:4222") as publisher:
        await publisher.publish("flights.BA9", b"...", headers={"gate": "A7"})

    async with NatsSubscriber("127.0.0.1:4222", "flights.*") as subscriber:
        async for message in subscriber:
            work_on(message.subject, message.body)

`publish` returns when the server has answered a PING behind the message. Both find their server again when they lose it, also when it falls silent
while they begin, or sends what is not NATS. That a machine has vanished is noticed by the system's keep-alive (`notice_vanished`), not by PINGs of ours.
For requests, JetStream and clusters there is nats-py. Read next: `protocols/nats/frames.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random as random_module
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from polymq.clients.backoff import Backoff
from polymq.clients.connection import notice_vanished
from polymq.clients.nsq_opening import check_address
from polymq.errors import (
    ConnectFailed,
    ConnectionLost,
    DeadlineExceeded,
    LocalProtocolError,
    PolyMQError,
    Refusal,
    RefusalCode,
    RemoteProtocolError,
    TransportError,
)
from polymq.protocols.nats import frames

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
    from types import TracebackType

    from polymq.protocols.nats.frames import Delivered

__all__ = ["NEIGHBOURS_MAX", "NatsOptions", "NatsPublisher", "NatsSubscriber"]

_log: Final = logging.getLogger(__name__)
_READ_SIZE_BYTES: Final = 256 * 1024
_NO_HEADERS: Final[Mapping[str, str]] = {}
# How many messages have one PING behind them: as many are sent twice where a server refuses one of them.
NEIGHBOURS_MAX: Final = 16
# What is answered before more is sent.
_RUN_MESSAGES_MAX: Final = 1000
_RUN_SIZE_BYTES_MAX: Final = 1 << 20
# How polymq says that it has handed a message on but not stored it, and why: in the words of a RefusalCode.
_NOT_STORED: Final = "not stored: "
_NOT_ALLOWED: Final = ("permissions violation", "authorization", "user authentication")


@dataclass(frozen=True, slots=True)
class NatsOptions:
    """Who we are, how to be sure of the server, and how patient to be. TLS begins behind the server's INFO, as NATS has it."""

    user: str = ""
    secret: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None
    deadline_seconds: float = 10.0
    reconnect_seconds_first: float = 0.1
    reconnect_seconds_max: float = 5.0


_DEFAULTS: Final = NatsOptions()


class _Connection:
    """One connection: written at once, read by one task, which hands on messages and answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.info: Mapping[str, Any] = {}
        self.reason: PolyMQError | None = None
        self._reader = reader
        self._writer = writer
        self._frames = frames.FrameReader()
        self._pending: deque[frames.Frame] = deque()
        self._pongs: deque[asyncio.Future[PolyMQError | None]] = deque()

    @classmethod
    async def open(cls, address: str, options: NatsOptions) -> _Connection:
        """Connect and introduce ourselves; raises ConnectFailed, ConnectionLost, or Refusal when we are not let in."""
        host, _, port = address.rpartition(":")
        try:
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except OSError as error:
            raise ConnectFailed(f"{address}: {error}") from error
        notice_vanished(writer.transport)
        made = cls(reader, writer)
        try:
            await made._introduce(host.strip("[]"), options)
        except BaseException:
            await made.close()
            raise
        return made

    async def _introduce(self, host: str, options: NatsOptions) -> None:
        first = await self.frame()
        if not isinstance(first, frames.ServerInfo):
            raise RemoteProtocolError("the server does not begin with INFO")
        self.info = first.values
        if options.tls is not None:
            try:
                await self._writer.start_tls(options.tls, server_hostname=host)
            except (OSError, EOFError) as error:
                raise ConnectFailed(f"TLS: {error}") from error
        login = {"user": options.user, "pass": options.secret, "auth_token": options.token}
        said = {"verbose": False, "pedantic": False, "headers": True, "protocol": 1, "lang": "python", "name": "polymq", "version": "1"}
        self.write(frames.connect(said | {name: value for name, value in login.items() if value}) + frames.PING)
        while not isinstance(frame := await self.frame(), frames.ServerPong):
            if isinstance(frame, frames.ServerError):
                raise _refused(frame.text)
            if isinstance(frame, frames.ServerPing):
                self.write(frames.PONG)

    def write(self, data: bytes) -> None:
        """Write."""
        self._writer.write(data)

    async def acted_on(self, data: bytes) -> None:
        """Write, and wait until the server has acted on it; raises Refusal, ConnectionLost."""
        (outcome,) = await self.acted_on_each([data])
        if outcome is not None:
            raise outcome

    async def acted_on_each(self, parts: Sequence[bytes]) -> list[PolyMQError | None]:
        """Write parts, a PING behind each, and wait for all PONGs: says of each part what the server has against it; raises ConnectionLost."""
        if self.reason is not None:
            raise self.reason
        loop = asyncio.get_running_loop()
        answers: list[asyncio.Future[PolyMQError | None]] = [loop.create_future() for _ in parts]
        waiting = asyncio.gather(*answers)
        self._pongs.extend(answers)
        try:
            self._writer.write(b"".join([part + frames.PING for part in parts]))
            await self._writer.drain()
            return await waiting
        except OSError as error:
            raise ConnectionLost(f"the connection ended: {error}") from error
        finally:
            waiting.cancel()

    async def frame(self) -> frames.Frame:
        """Read the next frame; raises ConnectionLost, and RemoteProtocolError where the server has never spoken NATS."""
        while not self._pending:
            try:
                data = await self._reader.read(_READ_SIZE_BYTES)
            except OSError as error:
                raise ConnectionLost(f"the connection ended: {error}") from error
            if not data:
                raise ConnectionLost("the server closed the connection")
            try:
                self._pending.extend(self._frames.feed(data))
            except RemoteProtocolError as error:
                if not self.info:
                    raise
                raise ConnectionLost(f"the server sent what is not NATS: {error}") from error
        return self._pending.popleft()

    async def run(self, deliver: Callable[[Delivered], Any]) -> None:
        """Read to the end; raises what ended it. `deliver` may have the reading wait."""
        try:
            while True:
                match await self.frame():
                    case frames.Delivered() as message:
                        await deliver(message)
                    case frames.ServerPing():
                        self.write(frames.PONG)
                    case frames.ServerPong():
                        self._answer(None)
                    case frames.ServerError(text):
                        _log.warning("the server says: %s", text)
                        self._answer(_refused(text))
                    case frames.ServerInfo(values):
                        self.info = values
        except PolyMQError as error:
            self.fail(error)
            raise

    def fail(self, reason: PolyMQError) -> None:
        """Tell everybody who waits."""
        self.reason = self.reason or reason
        while self._pongs:
            waiting = self._pongs.popleft()
            if not waiting.done():
                waiting.set_result(self.reason)

    def abort(self, reason: PolyMQError) -> None:
        """Have done with a server that does not answer; who reads notices."""
        self.fail(reason)
        self._writer.transport.abort()

    async def close(self) -> None:
        """Disconnect."""
        self.fail(ConnectionLost("this client is closed"))
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def _answer(self, error: PolyMQError | None) -> None:
        """Answer the first who waits; behind an error its PONG comes as well, and is nobody's."""
        if not self._pongs:
            return
        first = self._pongs[0]
        if error is None:
            self._pongs.popleft()
        if not first.done():
            first.set_result(error)


class _Client:
    """Keeps one connection, for as long as it takes."""

    def __init__(self, address: str, options: NatsOptions, random: Callable[[], float]) -> None:
        check_address(address)
        self.address = address
        self.options = options
        self._backoff = Backoff(options.reconnect_seconds_first, options.reconnect_seconds_max, random)
        self._connection: _Connection | None = None
        self._ready = asyncio.Event()
        self._refused: PolyMQError | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        """Connect; raises DeadlineExceeded when there is no server in time, Refusal when it does not let us in."""
        self._task = asyncio.create_task(self._run(), name=f"nats client of {self.address}")
        try:
            await self._connected()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close."""
        await self.close()

    async def close(self) -> None:
        """Disconnect."""
        self._closed = True
        self._ready.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _connected(self) -> _Connection:
        try:
            async with asyncio.timeout(self.options.deadline_seconds):
                await self._ready.wait()
        except TimeoutError as error:
            raise DeadlineExceeded(f"{self.address}: no server within {self.options.deadline_seconds:g} s") from error
        if self._refused is not None:
            raise self._refused
        if self._closed or self._connection is None:
            raise ConnectionLost("this client is closed")
        return self._connection

    async def _run(self) -> None:
        while not self._closed:
            try:
                await self._live()
            except TransportError as error:
                seconds = self._backoff.next_seconds()
                _log.warning("%s is tried again in %.1f s: %s", self.address, seconds, error)
                await asyncio.sleep(seconds)
            except PolyMQError as error:
                self._refused = error
                self._ready.set()
                self._ended()
                return

    async def _live(self) -> None:
        """Be connected once; raises what ended it."""
        try:
            async with asyncio.timeout(self.options.deadline_seconds):
                connection = await _Connection.open(self.address, self.options)
        except TimeoutError as error:
            raise ConnectFailed(f"{self.address}: the server does not say who it is") from error
        try:
            reading = asyncio.ensure_future(connection.run(self._deliver))
            try:
                await self._begin_in_time(connection)
                self._connection = connection
                self._backoff.succeeded()
                self._ready.set()
                await reading
            finally:
                reading.cancel()
                await asyncio.wait([reading])
                if not reading.cancelled():
                    reading.exception()  # known by now, or less to the point than what is raised here
        finally:
            self._connection = None
            if not self._closed:
                self._ready.clear()
            await connection.close()

    def _give_up(self, connection: _Connection) -> None:
        """Have the next who asks get another connection: this one's server does not answer."""
        if self._connection is connection:
            self._connection = None
            self._ready.clear()
        connection.abort(ConnectionLost("the server has not answered in time"))

    async def _begin_in_time(self, connection: _Connection) -> None:
        """Begin, or have done with a server that has fallen silent; raises what makes it impossible."""
        try:
            async with asyncio.timeout(self.options.deadline_seconds):
                await self._begin(connection)
        except TimeoutError as error:
            silent = ConnectFailed(f"{self.address}: the server has fallen silent")
            connection.abort(silent)
            raise silent from error

    async def _begin(self, connection: _Connection) -> None:
        """Say what is said first on each connection."""

    async def _deliver(self, message: Delivered) -> None:
        """Take a message."""

    def _ended(self) -> None:
        """Notice that it is not tried again."""


class NatsPublisher(_Client):
    """Publishes over one connection, as many at a time as there are tasks that await."""

    def __init__(self, address: str, options: NatsOptions = _DEFAULTS, *, random: Callable[[], float] = random_module.random) -> None:
        super().__init__(address, options, random)

    async def publish(self, subject: str, body: bytes, *, headers: Mapping[str, str] = _NO_HEADERS) -> None:
        """Publish a message and wait until the server has acted on it: it has gone to whoever listens.

        Raises:  LocalProtocolError for what the server would not take; Refusal when we may not; ConnectionLost and DeadlineExceeded when
                 it may have gone or not.
        """
        data = frames.publish(subject, body, headers)
        connection = await self._connected()
        _check_room(connection, data, headers)
        (outcome,) = await self._send(connection, [data])
        if outcome is not None:
            raise outcome

    async def publish_each(
        self, messages: Sequence[tuple[str, bytes, Mapping[str, str]]], repeated: set[int] | None = None
    ) -> list[PolyMQError | None]:
        """Publish messages (subject, body, headers) in one go; says of each what went wrong, None when the server has acted on it.

        When the server says no to one of them, it and its neighbours, `NEIGHBOURS_MAX` at most, are sent once more, each with an answer of its
        own, to see which it was; their places are added to `repeated`. When one is lost, what is behind it is not sent.
        """
        try:
            connection = await self._connected()
        except PolyMQError as error:
            return [error] * len(messages)
        outcomes: list[PolyMQError | None] = [None] * len(messages)
        parts: dict[int, bytes] = {}
        for place, (subject, body, headers) in enumerate(messages):
            try:
                data = frames.publish(subject, body, headers)
                _check_room(connection, data, headers)
            except LocalProtocolError as error:
                outcomes[place] = error
            else:
                parts[place] = data
        lost: PolyMQError | None = None
        for run in _runs(parts):
            if lost is None:
                try:
                    outcomes_of_run = await self._publish_run(connection, {place: parts[place] for place in run}, repeated)
                except PolyMQError as error:
                    lost = error
            if lost is not None:
                outcomes_of_run = dict.fromkeys(run, lost)
            for place, outcome in outcomes_of_run.items():
                outcomes[place] = outcome
        return outcomes

    async def _publish_run(
        self, connection: _Connection, run: Mapping[int, bytes], repeated: set[int] | None
    ) -> dict[int, PolyMQError | None]:
        """Send a run, a PING behind some neighbours each; raises what makes it unknown whether all of it is there."""
        places = list(run)
        neighbours = [places[first : first + NEIGHBOURS_MAX] for first in range(0, len(places), NEIGHBOURS_MAX)]
        found = await self._send(connection, [b"".join([run[place] for place in some]) for some in neighbours])
        outcomes = {place: outcome for some, outcome in zip(neighbours, found, strict=True) for place in some}
        unsure = [place for some in neighbours if len(some) > 1 for place in some if outcomes[place] is not None]
        if unsure:
            if repeated is not None:
                repeated.update(unsure)
            found = await self._send(connection, [run[place] for place in unsure])
            outcomes.update(zip(unsure, found, strict=True))
        return outcomes

    async def _send(self, connection: _Connection, parts: Sequence[bytes]) -> list[PolyMQError | None]:
        """Send parts, and say of each what the server refuses of it; raises TransportError."""
        try:
            async with asyncio.timeout(self.options.deadline_seconds):
                outcomes = await connection.acted_on_each(parts)
        except TimeoutError as error:
            self._give_up(connection)
            raise DeadlineExceeded(f"{self.address}: publishing took longer than {self.options.deadline_seconds:g} s") from error
        for each in outcomes:
            if each is not None and not isinstance(each, Refusal):
                raise each
        return outcomes


def _runs(parts: Mapping[int, bytes]) -> Iterator[list[int]]:
    """Cut what is sent into runs, each of which has the deadline for itself: a slow line takes long for all of a flight."""
    run: list[int] = []
    size_bytes = 0
    for place, data in parts.items():
        if run and (len(run) == _RUN_MESSAGES_MAX or size_bytes + len(data) > _RUN_SIZE_BYTES_MAX):
            yield run
            run, size_bytes = [], 0
        run.append(place)
        size_bytes += len(data)
    if run:
        yield run


def _check_room(connection: _Connection, data: bytes, headers: Mapping[str, str]) -> None:
    """Refuse what this server would not take, and would end the connection for."""
    size_max = connection.info.get("max_payload")
    if isinstance(size_max, int) and len(data) - data.index(b"\n") - 3 > size_max:
        raise LocalProtocolError(f"the server takes messages of at most {size_max} bytes, headers included")
    if headers and connection.info.get("headers") is not True:
        raise LocalProtocolError("this server has no headers")


class NatsSubscriber(_Client):
    """Subscribes to one subject, with wildcards if you like, alone or as one of a queue group: an async iterator of messages.

    At most `waiting_max` messages wait here; while they do no more is read, and a server cuts off who does not read for long.
    """

    def __init__(
        self,
        address: str,
        subject: str,
        options: NatsOptions = _DEFAULTS,
        *,
        queue: str = "",
        waiting_max: int = 1000,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        super().__init__(address, options, random)
        if waiting_max < 1:
            raise LocalProtocolError(f"waiting_max is {waiting_max}; it must be at least 1")
        self._command = frames.subscribe(subject, "1", queue)
        self._waiting: deque[Delivered] = deque()
        self._waiting_max = waiting_max
        self._arrived = asyncio.Event()  # something waits, or there will be no more
        self._has_room = asyncio.Event()
        self._is_over = False

    async def __aiter__(self) -> AsyncIterator[Delivered]:
        """Give messages until closed; raises Refusal when the server does not let us in any more."""
        while not self._closed:
            if self._waiting:
                message = self._waiting.popleft()
                self._has_room.set()
                yield message
            elif self._is_over:
                if self._refused is not None:
                    raise self._refused
                return
            else:
                self._arrived.clear()
                await self._arrived.wait()

    def waiting(self) -> list[Delivered]:
        """Take what would be given next without waiting."""
        found = list(self._waiting)
        self._waiting.clear()
        self._has_room.set()
        return found

    async def close(self) -> None:
        """Disconnect; what waits is gone."""
        await super().close()
        self._ended()

    async def _begin(self, connection: _Connection) -> None:
        await connection.acted_on(self._command)

    async def _deliver(self, message: Delivered) -> None:
        while len(self._waiting) >= self._waiting_max:
            self._has_room.clear()
            await self._has_room.wait()
        self._waiting.append(message)
        self._arrived.set()

    def _ended(self) -> None:
        self._is_over = True
        self._arrived.set()


def _refused(text: str) -> PolyMQError:
    if text.lower().startswith(_NOT_ALLOWED):
        _, not_stored, reason = text.partition(_NOT_STORED)
        if not_stored:
            # With a reason that is not known here it may do better later as well.
            return Refusal(next((code for code in RefusalCode if code.value == reason), RefusalCode.STORE_FULL), text)
        return Refusal(RefusalCode.FORBIDDEN, text)
    return ConnectionLost(f"the server says: {text}")
