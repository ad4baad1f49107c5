"""One RocketMQ connection: the decoder's events become calls of handlers, their answers become frames.

Broker and name server are one: requests go by their code to the module that takes care of them. Requests are carried
out in order, and all but held pulls and what waits for the disk is answered in order. Read next: `answers.py`, `house.py`.
"""

from __future__ import annotations

import ipaddress
import logging
from collections import OrderedDict
from functools import partial
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, Protocol

from polymq.core.views import PeerView
from polymq.errors import Refusal, RemoteProtocolError
from polymq.gateways.contract import BaseGateway
from polymq.gateways.effects import Close, Pause, Resume, Send, SendAfter, SetTimer, TimerName, WantWritable
from polymq.gateways.lifecycle import Liveness, Sign
from polymq.gateways.rocketmq.answers import Answer, RequestProblem, failed, refused
from polymq.gateways.rocketmq.handlers import HANDLERS
from polymq.gateways.rocketmq.pulls import expire, go_on
from polymq.gateways.rocketmq.sends import take_run
from polymq.protocols.rocketmq.codes import ResponseCode, not_supported
from polymq.protocols.rocketmq.decode import Decoder
from polymq.protocols.rocketmq.encode import encode_request, encode_response
from polymq.protocols.rocketmq.events import Again, Request, Sends
from polymq.protocols.rocketmq.extras import Keeper
from polymq.rocketmq_limits import (
    ANSWERS_SIZE_BYTES_PER_CALL_MAX,
    ASKED_PER_CONNECTION_MAX,
    LANES_PER_CONNECTION_MAX,
    PLACES_PER_CONNECTION_MAX,
    PULLS_WOKEN_PER_TURN_MAX,
    READERS_PER_CONNECTION_MAX,
    REQUESTS_NS_PER_TURN_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polymq.core.ports import Log, Reader
    from polymq.core.session import Session
    from polymq.core.topic import Partition
    from polymq.gateways.contract import Peer
    from polymq.gateways.effects import Effect
    from polymq.gateways.rocketmq.house import House
    from polymq.gateways.rocketmq.pulls import Pull
    from polymq.protocols.rocketmq.events import Event
    from polymq.protocols.rocketmq.places import Place

__all__ = ["RocketmqClient"]

# `Liveness` takes the interval of which a silent peer has two.
_INTERVALS_OF_SILENCE: Final = 2
_LOCALHOST: Final = b"\x7f\0\0\1"
# Times of pulls that have been answered are forgotten when there are so many, and as many as others.
_DUE_SPARE: Final = 64
_OPAQUE_MASK: Final = 0x7FFFFFFF

log = logging.getLogger(__name__)


class Lane(Protocol):
    """What is kept of a request that may come again."""

    binary: bool

    def again(self, client: RocketmqClient, event: Again) -> Answer | None:
        """Carry out a request that is like that one; None: it is answered already, or will be. Raises Refusal."""


def packed(host: str) -> bytes:
    """Give an IP address as its bytes; nothing if it is none."""
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        return b""


class RocketmqClient(BaseGateway):
    """The server's side of one connection.

    `session` is that of whoever has made the request at hand. `store_host` is the broker's IPv4 address in message ids. `gone`: the
    connection has ended. `pulls` are those that are not answered yet.
    """

    def __init__(self, house: House, peer: Peer, *, own_host: str = "") -> None:
        self.house = house
        self.peer = peer
        self.own_host = own_host or "127.0.0.1"
        self.session: Session = house.session()
        self.gone = False
        own = house.facts.store_host or packed(house.facts.host) or packed(self.own_host)
        self.store_host = own if len(own) == 4 else _LOCALHOST
        self.born_host = packed(peer.remote_host) or _LOCALHOST
        self.keeper = Keeper(self.born_host, peer.port, house.facts.cluster)
        self.places: dict[Partition, Place] = {}  # of what it sends to
        self.pulls: dict[Pull, None] = {}
        self.ready: list[Pull] = []  # those that may be answered now
        self.said_size_bytes = 0  # what has been answered in the call at hand
        self._readers: OrderedDict[tuple[str, int], Reader] = OrderedDict()
        self._due: list[tuple[int, int, Pull]] = []
        self._due_count = 0
        self._due_ns: int | None = None
        self._decoder = Decoder(house.settings, born_host=self.born_host, born_port=peer.port)
        self._decoder.every_request = house.gate is not None
        # What a request costs is known when it has been carried out: then it is seen whether there is time for the next one.
        self._decoder.requests_max = 1
        self._monotonic_ns = house.clock.monotonic_ns
        self._liveness = Liveness(self._monotonic_ns)
        self._effects: list[Effect] | None = None  # of the call at hand
        self._pending: list[Effect] = []  # what was said outside of a call
        self._blocked = False
        self._paused = False
        self._closing = False
        self._opaque = 0
        self._asked: dict[int, Callable[[Request | None], None]] = {}
        house.clients[self] = None
        self.session.describe(PeerView(protocol="rocketmq", remote_address=peer.address, connected_at_ns=house.clock.wall_ns()))

    # -- input -----------------------------------------------------------------------------------------------------

    def opened(self, effects: list[Effect]) -> None:
        """Say nothing; the client speaks first."""
        self._liveness.expect(self.house.idle_ns // _INTERVALS_OF_SILENCE, effects)

    def feed(self, view: memoryview, effects: list[Effect]) -> int:
        """Carry out every request that has come whole."""
        decoder = self._decoder
        now_ns = self._monotonic_ns()
        self._liveness.heard(now_ns)
        self._effects = effects
        self.said_size_bytes = 0
        consumed = 0
        try:
            while True:
                events: list[Event] = []
                count = decoder.feed(view[consumed:] if consumed else view, events)
                consumed += count
                for event in events:
                    if isinstance(event, Sends):
                        take_run(self, event, effects)
                    elif isinstance(event, Again):
                        self._carry_out_again(event)
                    elif isinstance(event, Request):
                        self._carry_out(event)
                    else:
                        effects.append(Close(event.reason))
                        self._closing = True
                if decoder.need or self._closing or consumed == len(view):
                    break
                if self.is_spent or self._monotonic_ns() - now_ns > REQUESTS_NS_PER_TURN_MAX:
                    # Others have their turn before the rest.
                    effects.append(Pause())
                    self._paused = True
                    self.ring()
                    break
        finally:
            self._effects = None
        self.need = decoder.need or 1
        return consumed

    def _carry_out(self, request: Request) -> None:
        """Find who takes care of a request, and answer it, unless that comes later."""
        if request.response:
            then = self._asked.pop(request.opaque, None)
            if then is not None:
                then(request)
            return
        house = self.house
        try:
            answer = house.gate.admit(self, request) if house.gate is not None else None
            if answer is None:
                handler = HANDLERS.get(request.code)
                if handler is None:
                    answer = Answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, not_supported(request.code))
                else:
                    answer = handler(self, request)
        except RequestProblem as problem:
            answer = problem.answer
        except Refusal as refusal:
            answer = refused(refusal)
        except RemoteProtocolError as error:
            answer = failed(error.reason)
        except Exception:
            log.exception("%s: request %d has failed: internal error", self.peer, request.code)
            answer = failed("internal error")
        if answer is not None:
            self.answer(request, answer)

    def _carry_out_again(self, event: Again) -> None:
        """Have a request answered by who has answered one like it."""
        lane: Lane = event.lane
        try:
            answer = lane.again(self, event)
        except Refusal as refusal:
            answer = refused(refusal)
        except Exception:
            log.exception("%s: a request has failed: internal error", self.peer)
            answer = failed("internal error")
        if answer is not None:
            self._say(event.opaque, lane.binary, answer)

    def keep_lane(self, key: bytes, lane: Lane) -> None:
        """Have requests like one that was answered known again."""
        lanes = self._decoder.lanes
        if len(lanes) >= LANES_PER_CONNECTION_MAX:
            lanes.clear()
        lanes[key] = lane

    def carry_on(self, step: Callable[[], bool]) -> bool:
        """Do a step of a job: True if it is done, or has failed, which is logged."""
        try:
            return step()
        except Exception:
            log.exception("%s: a request has failed: internal error", self.peer)
            return True

    # -- output ----------------------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether enough waits to be written, or to be given to the pump."""
        return self._blocked

    @property
    def is_spent(self) -> bool:
        """Whether so much has been said in the call at hand, or waits, that more is for a later turn."""
        return self._blocked or self.said_size_bytes > ANSWERS_SIZE_BYTES_PER_CALL_MAX

    def emit(self, effect: Effect) -> None:
        """Have something done in this turn, from wherever: in the order in which it is said."""
        if self._effects is not None:
            self._effects.append(effect)
        elif not self.gone:
            if not self._pending:
                self.ring()
            self._pending.append(effect)

    def answer(self, request: Request, answer: Answer) -> None:
        """Answer a request, now or later."""
        if request.oneway:
            if answer.ticket is not None:
                self.emit(SendAfter(answer.ticket, b"", _say_nothing, publishes=answer.publishes))
            return
        self._say(request.opaque, request.binary, answer)

    def _say(self, opaque: int, binary: bool, answer: Answer) -> None:
        data = encode_response(answer.code, opaque, remark=answer.remark, ext=answer.ext, body=answer.body, binary=binary)
        self.said_size_bytes += len(data)
        if answer.ticket is None:
            self.emit(Send(data))
        else:
            self.emit(SendAfter(answer.ticket, data, partial(_failed, opaque, binary), publishes=answer.publishes))

    def send_request(self, code: int, ext: Mapping[str, str], body: bytes = b"") -> None:
        """Tell the client something; it does not answer."""
        self._opaque = (self._opaque + 1) & _OPAQUE_MASK
        self.emit(Send(encode_request(code, self._opaque, ext=ext, body=body, oneway=True)))

    def ask(self, code: int, ext: Mapping[str, str], body: bytes, then: Callable[[Request | None], None]) -> bool:
        """Ask the client something: `then` gets its answer, or None if it goes without one. False: too much has not been answered."""
        if len(self._asked) >= ASKED_PER_CONNECTION_MAX:
            return False
        self._opaque = (self._opaque + 1) & _OPAQUE_MASK
        self._asked[self._opaque] = then
        self.emit(Send(encode_request(code, self._opaque, ext=ext, body=body)))
        return True

    def want_writable(self) -> None:
        """Have `writable` called when what waits has been written."""
        self.emit(WantWritable())

    def full(self, effects: list[Effect]) -> None:
        """Answer no more pulls until what waits has been written."""
        self._blocked = True

    def writable(self, effects: list[Effect]) -> None:
        """Answer pulls again."""
        self._blocked = False
        if self.ready or self._paused:
            self.woken(effects)

    def woken(self, effects: list[Effect]) -> None:
        """Say what has come up outside of a call, and answer the pulls that can be."""
        super().woken(effects)
        effects += self._pending
        self._pending.clear()
        if self._paused and not self._blocked:
            self._paused = False
            effects.append(Resume())
        if self.ready and not self._blocked:
            self._effects = effects
            self.said_size_bytes = 0
            try:
                ready, self.ready = self.ready, []
                for pull in ready:
                    go_on(pull)
            finally:
                self._effects = None

    def place(self, topic: str, partition: Partition) -> Place:
        """Say where the messages of a queue are, and remember it."""
        if len(self.places) >= PLACES_PER_CONNECTION_MAX:
            self.places.clear()
        found = self.places[partition] = self.house.topics.place(topic, partition.index, partition.number, self.store_host)
        return found

    # -- pulls -----------------------------------------------------------------------------------------------------

    def reader(self, group: str, partition_log: Log) -> Reader:
        """Give the reader with which a group goes on in a partition: its own, so that nobody moves it."""
        key = (group, partition_log.number)
        found = self._readers.get(key)
        if found is None:
            found = self._readers[key] = partition_log.reader(partition_log.start)
            if len(self._readers) > READERS_PER_CONNECTION_MAX:
                self.house.holds.let_go(self._readers.popitem(last=False)[1])
        else:
            self._readers.move_to_end(key)
        return found

    def wait_until(self, due_ns: int, pull: Pull) -> None:
        """Have a pull answered at this time at the latest."""
        if len(self._due) > 2 * len(self.pulls) + _DUE_SPARE:
            # Most of them have been answered before their time.
            self._due = [entry for entry in self._due if entry[2] in self.pulls]
            heapify(self._due)
        self._due_count += 1
        heappush(self._due, (due_ns, self._due_count, pull))
        if self._due_ns is None or due_ns < self._due_ns:
            self._due_ns = due_ns
            self.emit(SetTimer(TimerName.RETRY, due_ns))

    def _expire(self, effects: list[Effect]) -> None:
        """Answer the pulls whose time is over, a few in each turn."""
        now_ns = self._monotonic_ns()
        left = PULLS_WOKEN_PER_TURN_MAX
        due = self._due
        self._effects = effects
        self._due_ns = None
        try:
            while due and left and (due[0][0] <= now_ns or due[0][2] not in self.pulls):
                due_ns, _, pull = heappop(due)
                if pull in self.pulls and pull.due_ns == due_ns:
                    expire(pull)
                    left -= 1
            if due:
                self._due_ns = due[0][0]
                effects.append(SetTimer(TimerName.RETRY, self._due_ns))
        finally:
            self._effects = None

    # -- time and the end ------------------------------------------------------------------------------------------

    def timer(self, name: TimerName, effects: list[Effect]) -> None:
        """Answer pulls that have waited long enough, or give up a connection that says nothing."""
        if name is TimerName.RETRY:
            self._expire(effects)
        elif self._liveness.timer(name, effects) is Sign.SILENCE:
            effects.append(Close("idle"))

    def ended(self) -> None:
        """Leave: pulls are answered no more, and members go."""
        self.gone = True
        house = self.house
        house.clients.pop(self, None)
        house.holds.drop(self)
        house.jobs.drop(self)
        for reader in self._readers.values():
            house.holds.let_go(reader)
        self._readers.clear()
        self._due.clear()
        self._pending.clear()
        asked, self._asked = self._asked, {}
        for then in asked.values():
            then(None)
        house.members.departed(self)
        self.session.close()


def _failed(opaque: int, binary: bool, reason: str) -> bytes:
    return encode_response(ResponseCode.SYSTEM_ERROR, opaque, remark=reason, binary=binary)


def _say_nothing(_reason: str) -> bytes:
    return b""
