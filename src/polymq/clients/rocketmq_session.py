"""What every RocketMQ client has: connections to name servers and brokers, routes, heartbeats, an id.

One connection per server, shared by all requests. A name server that fails is followed by the next. A broker is told
who we are (a heartbeat) on each new connection before anything that depends on it, then every 30 seconds.
"""

from __future__ import annotations

import asyncio
import logging
import random as random_module
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from polymq.clients.backoff import Backoff
from polymq.clients.rocketmq_connection import Answer, RocketMQConnection, refused
from polymq.clients.rocketmq_options import addresses_of, new_client_id, open_socket
from polymq.clients.rocketmq_routes import MASTER, Route
from polymq.errors import (
    ConnectFailed,
    ConnectionLost,
    DeadlineExceeded,
    LocalProtocolError,
    PolyMQError,
    RemoteProtocolError,
    TransportError,
)
from polymq.protocols.rocketmq.bodies import Heartbeat, encode_heartbeat, parse_route
from polymq.protocols.rocketmq.codes import RequestCode, ResponseCode
from polymq.protocols.rocketmq.names import AUTO_CREATE_TOPIC, INNER_PRODUCER_GROUP

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from typing import Any

    from polymq.clients.rocketmq_options import Opener, RocketMQOptions
    from polymq.protocols.rocketmq.bodies import ConsumerData
    from polymq.protocols.rocketmq.events import Request

__all__ = ["Session"]

_log: Final = logging.getLogger(__name__)
_CLOSE_SECONDS_MAX: Final = 3.0
# A producer's brokers need not know it at once; who has sent something by then is told of.
_FIRST_HEARTBEAT_SECONDS: Final = 1.0
# Queues of a topic that is to be made by the first message to it, as Java's clients ask for.
NEW_TOPIC_QUEUES: Final = 4


@dataclass(slots=True)
class _Peer:
    """One server: its connection, if there is one, and when another attempt is worth it."""

    backoff: Backoff
    connection: RocketMQConnection | None = None
    connecting: asyncio.Lock = field(default_factory=asyncio.Lock)
    not_before: float = 0.0
    last_failure: str = ""


@dataclass(slots=True)
class _Known:
    """A route, and when it was asked for; None when there is no such topic."""

    route: Route | None
    asked_at: float


