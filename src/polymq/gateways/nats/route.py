"""One connection to another NATS server, whoever dialled it: a route, once both have said who they are.

Who dials says CONNECT and INFO at once; who is dialled says INFO at once, for newer servers wait for that. After the
other's INFO each says what it wants (RS+), and messages go across (RMSG, HMSG), one step far. Read next: `cluster.py`.
"""

from __future__ import annotations

import logging
from array import array
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final

from polymq.core.interest.spread import end_of_namespace
from polymq.core.interest.targets import Target
from polymq.gateways.contract import BaseGateway
from polymq.gateways.effects import Ask, Close, Pause, Resume, Send, SendAfterEach, SetTimer, TimerName, Upgrade
from polymq.gateways.login import PasswordCheck
from polymq.gateways.nats.account_names import SYSTEM_ACCOUNT
from polymq.gateways.nats.kept import hear_marks, tell_directed, tell_kept
from polymq.gateways.nats.pings import Pings
from polymq.gateways.nats.remote_interest import RemoteInterest
from polymq.gateways.nats.sheets import Routed, write_routed
from polymq.limits import (
    NATS_BULKY_SIZE_BYTES,
    PASSWORD_ANSWER_NS_MAX,
    ROUTE_LINES_PER_TURN_MAX,
    ROUTE_NS_PER_TURN_MAX,
    ROUTE_PENDING_SIZE_BYTES_MAX,
    ROUTE_PIECE_SIZE_BYTES,
    ROUTE_PRESSED_SIZE_BYTES,
)
from polymq.protocols.nats import problems
from polymq.protocols.nats.commands import PeerKind
from polymq.protocols.nats.decode import Decoder
from polymq.protocols.nats.encode import PING, PONG, error_line, next_forbidden, ok_lines
from polymq.protocols.nats.events import (
    Connect,
    Info,
    LeftOut,
    PeerError,
    Ping,
    Pong,
    Publishes,
    RemoteSubscribe,
    RemoteUnsubscribe,
    SilentClose,
    Violation,
)
from polymq.protocols.nats.info import (
    COMPRESSIONS,
    RouteConnect,
    ServerInfo,
    parse_info,
    parse_route_connect,
    route_connect_problem,
    write_connect,
    write_info,
)
from polymq.protocols.nats.problems import CloseReason
from polymq.wire.live import ACCOUNT_AT, ACCOUNT_SIZE, COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from polymq.core.live import LiveSpace
    from polymq.gateways.contract import Peer
    from polymq.gateways.effects import Effect
    from polymq.gateways.live_sheet import LiveSheet
    from polymq.gateways.nats.cluster import Cluster, Solicitor
    from polymq.gateways.outbox import Outbox
    from polymq.protocols.nats.events import Event
    from polymq.wire.live import LiveBatch

__all__ = ["RouteGateway"]

# A route that has a PING unanswered for so long, and is silent, makes way for a new connection of the same server.
_SILENT_NS: Final = 2_000_000_000
_ENDED: Final = "closed"
_NOBODY: Final = ServerInfo()

log = logging.getLogger(__name__)


