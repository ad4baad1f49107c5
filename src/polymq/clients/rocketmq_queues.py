"""Reads queues of RocketMQ's brokers by offset, without a group and without an event loop: for programs that read in bulk.

One connection per server, one thread, one request after the other; questions about many queues go out together. Nothing is
tried twice here, but for the next name server: whoever calls knows how patient to be (`is_lasting`). What a pull brings stays
bytes, and becomes columns (`columns_of`), for many pulls at once.
"""

from __future__ import annotations

import re
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from polymq.clients.rocketmq_connection import Answer, refused
from polymq.clients.rocketmq_options import RocketMQOptions, addresses_of
from polymq.clients.rocketmq_routes import MASTER, MessageQueue, Route
from polymq.errors import ConnectFailed, ConnectionLost, DeadlineExceeded, PolyMQError, Refusal, RefusalCode, RemoteProtocolError
from polymq.protocols.rocketmq import acl
from polymq.protocols.rocketmq.bodies import parse_route
from polymq.protocols.rocketmq.codes import FLAG_RESPONSE, SERIALIZE_BINARY, PullFlag, RequestCode, ResponseCode
from polymq.protocols.rocketmq.encode import encode_request
from polymq.protocols.rocketmq.header import decode_binary, decode_json
from polymq.protocols.rocketmq.names import is_system_topic
from polymq.protocols.rocketmq.relaxed_json import loads_object
from polymq.protocols.rocketmq.runs import KEY, MESSAGE_ID, REPLY_TO, TAGS, Unfolded, unpacked_run
from polymq.protocols.rocketmq.unfold import RUN_SIZE_BYTES_MAX, is_packed, unfold
from polymq.rocketmq_limits import FRAME_SIZE_BYTES_MAX

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = [
    "KEY",
    "MESSAGE_ID",
    "REPLY_TO",
    "RUN_SIZE_BYTES_MAX",
    "TAGS",
    "Extent",
    "MessageQueue",
    "Pulled",
    "QueueClient",
    "Unfolded",
    "columns_of",
    "is_lasting",
    "plain_run",
]

_NUMBER_MAX: Final = 2**31 - 1
# Questions that are on their way together: so many answers fit the buffers of any connection.
_TOGETHER_MAX: Final = 128
_READ_SIZE_BYTES: Final = 256 * 1024
# What a server says by itself between two answers, and nobody listens to here.
_UNASKED_MAX: Final = 1000
# Looks for a message with a time; each skips what is gone.
_LOOKS_MAX: Final = 64
# Topics of groups, which match no pattern of a user's.
_OF_GROUPS: Final = re.compile(r"%(RETRY|DLQ)%")
_LASTING: Final = frozenset({RefusalCode.FORBIDDEN, RefusalCode.UNAUTHENTICATED, RefusalCode.GROUP_NOT_FOUND})
_PULLED: Final = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
_NUMBERS: Final = {
    RequestCode.GET_MIN_OFFSET: "the first offset",
    RequestCode.GET_MAX_OFFSET: "the last offset",
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: "an offset by time",
}