class Session:
    """A client's way to its servers.

    `producer_groups`, and `consumers` with what heartbeats say of each group, are set before `start`; `handlers` has
    who answers what brokers ask by themselves. Every method raises TransportError and its kin, never OSError.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str],
        options: RocketMQOptions,
        *,
        opener: Opener = open_socket,
        random: Callable[[], float] = random_module.random,
        instance: str = "",
    ) -> None:
        self.options = options
        self.client_id = new_client_id(instance or options.instance)
        self.producer_groups: set[str] = {INNER_PRODUCER_GROUP}
        self.consumers: dict[str, Callable[[], ConsumerData]] = {}
        self.handlers: dict[int, Callable[[Request], Answer | None]] = {}
        self._name_servers = list(addresses_of(name_servers))
        self._opener = opener
        self._random = random
        self._peers: dict[str, _Peer] = {}
        self._routes: dict[str, _Known] = {}
        self._asking: dict[str, asyncio.Future[Route | None]] = {}
        self._context: ssl.SSLContext | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    # --- Beginning and end --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Reach a name server, and begin to keep things going; raises DeadlineExceeded, ConnectFailed."""
        if self.options.tls is not None:
            try:
                self._context = await asyncio.to_thread(self.options.tls.context)
            except OSError as error:
                raise ConnectFailed(f"TLS: {error}") from error
        last = "nobody answers"
        try:
            async with asyncio.timeout(self.options.deadline_seconds):
                while True:
                    try:
                        await self.route(AUTO_CREATE_TOPIC)
                        break
                    except TransportError as error:
                        last = str(error)
                        await asyncio.sleep(self.options.reconnect_seconds_first)
        except TimeoutError as error:
            raise DeadlineExceeded(f"no name server within {self.options.deadline_seconds:g} s: {last}") from error
        self.spawn(self._keep_going(), "routes and heartbeats")

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run something beside everything else, until it is done or the session is closed."""
        task = asyncio.create_task(work, name=f"{name} of {self.client_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Say goodbye to the brokers and close all connections; returns within some seconds, whatever they do."""
        self._is_closed = True
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        connections = [peer.connection for peer in self._peers.values() if peer.connection is not None]
        try:
            async with asyncio.timeout(_CLOSE_SECONDS_MAX):
                if tasks:
                    await asyncio.wait(tasks)
                await asyncio.gather(*(self._say_goodbye(each) for each in connections if each.is_introduced))
                await asyncio.gather(*(each.close() for each in connections))
        except TimeoutError:
            _log.debug("%s: some servers did not take their leave in time", self.client_id)
        finally:
            for each in connections:
                each.abort(ConnectionLost("this client is closed"))

    async def _say_goodbye(self, connection: RocketMQConnection) -> None:
        groups = [("producerGroup", group) for group in sorted(self.producer_groups)] + [
            ("consumerGroup", group) for group in self.consumers
        ]
        for field_name, group in groups:
            if not connection.is_open:
                return
            try:
                await connection.request(RequestCode.UNREGISTER_CLIENT, {"clientID": self.client_id, field_name: group})
            except PolyMQError as error:
                _log.debug("%s: taking leave: %s", self.client_id, error)

    # --- Requests -----------------------------------------------------------------------------------------------------

    async def ask(
        self, address: str, code: int, ext: Mapping[str, str], body: bytes = b"", *, seconds: float | None = None, introduced: bool = False
    ) -> Answer:
        """Ask a server and wait for its answer, whatever it says.

        `introduced` has it know us first, which consuming needs. Raises ConnectFailed, ConnectionLost,
        DeadlineExceeded, LocalProtocolError.
        """
        allowed = self.options.request_seconds if seconds is None else seconds
        try:
            async with asyncio.timeout(allowed):
                connection = await self._reach(address)
                if introduced and not connection.is_introduced:
                    await self._introduce(connection)
                return await connection.request(code, ext, body)
        except TimeoutError as error:
            raise DeadlineExceeded(f"{address} did not answer request {code} within {allowed:g} s") from error

    async def tell(self, address: str, code: int, ext: Mapping[str, str], body: bytes = b"") -> None:
        """Tell a server something that it does not answer; raises as `ask` does."""
        try:
            async with asyncio.timeout(self.options.request_seconds):
                await (await self._reach(address)).tell(code, ext, body)
        except TimeoutError as error:
            raise DeadlineExceeded(f"{address} did not take request {code} within {self.options.request_seconds:g} s") from error

    def is_reachable(self, address: str) -> bool:
        """Say whether asking this server now may work; False between attempts to connect."""
        peer = self._peers.get(address)
        return (
            peer is None
            or peer.not_before <= asyncio.get_running_loop().time()
            or (peer.connection is not None and peer.connection.is_open)
        )

    async def _reach(self, address: str) -> RocketMQConnection:
        peer = self._peers.get(address)
        if peer is None:
            options = self.options
            peer = self._peers[address] = _Peer(Backoff(options.reconnect_seconds_first, options.reconnect_seconds_max, self._random))
        if peer.connection is not None and peer.connection.is_open:
            return peer.connection
        async with peer.connecting:
            if self._is_closed:
                raise ConnectionLost("this client is closed")
            if peer.connection is not None and peer.connection.is_open:
                return peer.connection
            loop = asyncio.get_running_loop()
            if loop.time() < peer.not_before:
                raise ConnectFailed(peer.last_failure)
            connection = RocketMQConnection(self.options, self._asked)
            try:
                await self._open(address, connection)
            except BaseException as error:
                connection.abort(ConnectionLost("the connection was given up"))
                peer.last_failure = str(error) or f"{address} took too long to answer"
                peer.not_before = loop.time() + peer.backoff.next_seconds()
                raise
            peer.backoff.succeeded()
            peer.connection = connection
            return connection

    async def _open(self, address: str, connection: RocketMQConnection) -> None:
        try:
            await self._opener(address, lambda: connection, self._context)
        except (OSError, ValueError) as error:
            raise ConnectFailed(f"{address}: {error}") from error

    def _asked(self, frame: Request) -> Answer | None:
        handler = self.handlers.get(frame.code)
        if handler is None:
            return None
        try:
            return handler(frame)
        except (PolyMQError, ValueError, KeyError, TypeError, AttributeError) as error:
            _log.warning("%s: request %d of a broker makes no sense: %r", self.client_id, frame.code, error)
            return Answer(ResponseCode.SYSTEM_ERROR, f"{error!r}")

    # --- Routes -------------------------------------------------------------------------------------------------------

    async def route(self, topic: str, *, fresh: bool = False) -> Route | None:
        """Say where a topic is, None when no name server knows it; at most `route_seconds` old, unless `fresh`.

        While no name server answers, what was known before still holds. Raises TransportError.
        """
        known = self._routes.get(topic)
        now = asyncio.get_running_loop().time()
        if known is not None and not fresh and known.route is not None and now - known.asked_at < 2 * self.options.route_seconds:
            return known.route
        asking = self._asking.get(topic)
        if asking is None:
            asking = self._asking[topic] = self.spawn(self._ask_route(topic), f"route of {topic}")
            asking.add_done_callback(lambda _: self._asking.pop(topic, None))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            if asking.cancelled():
                raise ConnectionLost("this client is closed") from None
            raise
        except (TransportError, RemoteProtocolError):
            if known is not None and known.route is not None:
                return known.route
            raise

    async def route_to_send(self, topic: str) -> Route | None:
        """Say where messages of a topic go; one that nobody knows is made by the first message, where that is allowed."""
        found = await self.route(topic)
        if found is not None and found.write_queues:
            return found
        template = await self.route(AUTO_CREATE_TOPIC)
        return None if template is None else template.for_topic(topic, NEW_TOPIC_QUEUES)

    async def _ask_route(self, topic: str) -> Route | None:
        """Ask the name servers, beginning with the one that answered last."""
        failure: PolyMQError = ConnectFailed("no name server")
        for address in list(self._name_servers):
            try:
                answer = await self.ask(address, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"})
                if not answer.is_success and answer.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise refused(answer, f"route of {topic}")
                route = Route.of(topic, parse_route(answer.body)) if answer.is_success else None
            except LocalProtocolError:
                raise
            except PolyMQError as error:
                failure = error
                if address in self._name_servers:
                    self._name_servers.remove(address)
                    self._name_servers.append(address)
                continue
            self._routes[topic] = _Known(route, asyncio.get_running_loop().time())
            return route
        raise failure

    # --- Heartbeats ---------------------------------------------------------------------------------------------------

    def masters(self) -> dict[str, str]:
        """The address of each broker that the known routes name."""
        found: dict[str, str] = {}
        for known in self._routes.values():
            for name, addresses in (known.route.brokers if known.route is not None else {}).items():
                if MASTER in addresses:
                    found[name] = addresses[MASTER]
        return found

    async def heartbeat(self) -> None:
        """Tell every broker that we are connected to, or consume from, who we are; failures are logged."""
        addresses = set(self.masters().values())
        if not self.consumers:
            addresses = {each for each in addresses if (peer := self._peers.get(each)) is not None and peer.connection is not None}
        await asyncio.gather(*(self._beat(each) for each in addresses))

    async def _beat(self, address: str) -> None:
        try:
            async with asyncio.timeout(self.options.request_seconds):
                await self._introduce(await self._reach(address), again=True)
        except (TimeoutError, PolyMQError) as error:
            _log.debug("%s: heartbeat to %s: %s", self.client_id, address, error or "no answer in time")

    async def _introduce(self, connection: RocketMQConnection, *, again: bool = False) -> None:
        async with connection.introducing:
            if connection.is_introduced and not again:
                return
            answer = await connection.request(RequestCode.HEART_BEAT, {}, self._heartbeat_body())
            if not answer.is_success:
                raise refused(answer, "heartbeat")
            connection.is_introduced = True

    def _heartbeat_body(self) -> bytes:
        consumers = tuple(describe() for describe in self.consumers.values())
        return encode_heartbeat(Heartbeat(self.client_id, tuple(sorted(self.producer_groups)), consumers))

    # --- Inside -------------------------------------------------------------------------------------------------------

    async def _keep_going(self) -> None:
        """Ask for the routes again, send heartbeats, and let go of who is in no route any more."""
        interval = min(self.options.route_seconds, self.options.heartbeat_seconds)
        next_routes = asyncio.get_running_loop().time() + self.options.route_seconds
        await asyncio.sleep(_FIRST_HEARTBEAT_SECONDS)
        await self.heartbeat()
        while True:
            await asyncio.sleep(interval)
            now = asyncio.get_running_loop().time()
            try:
                if now >= next_routes:
                    next_routes = now + self.options.route_seconds
                    await asyncio.gather(*(self._refresh(topic) for topic in list(self._routes)))
                    self._let_go()
                await self.heartbeat()
            except Exception:
                _log.exception("%s: routes and heartbeats", self.client_id)

    async def _refresh(self, topic: str) -> None:
        try:
            await self.route(topic, fresh=True)
        except PolyMQError as error:
            _log.debug("%s: route of %s: %s", self.client_id, topic, error)

    def _let_go(self) -> None:
        known = {
            address
            for each in self._routes.values()
            if each.route is not None
            for row in each.route.brokers.values()
            for address in row.values()
        }
        for address in set(self._peers) - known - set(self._name_servers):
            peer = self._peers[address]
            if peer.connecting.locked():
                continue
            del self._peers[address]
            if peer.connection is not None:
                peer.connection.abort(ConnectionLost("no route names this broker any more"))