class RouteGateway(BaseGateway):
    """The side of this server. `info` is what the other has said of itself; from then on, if nothing is wrong, it is a route."""

    # Two servers that stop reading each other because neither gets rid of its own would wait for ever.
    unread_above = ROUTE_PENDING_SIZE_BYTES_MAX

    def __init__(self, cluster: Cluster, peer: Peer, solicitor: Solicitor | None = None) -> None:
        """`solicitor`: who has dialled; None: the other server has."""
        house = cluster.house
        self._cluster = cluster
        self._house = house
        self.peer = peer
        self.id = cluster.admit(self)
        self.dialled = solicitor is not None
        self.solicitors = [] if solicitor is None else [solicitor]
        self.gossip_mode = 0 if solicitor is None else solicitor.gossip_mode
        self.info = _NOBODY
        self.end_reason = _ENDED
        self.connected_at_ns = house.clock.wall_ns()
        self.heard_at_ns = self.connected_at_ns
        self.write_timeout_ns = house.settings.write_deadline_ns
        self.in_message_count = self.in_size_bytes = self.out_message_count = self.out_size_bytes = 0
        self.left_out_count = 0
        self.target = Target(self, remote=True)
        self._interest = RemoteInterest(cluster.accounts, cluster.facts.rules, self.target, peer.address)
        self._decoder = Decoder(house.settings, PeerKind.ROUTE)
        self._decoder.connect_first = not self.dialled
        self._pings = Pings(cluster.pings, house.clock.monotonic_ns)
        self._headers = self._verbose = False
        self._name = ""  # the other server's id, as CONNECT had it
        self._lines = bytearray()  # what is to be said before anything else
        self._whole: Iterator[bytes] | None = None  # what is wanted here, as far as it has not been said
        self._connected = self.dialled  # CONNECT has been said
        self._asked: RouteConnect | None = None  # the CONNECT whose password is being looked at
        self._halted = self._full = self._refused = self._resting = self._rung = False
        self._late_at_ns = 0  # when the rest of its input has to wait for the next turn
        self._done = 0  # messages of the last event that are done with
        self._behind_size_bytes = 0  # said while the other server did not take what was there
        self._leaving: tuple[CloseReason, bool] | None = None

    @property
    def subscription_count(self) -> int:
        """How many things the other server wants."""
        return len(self._interest)

    @property
    def rtt_ns(self) -> int:
        """How long the last PING took to be answered."""
        return self._pings.rtt_ns

    @property
    def explicit(self) -> bool:
        """Whether the configuration names the server."""
        return any(solicitor.explicit for solicitor in self.solicitors)

    def connect_urls(self) -> tuple[str, ...]:
        """Where clients find the other server, if they should."""
        return () if self.info.ldm else self.info.connect_urls

    # -- the beginning ---------------------------------------------------------------------------------------------

    def opened(self, effects: list[Effect]) -> None:
        """Say who we are; within TLS, if routes have it. Whoever dials begins that beforehand."""
        cluster = self._cluster
        cluster.wait_for(self)
        if self.dialled:
            solicitor = self.solicitors[0]
            connect = RouteConnect(
                headers=True,
                name=self._house.info.server_id,
                cluster=cluster.name,
                cluster_dynamic=cluster.dynamic,
                user=solicitor.user,
                password=solicitor.password,
                tls_required=cluster.facts.make_tls is not None,
            )
            effects.append(Send(write_connect(connect) + write_info(cluster.info(gossip_mode=self.gossip_mode))))
            self._pings.start(effects)
            return
        if cluster.facts.make_tls is not None:
            effects.append(Upgrade(cluster.facts.make_tls()))
        else:
            self._greet(effects)

    def upgraded(self, effects: list[Effect]) -> None:
        """Go on within TLS."""
        if not self.dialled:
            self._greet(effects)

    def upgrade_failed(self, reason: str, effects: list[Effect]) -> None:
        """Say nothing: the other server does not expect plain text. Observed on nats-server 2.15.2, also if it was silent."""
        self._complain("NATS route %s: TLS failed: %s", reason)
        self.end_reason = f"TLS failed: {reason}"

    def _greet(self, effects: list[Effect]) -> None:
        """Welcome who has dialled us."""
        facts = self._cluster.facts
        effects.append(Send(write_info(self._cluster.info())))
        if facts.user:
            effects.append(SetTimer(TimerName.HANDSHAKE, self._house.clock.monotonic_ns() + facts.auth_timeout_ns))
        self._pings.start(effects)

    # -- input -----------------------------------------------------------------------------------------------------

    def feed(self, view: memoryview, effects: list[Effect]) -> int:
        """Carry out every line that has come whole; what takes too long is left for the next turn, piece by piece."""
        decoder = self._decoder
        self._late_at_ns = self._pings.heard() + ROUTE_NS_PER_TURN_MAX
        self.heard_at_ns = self._house.clock.wall_ns()
        consumed = 0
        piece = max(ROUTE_PIECE_SIZE_BYTES, self.need)
        while True:
            events, count = decoder.feed(view[consumed : consumed + piece])
            consumed += count
            for event in events:
                self._handlers[type(event)](self, event, effects)
                if self._halted:
                    return consumed
                if type(event) is Publishes and (self._done < event.batch.count or (event is not events[-1] and self._is_late())):
                    # What is behind comes again.
                    decoder.rewind()
                    self.need = 1
                    self._rest(effects)
                    return consumed - count + event.end_of(self._done)
            left = len(view) - consumed
            self.need = max(decoder.need, 1)
            if left < self.need:
                return consumed
            # What is larger than a piece is looked at once more, with all that there is.
            piece = max(ROUTE_PIECE_SIZE_BYTES, self.need) if count else left
            if count and self._is_late():
                self._rest(effects)
                return consumed

    def _is_late(self) -> bool:
        """Say whether what the other server says has taken long enough in this turn."""
        return self._house.clock.monotonic_ns() >= self._late_at_ns

    def _rest(self, effects: list[Effect]) -> None:
        """Go on in the next turn."""
        self._resting = True
        effects.append(Pause())
        self._ring()

    def _connect(self, event: Connect, effects: list[Effect]) -> None:
        """See who dials us. Who was dialled, and those who say it again, mean nothing by it."""
        if self._connected:
            return
        cluster = self._cluster
        connect = parse_route_connect(event.body)
        if connect is None:
            self._close(CloseReason.PROTOCOL_VIOLATION, effects)
            return
        admitted = cluster.admits(connect.user, connect.password)
        if isinstance(admitted, PasswordCheck):
            # Input stops here until that is answered.
            self._halted = True
            self._asked = connect
            # It has said who it is: what takes time from here on is ours.
            effects.append(SetTimer(TimerName.HANDSHAKE, None))
            request = replace(admitted, remote_host=self.peer.remote_host)
            effects.append(Ask(0, request, self._house.clock.monotonic_ns() + PASSWORD_ANSWER_NS_MAX))
        else:
            self._conclude(connect, effects, admitted=admitted)

    def answered(self, token: int, answer: object, effects: list[Effect]) -> None:
        """Go on where a password had to be looked at."""
        assert self._asked is not None
        connect, self._asked = self._asked, None
        self._halted = False
        self._conclude(connect, effects, admitted=answer is True)

    def _conclude(self, connect: RouteConnect, effects: list[Effect], *, admitted: bool) -> None:
        """Let who dials us come in, or not."""
        cluster = self._cluster
        if not admitted:
            self._complain("NATS route %s: wrong user or password")
            self._fail(problems.AUTH_VIOLATION, CloseReason.AUTH_VIOLATION, effects)
            return
        problem = route_connect_problem(connect)
        if problem is not None:
            self._fail(*problem, effects)
        elif not cluster.agree(connect.cluster, dynamic=connect.cluster_dynamic, route=self):
            self._complain("NATS route %s: is of the cluster %r, not %r", connect.cluster, cluster.name, level=logging.ERROR)
            text = problems.cluster_name_conflict(connect.cluster.encode(errors="replace"), cluster.name.encode(errors="replace"))
            self._fail(text, CloseReason.CLUSTER_NAME_CONFLICT, effects)
        else:
            self._connected = True
            self._headers = connect.headers
            self._verbose = connect.verbose
            self._name = connect.name
            effects.append(SetTimer(TimerName.HANDSHAKE, None))

    def _hear_info(self, event: Info, effects: list[Effect]) -> None:
        info = parse_info(event.body)
        if info is None:
            self._close(CloseReason.PROTOCOL_VIOLATION, effects)
        elif self.info is _NOBODY:
            self._begin(info, effects)
        elif info.route_acc_add_reqid:
            # Asked when an account is to have a connection of its own: here none has.
            effects.append(Send(write_info(replace(self._cluster.info(), route_acc_add_reqid=info.route_acc_add_reqid))))
        elif info.gateway:
            return
        elif info.server_id != self.info.server_id:
            self._cluster.hear(info)
        else:
            self.info = info
            self._cluster.tell_clients()

    def _begin(self, info: ServerInfo, effects: list[Effect]) -> None:
        """The other server has said who it is: from here on this is a route, or is none."""
        cluster = self._cluster
        problem = self._problem_of(info)
        if problem is not None:
            self._fail(problem, CloseReason.PROTOCOL_VIOLATION, effects)
            return
        if info.cluster and not cluster.agree(info.cluster, dynamic=info.cluster_dynamic, route=self):
            self._refused = True
            self._close(CloseReason.CLUSTER_NAME_CONFLICT, effects)
            self.end_reason = f"the other server is of the cluster {info.cluster!r}, not {cluster.name!r}"
            return
        if not info.server_id:
            info = replace(info, server_id=self._name)
        self.info = info
        reason = cluster.register(self, info)
        if reason is not None:
            self._refused = reason is not CloseReason.DUPLICATE_ROUTE
            self._close(reason, effects)
            return
        self._headers = info.headers
        self._whole = cluster.accounts.whole()
        self._say_more(effects)

    def _problem_of(self, info: ServerInfo) -> bytes | None:
        """Say what the other server asks for and cannot have."""
        if info.route_account:
            account = info.route_account.encode(errors="replace")
            if info.route_account == SYSTEM_ACCOUNT or account in self._cluster.accounts.by_name:
                return problems.no_route_for(account)
            return problems.unknown_account(account)
        if info.compression not in COMPRESSIONS:
            return problems.unsupported_compression(info.compression.encode(errors="replace"))
        return None

    def _ping(self, event: Ping, effects: list[Effect]) -> None:
        effects.append(Send(PONG))

    def _pong(self, event: Pong, effects: list[Effect]) -> None:
        self._pings.answered()

    def _subscribe(self, event: RemoteSubscribe, effects: list[Effect]) -> None:
        if not self.target.closed:
            self._interest.add(event)
        self._assent(1, effects)

    def _unsubscribe(self, event: RemoteUnsubscribe, effects: list[Effect]) -> None:
        if not self.target.closed:
            self._interest.remove(event)
        self._assent(1, effects)

    def _assent(self, count: int, effects: list[Effect]) -> None:
        """Answer who wants an answer to everything, which servers do not."""
        if self._verbose:
            effects.append(Send(ok_lines(count)))

    def _publishes(self, event: Publishes, effects: list[Effect]) -> None:
        """Hand messages on, account by account. What is of no account that is known here concerns nobody."""
        batch = event.batch
        self.bulky = event.size_bytes >= NATS_BULKY_SIZE_BYTES * batch.count
        self._house.broker.live.stored = None
        if event.unusual and self.info.polymq:
            hear_marks(batch)
        accounts = self._cluster.accounts.by_name
        watched = self._cluster.facts.rules.imports is not None
        first = 0
        while first < batch.count and not (first and self._is_late()):
            end = end_of_namespace(batch, first)
            row = COLUMNS * first
            at = batch.rows[row + ACCOUNT_AT]
            account = accounts.get(bytes(batch.view[at : at + batch.rows[row + ACCOUNT_SIZE]]))
            if account is not None:
                part = batch if end - first == batch.count else batch.part(first, end - first)
                end = first + (self._publish_allowed if watched else self._publish_some)(part, account.space)
                if end < first + part.count:
                    first = end
                    break
            first = end
        self._done = first
        self.in_message_count += first
        self.in_size_bytes += event.payloads_size_bytes(first)
        self._assent(first, effects)
        live = self._house.broker.live
        stored, live.stored = live.stored, None
        if stored is not None and stored.tickets:
            # Nobody waits for that on a route; but it is not read while the disk does not keep up.
            effects.append(SendAfterEach(stored.tickets, [0] * len(stored.tickets), b"", _say_nothing))

    def _publish_some(self, batch: LiveBatch, space: LiveSpace) -> int:
        """Hand on as many messages as there is time for; returns how many that are."""
        return space.publish_some(batch, self.target, self._is_late)[0]

    def _publish_allowed(self, batch: LiveBatch, space: LiveSpace) -> int:
        """Hand on what may come in, as long as there is time; returns how many messages are done with."""
        may_import = self._cluster.facts.rules.may_import
        first = 0
        while first < batch.count and not (first and self._is_late()):
            end = next_forbidden(batch, first, may_import)
            if end > first:
                first += self._publish_some(batch.part(first, end - first), space)
            if first == end:
                first = min(end + 1, batch.count)  # and leave that out
        return first

    def _leave_out(self, event: LeftOut, effects: list[Effect]) -> None:
        self.left_out_count += 1
        if self.left_out_count == 1:
            log.error(
                "NATS route %s: a message of %d bytes on %r is left out, as all above %d bytes are",
                self.peer.address,
                event.size_bytes,
                event.subject,
                self._house.settings.routed_payload_size_bytes_max,
            )

    def _violation(self, event: Violation, effects: list[Effect]) -> None:
        self._complain("NATS route %s: %s", event.text.decode(errors="replace"))
        self._fail(event.text, event.reason, effects)

    def _silent_close(self, event: SilentClose, effects: list[Effect]) -> None:
        self._complain("NATS route %s: a line that makes no sense")
        self._close(event.reason, effects)

    def _peer_error(self, event: PeerError, effects: list[Effect]) -> None:
        # A newer server tries whether its own account can have a connection of its own, and says this when it cannot.
        level = logging.WARNING if self.dialled or self.info is not _NOBODY else logging.DEBUG
        self._complain("NATS route %s: the other server says %s", event.text.decode(errors="replace"), level=level)
        self._refused = True
        self._close(CloseReason.PARSE_ERROR, effects)
        self.end_reason = f"the other server says {event.text.decode(errors='replace')}"

    def _fail(self, text: bytes, reason: CloseReason, effects: list[Effect]) -> None:
        effects.append(Send(error_line(text)))
        self._close(reason, effects)

    def _close(self, reason: CloseReason, effects: list[Effect], *, at_once: bool = False) -> None:
        self._halted = True
        self._cluster.wait_no_more(self)
        self.end_reason = reason.value
        effects.append(Close(reason.value, at_once=at_once))

    def _complain(self, text: str, *more: object, level: int = logging.WARNING) -> None:
        """Have it logged, unless there is too much of its sort. `text` has this connection's address first."""
        self._cluster.complaints.say(level, text, self.peer.address, *more)

    # -- output ----------------------------------------------------------------------------------------------------

    def say(self, line: bytes) -> None:
        """Have a line written before any message that is delivered from now on."""
        self._lines += line
        if self._full:
            self._behind_size_bytes += len(line)
            if self._behind_size_bytes > ROUTE_PENDING_SIZE_BYTES_MAX:
                self.leave(CloseReason.SLOW_CONSUMER_PENDING, at_once=True)
        self._ring()

    def _ring(self) -> None:
        if not self._rung:
            self._rung = True
            self.ring()

    def _say_more(self, effects: list[Effect]) -> None:
        """Go on to say what is wanted here: a part in each turn, as long as the other server takes it."""
        if self._whole is not None and not self._full:
            lines = list(islice(self._whole, ROUTE_LINES_PER_TURN_MAX))
            if lines:
                effects.append(Send(b"".join(lines)))
            if len(lines) < ROUTE_LINES_PER_TURN_MAX:
                self._whole = None
            else:
                self._ring()

    def deliver_live(self, batch: LiveBatch, target: Target, outbox: Outbox, sheet: LiveSheet | None) -> None:
        """Write RMSG lines straight from the publisher's buffer into the outbox, behind what is to be said before."""
        if self._lines:
            outbox.write(bytes(self._lines))
            self._lines.clear()
        pairs, count = target.pairs, target.pair_count
        if self._cluster.facts.rules.exports is not None:
            pairs, count = self._exportable(batch, pairs, count)
        if not count:
            return
        account = self._cluster.accounts.by_number[pairs[1]]
        if self.info.polymq:
            if target.queues:
                tell_directed(batch, target)
            tell_kept(batch, target)
        routed = Routed(pairs, count, account.name, target.queues, self._headers)
        size = write_routed(batch, routed, outbox, sheet, waiting_max=ROUTE_PENDING_SIZE_BYTES_MAX)
        if size < 0:
            self.leave(CloseReason.SLOW_CONSUMER_PENDING, at_once=True)
            return
        if outbox.size_bytes > ROUTE_PRESSED_SIZE_BYTES:
            self._house.pressed = True
        self.out_message_count += count
        self.out_size_bytes += size

    def _exportable(self, batch: LiveBatch, pairs: memoryview, count: int) -> tuple[memoryview, int]:
        """Leave out what may not go out."""
        rules = self._cluster.facts.rules
        left = array("i")
        for index in range(count):
            if rules.may_export(batch.subject(pairs[2 * index])):
                left.extend(pairs[2 * index : 2 * index + 2])
        return memoryview(left), len(left) // 2

    def full(self, effects: list[Effect]) -> None:
        """Say nothing more of what is wanted until there is room; changes of it and messages are not held."""
        self._full = True

    def writable(self, effects: list[Effect]) -> None:
        """Go on with that."""
        self._full = False
        self._behind_size_bytes = 0
        self._say_more(effects)

    # -- time and the end ------------------------------------------------------------------------------------------

    def timer(self, name: TimerName, effects: list[Effect]) -> None:
        """Ping, or give up waiting."""
        if name is TimerName.HANDSHAKE:
            self._fail(problems.AUTH_TIMEOUT, CloseReason.AUTH_TIMEOUT, effects)
        elif name is TimerName.HEARTBEAT:
            pinged = self._pings.due(effects)
            if pinged is None:
                self._fail(problems.STALE_CONNECTION, CloseReason.STALE_CONNECTION, effects)
            elif pinged:
                effects.append(Send(PING))

    def is_silent(self) -> bool:
        """Say whether the other server is probably not there any more."""
        return self._pings.silent_ns() >= _SILENT_NS

    def probe(self) -> None:
        """Find out whether the other server is there, if that is not being found out already."""
        if self._pings.ask():
            self.say(PING)

    def leave(self, reason: CloseReason, *, at_once: bool = False) -> None:
        """Close in this turn; nothing more is given to the other server from here on."""
        if self._leaving is None:
            self._leaving = reason, at_once
            self._house.broker.live.dismiss(self.target)
            self._ring()

    def adopt(self, solicitors: list[Solicitor]) -> None:
        """Tell these when this route ends, for they have dialled the same server."""
        self.solicitors += solicitors
        for solicitor in solicitors:
            solicitor.settled(self.info.server_id)

    def take_solicitors(self) -> list[Solicitor]:
        """Give them away."""
        taken, self.solicitors = self.solicitors, []
        return taken

    def woken(self, effects: list[Effect]) -> None:
        """Do what was put off."""
        self._rung = False
        if self._resting:
            self._resting = False
            effects.append(Resume())
        if self._leaving is not None:
            reason, at_once = self._leaving
            self._complain("NATS route %s: closed: %s", reason.value)
            self._close(reason, effects, at_once=at_once)
            return
        if self._lines:
            effects.append(Send(bytes(self._lines)))
            self._lines.clear()
        self._say_more(effects)

    def stopping(self, effects: list[Effect]) -> None:
        """Close, and dial no more."""
        self._cluster.stopping = True
        self._close(CloseReason.SERVER_SHUTDOWN, effects)

    def ended(self) -> None:
        """What the other server wanted goes, and who has dialled it is told."""
        self._house.broker.live.dismiss(self.target)
        self._interest.forget()
        self._whole = None
        self._cluster.left(self)
        for solicitor in self.take_solicitors():
            solicitor.lost(self.end_reason, refused=self._refused)

    _handlers: ClassVar[Mapping[type[Event], Callable[[RouteGateway, Any, list[Effect]], None]]] = {
        Connect: _connect,
        Info: _hear_info,
        LeftOut: _leave_out,
        PeerError: _peer_error,
        Ping: _ping,
        Pong: _pong,
        Publishes: _publishes,
        RemoteSubscribe: _subscribe,
        RemoteUnsubscribe: _unsubscribe,
        SilentClose: _silent_close,
        Violation: _violation,
    }


def _say_nothing(_reason: str) -> bytes:
    """Say so much if what a route has brought could not be stored."""
    return b""