@dataclass(frozen=True, slots=True)
class Extent:
    """The offsets of a queue: the first one that is still there, and the one that the next message gets."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Pulled:
    """What a pull brought. `run` are stored messages, none if there were none; `next_offset` is where to go on."""

    next_offset: int
    extent: Extent
    run: bytes = b""
    is_moved: bool = False  # the broker has nothing at this offset, and says where to go on
    is_removing: bool = False  # what was there is being removed just now


def is_lasting(error: PolyMQError) -> bool:
    """Say whether asking again makes no sense: whoever asks is not allowed to."""
    return isinstance(error, Refusal) and error.code in _LASTING


def plain_run(run: bytes) -> bytes:
    """Make a run of stored messages such as `columns_of` takes: nothing in it is packed any more. Raises RemoteProtocolError."""
    return unpacked_run(run) if is_packed(run) else run


def columns_of(run: bytes | bytearray, first_offset: int, end_offset: int) -> Unfolded:
    """Turn plain runs that lie one behind the other into columns; see `unfold`. Raises RemoteProtocolError."""
    return unfold(run, first_offset, end_offset)


class _Line:
    """One connection to one server."""

    def __init__(self, address: str, options: RocketMQOptions, context: ssl.SSLContext | None) -> None:
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        self._address = address
        self._options = options
        self._number = 0
        self._rest = bytearray()
        try:
            self._socket = socket.create_connection((host, int(port)), timeout=options.request_seconds)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                name = options.tls.server_name if options.tls is not None else ""
                self._socket = context.wrap_socket(self._socket, server_hostname=name or host)
        except (OSError, ValueError) as error:
            raise ConnectFailed(f"{address}: {error}") from error

    def ask(self, code: int, questions: Sequence[Mapping[str, str]], seconds: float) -> list[Answer]:
        """Send some questions and give the answers, in the order of the questions; raises TransportError, RemoteProtocolError."""
        first = self._number + 1
        parts = []
        for ext in questions:
            self._number = (self._number + 1) & _NUMBER_MAX
            parts.append(encode_request(code, self._number, ext=self._signed(ext), binary=self._options.binary))
        deadline = time.monotonic() + seconds
        found: dict[int, Answer] = {}
        unasked = 0
        try:
            self._socket.settimeout(seconds)
            self._socket.sendall(b"".join(parts))
            while len(found) < len(questions):
                number, answer = self._read_one(deadline)
                place = (number - first) & _NUMBER_MAX
                if answer is None or place >= len(questions) or place in found:
                    unasked += 1
                    if unasked > _UNASKED_MAX:
                        raise RemoteProtocolError(f"{self._address} says what nobody has asked for")
                else:
                    found[place] = answer
        except TimeoutError as error:
            raise DeadlineExceeded(f"{self._address} did not answer request {code} within {seconds:g} s") from error
        except OSError as error:
            raise ConnectionLost(f"{self._address}: {error}") from error
        return [found[place] for place in range(len(questions))]

    def _signed(self, ext: Mapping[str, str]) -> Mapping[str, str]:
        options = self._options
        if not options.access_key:
            return ext
        named = {**ext, acl.ACCESS_KEY: options.access_key}
        if options.security_token:
            named["SecurityToken"] = options.security_token
        return {**named, acl.SIGNATURE: acl.sign(options.secret_key, named, b"")}

    def _read_one(self, deadline: float) -> tuple[int, Answer | None]:
        """Read one frame; gives its number, and None for what is no answer."""
        size = int.from_bytes(self._take(4, deadline), "big")
        if not 4 <= size <= FRAME_SIZE_BYTES_MAX:
            raise RemoteProtocolError(f"{self._address} sends a frame of {size} bytes")
        frame = self._take(size, deadline)
        head_size = int.from_bytes(frame[1:4], "big")
        if head_size > size - 4:
            raise RemoteProtocolError(f"{self._address} sends a header that is larger than its frame")
        read = decode_binary if frame[0] == SERIALIZE_BINARY else decode_json
        head = read(frame[4 : 4 + head_size])
        if not head.flag & FLAG_RESPONSE:
            return -1, None
        return head.opaque, Answer(head.code, head.remark or "", head.ext, frame[4 + head_size :], head.version)

    def _take(self, size: int, deadline: float) -> bytes:
        while len(self._rest) < size:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            data = self._socket.recv(max(_READ_SIZE_BYTES, size - len(self._rest)))
            if not data:
                raise ConnectionLost(f"{self._address} closed the connection")
            self._rest += data
        found = bytes(self._rest[:size])
        del self._rest[:size]
        return found

    def close(self) -> None:
        self._socket.close()


class QueueClient:
    """Asks name servers where queues are, and the masters of brokers what is in them. For one thread.

    `group` is the name under which it pulls: brokers want one. Every method raises TransportError, RemoteProtocolError, or
    Refusal when a server says no.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str],
        group: str,
        options: RocketMQOptions,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name_servers = list(addresses_of(name_servers))
        self._group = group
        self._options = options
        self._monotonic = monotonic
        self._lines: dict[str, _Line] = {}
        self._routes: dict[str, tuple[Route | None, float]] = {}
        self._context: ssl.SSLContext | None = None

    def close(self) -> None:
        """Disconnect; what is asked next connects again."""
        for line in self._lines.values():
            line.close()
        self._lines.clear()

    # --- Name servers -------------------------------------------------------------------------------------------------

    def route(self, topic: str, *, age_seconds_max: float = 0.0) -> Route | None:
        """Say where a topic is, None when no name server knows it; one that was asked for lately is not asked for again."""
        now = self._monotonic()
        known = self._routes.get(topic)
        if known is not None and now - known[1] < age_seconds_max:
            return known[0]
        answer = self._ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"})
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            route = None
        elif answer.is_success:
            route = Route.of(topic, parse_route(answer.body))
        else:
            raise refused(answer, f"route of {topic}")
        self._routes[topic] = route, now
        return route

    def topics(self) -> list[str]:
        """List the topics that users have made, sorted."""
        answer = self._ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})
        if not answer.is_success:
            raise refused(answer, "the list of topics")
        found = loads_object(answer.body).get("topicList")
        names = found if isinstance(found, list) else []
        # A cluster and its brokers have topics of their own names.
        own = self._names_of_brokers()
        return sorted({each for each in names if isinstance(each, str) and not (is_system_topic(each) or _OF_GROUPS.match(each))} - own)

    def is_gone(self, queue: MessageQueue) -> bool:
        """Say whether a broker is there and its queue is not; False while the broker is away, since nobody knows then."""
        tables = self._cluster()
        addresses: Any = tables.get("brokerAddrTable")
        broker = addresses.get(queue.broker_name) if isinstance(addresses, dict) else None
        masters = broker.get("brokerAddrs") if isinstance(broker, dict) else None
        if not isinstance(masters, dict) or str(MASTER) not in {str(number) for number in masters}:
            return False
        route = self.route(queue.topic)
        return route is None or queue not in route.read_queues

    def _names_of_brokers(self) -> set[str]:
        tables = self._cluster()
        names: set[str] = set()
        for table in ("brokerAddrTable", "clusterAddrTable"):
            found = tables.get(table)
            names.update(str(name) for name in found) if isinstance(found, dict) else None
        return names

    def _cluster(self) -> dict[Any, Any]:
        answer = self._ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO, {})
        return loads_object(answer.body) if answer.is_success else {}

    def _ask_name_server(self, code: int, ext: Mapping[str, str]) -> Answer:
        """Ask the name server that answered last, or the next one."""
        failure: PolyMQError = ConnectFailed("no name server")
        for address in list(self._name_servers):
            try:
                return self._ask(address, code, [ext])[0]
            except PolyMQError as error:
                failure = error
                self._name_servers.remove(address)
                self._name_servers.append(address)
        raise failure

    # --- Brokers ------------------------------------------------------------------------------------------------------

    def extents(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, Extent]:
        """Ask for the offsets of queues."""
        wanted = list(queues)
        ends = self._numbers(RequestCode.GET_MAX_OFFSET, wanted)
        # After the ends: a queue never seems to begin behind its end.
        firsts = self._numbers(RequestCode.GET_MIN_OFFSET, wanted)
        return {queue: Extent(max(0, min(firsts[queue], ends[queue])), max(0, ends[queue])) for queue in wanted}

    def ends(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Ask for the offsets that the next messages of queues get."""
        return {queue: max(0, end) for queue, end in self._numbers(RequestCode.GET_MAX_OFFSET, list(queues)).items()}

    def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """Find the first message that was stored at this time or later; the end if there is none.

        Brokers of 4.x give some message near it: so what they say is looked at, and searched for if it is not right.
        """
        extent = self.extents([queue])[queue]
        low, high = extent.first, extent.end
        hint = self._numbers(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, [queue], timestamp=str(time_ms))[queue]
        probes = [hint, hint - 1]
        for _ in range(2 * _LOOKS_MAX):
            if low >= high:
                break
            probe = probes.pop() if probes else (low + high) // 2
            if low <= probe < high:
                stored = self._stored_at(queue, probe)
                if stored is not None and stored[1] < time_ms:
                    low = stored[0] + 1
                else:
                    high = probe
        return min(low, extent.end)

    def is_beginning_removed(self, queue: MessageQueue) -> bool:
        """Say whether the first message of a queue, as its broker counts, cannot be read any more: it is behind with its counting."""
        extent = self.extents([queue])[queue]
        if extent.end == extent.first:
            return False
        address = self._address(queue)
        answer = self._ask(address, RequestCode.GET_EARLIEST_MSG_STORETIME, [self._about(queue)])[0]
        return answer.is_success and answer.number("timestamp") < 0

    def pull(self, queue: MessageQueue, offsets: Sequence[int], count_max: int, expression: str = "*") -> list[Pulled]:
        """Ask for messages from each of some offsets on; nothing is waited for. Gives the answers up to the first that says no.

        Several offsets are for who knows where the next pulls will begin, and need not wait for one after the other.
        """
        questions = [
            {
                "consumerGroup": self._group,
                **self._about(queue),
                "queueOffset": str(offset),
                "maxMsgNums": str(count_max),
                "sysFlag": str(int(PullFlag.SUBSCRIPTION)),
                "commitOffset": "0",
                "suspendTimeoutMillis": "0",
                "subscription": expression,
                "subVersion": "0",
                "expressionType": "TAG",
            }
            for offset in offsets
        ]
        found: list[Pulled] = []
        for answer in self._ask(self._address(queue), RequestCode.PULL_MESSAGE, questions):
            if answer.code not in _PULLED:
                if found:
                    break
                raise refused(answer, f"a pull from {queue.topic}, queue {queue.queue_id} of {queue.broker_name}")
            found.append(
                Pulled(
                    answer.number("nextBeginOffset"),
                    Extent(answer.number("minOffset"), answer.number("maxOffset")),
                    answer.body if answer.is_success else b"",
                    is_moved=answer.code == ResponseCode.PULL_OFFSET_MOVED,
                    is_removing=answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY and "REMOVING" in answer.remark,
                )
            )
        return found

    def commit(self, positions: Mapping[MessageQueue, int]) -> None:
        """Tell brokers where the group is: only for people to see."""
        for address, queues in self._by_address(positions).items():
            for first in range(0, len(queues), _TOGETHER_MAX):
                questions = [
                    {"consumerGroup": self._group, **self._about(queue), "commitOffset": str(positions[queue])}
                    for queue in queues[first : first + _TOGETHER_MAX]
                ]
                for answer in self._ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, questions):
                    if not answer.is_success:
                        raise refused(answer, f"the position of {self._group}")

    def _stored_at(self, queue: MessageQueue, offset: int) -> tuple[int, int] | None:
        """Look at the first message from an offset on: its offset, and when it was stored, in ms; None if there is none."""
        for _ in range(_LOOKS_MAX):
            pulled = self.pull(queue, [offset], 1)[0]
            if pulled.run:
                found = unfold(pulled.run, offset, 2**63 - 1)
                if found.count:
                    return found.offsets[0], found.times_us[0] // 1000
            if pulled.next_offset <= offset or pulled.is_moved:
                return None
            offset = pulled.next_offset
        return None

    def _numbers(self, code: RequestCode, queues: list[MessageQueue], **more: str) -> dict[MessageQueue, int]:
        """Ask each queue's broker for a number."""
        found: dict[MessageQueue, int] = {}
        for address, some in self._by_address(queues).items():
            for first in range(0, len(some), _TOGETHER_MAX):
                part = some[first : first + _TOGETHER_MAX]
                for queue, answer in zip(part, self._ask(address, code, [{**self._about(each), **more} for each in part]), strict=True):
                    if not answer.is_success:
                        raise refused(answer, f"{_NUMBERS[code]} of {queue.topic}, queue {queue.queue_id} of {queue.broker_name}")
                    found[queue] = answer.number("offset")
        return found

    @staticmethod
    def _about(queue: MessageQueue) -> dict[str, str]:
        return {"topic": queue.topic, "queueId": str(queue.queue_id), "bname": queue.broker_name}

    def _by_address(self, queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
        found: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            found.setdefault(self._address(queue), []).append(queue)
        return found

    def _address(self, queue: MessageQueue) -> str:
        """Say where the master of a queue's broker is; its copies may be behind it."""
        route = self.route(queue.topic, age_seconds_max=self._options.route_seconds)
        address = route.brokers.get(queue.broker_name, {}).get(MASTER) if route is not None else None
        if address is None:
            self._routes.pop(queue.topic, None)
            raise ConnectFailed(f"no name server knows where the master of {queue.broker_name} is")
        return address

    def _ask(self, address: str, code: int, questions: Sequence[Mapping[str, str]]) -> list[Answer]:
        """Ask one server; after whatever goes wrong the next question begins with a new connection, and new routes."""
        try:
            line = self._lines.get(address)
            if line is None:
                line = self._lines[address] = _Line(address, self._options, self._tls())
            return line.ask(code, questions, self._options.request_seconds)
        except PolyMQError:
            self._routes.clear()
            dropped = self._lines.pop(address, None)
            if dropped is not None:
                dropped.close()
            raise

    def _tls(self) -> ssl.SSLContext | None:
        if self._context is None and self._options.tls is not None:
            try:
                self._context = self._options.tls.context()
            except OSError as error:
                raise ConnectFailed(f"TLS: {error}") from error
        return self._context
