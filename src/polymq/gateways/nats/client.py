"""One NATS client: the decoder's events become calls on a Session, live messages become MSG frames.

What is answered, and in which order, is nats-server's (`protocols/nats/problems.py` has the words). A run of messages
is handed on as a whole. Read next: `publishing.py` for what is published, `house.py` for what clients share.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar, Final

from polymq.core.access import ANONYMOUS, STRANGER, Principal
from polymq.core.interest.targets import Target
from polymq.core.views import PeerView
from polymq.errors import Refusal
from polymq.gateways.contract import BaseGateway
from polymq.gateways.effects import Ask, Close, Pause, Resume, Send, SetTimer, TimerName, Upgrade
from polymq.gateways.login import Denied, Login
from polymq.gateways.nats.pings import PingPolicy, Pings
from polymq.gateways.nats.publishing import Publishing
from polymq.gateways.nats.relogin import Revision, judge
from polymq.gateways.nats.sharing import Memberships
from polymq.gateways.nats.sheets import write_messages
from polymq.gateways.nats.subscribing import note_questions, refused, subscribe_problem
from polymq.limits import (
    NATS_BULKY_SIZE_BYTES,
    NATS_NS_PER_TURN_MAX,
    NATS_STALL_NS_MAX,
    NATS_STALL_PENDING_PART,
    NATS_STALL_SIZE_BYTES,
    PASSWORD_ANSWER_NS_MAX,
)
from polymq.protocols.nats import problems
from polymq.protocols.nats.commands import PeerKind
from polymq.protocols.nats.decode import Decoder
from polymq.protocols.nats.encode import OK, PING, PONG, SidTable, error_line
from polymq.protocols.nats.events import Connect, PeerError, Ping, Pong, Publishes, SilentClose, Subscribe, Unsubscribe, Violation
from polymq.protocols.nats.identity import make_nonce
from polymq.protocols.nats.info import FIRST_CONNECT, connect_problem, parse_connect
from polymq.protocols.nats.problems import CloseReason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polymq.core.group import Delivery
    from polymq.core.interest.targets import Entry
    from polymq.gateways.contract import Peer
    from polymq.gateways.effects import Effect
    from polymq.gateways.live_sheet import LiveSheet
    from polymq.gateways.nats.house import House, NatsAttempt
    from polymq.gateways.outbox import Outbox
    from polymq.protocols.nats.events import Event
    from polymq.protocols.nats.info import ClientConnect
    from polymq.wire.live import LiveBatch
    from polymq.wire.tls import TlsLayer

__all__ = ["NatsClient"]

# The first byte of a TLS handshake, which is no verb's.
_TLS_FIRST_BYTE: Final = 0x16
_NONCE_RANDOM_BYTES: Final = 11
_STALL_NS: Final = 10_000_000
_NS_PER_SECOND: Final = 1_000_000_000

log = logging.getLogger(__name__)


class NatsClient(BaseGateway):
    """The server's side of one NATS client's connection."""

    def __init__(self, house: House, peer: Peer) -> None:
        self._house = house
        self.peer = peer
        self.id = house.admit(self)
        nobody = house.logins.nobody
        self.session = house.broker.session(STRANGER if nobody is None else nobody)
        self.connected_at_ns = house.clock.wall_ns()
        self.connect: ClientConnect = FIRST_CONNECT
        self.tls: TlsLayer | None = None
        self.in_message_count = self.in_size_bytes = self.out_message_count = 0
        self.heard_at_ns = self.connected_at_ns
        self.subscriptions: dict[bytes, Entry] = {}
        self._decoder = Decoder(house.settings, PeerKind.CLIENT)
        self._decoder.connect_first = nobody is None
        self._target = Target(self)
        self._sids = SidTable()
        self._nonce = make_nonce(house.random_bytes(_NONCE_RANDOM_BYTES)) if house.logins.signed else ""
        self._pings = Pings(PingPolicy.of_clients(house.settings), house.clock.monotonic_ns)
        self._memberships = Memberships(house.work_groups, self._pings)
        self._attempt: NatsAttempt | None = None
        self._asked = 0
        self._awaited = False  # has to say something before a timer comes up
        self._connected = False  # has said CONNECT
        self._greeted = False  # … and had its first PONG behind it: from then on it may be told a new INFO
        self._headers = self._sniffs = self._halted = self._slow = False
        self._info_due = self._informed = self._doubted = self._outdated = False
        self._sent_away: CloseReason | None = None
        self._revision: Revision | None = None
        self._resting = False  # the rest of its input waits for the next turn
        self._late_at_ns = 0  # when that has to be
        self._done = 0  # messages of the last event that are done with
        self._reason = CloseReason.CLIENT_CLOSED
        self.stall_count = 0
        self.write_timeout_ns = house.settings.write_deadline_ns
        self._waiting_max = house.settings.pending_size_bytes_max
        self._pressed_above = int(house.settings.pending_size_bytes_max * NATS_STALL_PENDING_PART)
        self._verbose = FIRST_CONNECT.verbose
        self._answering = False  # by the session's rules
        self._publishing = Publishing(self.session, self._is_late)
        self._publishing.listen_as(self._target, self._sids, self.subscriptions)
        self._take_connect(FIRST_CONNECT)

    @property
    def out_size_bytes(self) -> int:
        """Bytes of the messages that it got: headers and payloads, as nats-server counts them."""
        return int(self._sids.payload_size_bytes)

    @property
    def rtt_ns(self) -> int:
        """How long the client took to answer the last PING; before that, to begin."""
        return self._pings.rtt_ns

    def sid_of(self, entry: Entry) -> bytes:
        """Say how the client calls one of its subscriptions."""
        return self._sids.sid(entry.tag)

    # -- the beginning ---------------------------------------------------------------------------------------------

    def opened(self, effects: list[Effect]) -> None:
        """Say who we are, or wait for a handshake."""
        house, tls = self._house, self._house.tls
        if tls is None or not tls.first:
            self._greet(effects)
        elif tls.fallback_ns:
            self._sniffs = True
            effects.append(SetTimer(TimerName.FLUSH, house.clock.monotonic_ns() + tls.fallback_ns))
        else:
            self._begin_tls(effects)
        if house.is_full():
            self._fail(problems.CONNECTIONS_EXCEEDED, CloseReason.CONNECTIONS_EXCEEDED, effects)

    def _greet(self, effects: list[Effect]) -> None:
        """Say who we are before anything else; then a handshake may come, or has to."""
        tls = self._house.tls
        self._informed = True
        effects.append(Send(self._info()))
        if tls is not None and tls.required:
            self._begin_tls(effects)
        else:
            self._sniffs = tls is not None
            self._begin(effects)

    def _info(self, *, connect_info: bool = False) -> bytes:
        return self._house.info_line(client_id=self.id, peer=self.peer, nonce=self._nonce, connect_info=connect_info)

    def _begin(self, effects: list[Effect]) -> None:
        """Start the clocks."""
        if self._house.logins.required:
            self._awaited = True
            effects.append(SetTimer(TimerName.HANDSHAKE, self._house.clock.monotonic_ns() + self._house.logins.timeout_ns))
        self._pings.wait(effects)

    def _expect_nothing(self, effects: list[Effect]) -> None:
        """Stop waiting for a login."""
        if self._awaited:
            self._awaited = False
            effects.append(SetTimer(TimerName.HANDSHAKE, None))

    def _begin_tls(self, effects: list[Effect]) -> None:
        assert self._house.tls is not None
        self._sniffs = False
        self.tls = self._house.tls.make()
        effects += (SetTimer(TimerName.FLUSH, None), Upgrade(self.tls, self._house.tls.timeout_ns))

    def upgraded(self, effects: list[Effect]) -> None:
        """Go on within TLS."""
        if not self._informed:
            self._informed = True
            effects.append(Send(self._info()))
        self._begin(effects)

    def upgrade_failed(self, reason: str, effects: list[Effect]) -> None:
        """Say nothing, as nats-server: whoever knows of TLS would not understand."""
        log.info("NATS client %s: TLS failed: %s", self.peer.address, reason)
        self._reason = CloseReason.TLS_HANDSHAKE

    def tell_info(self) -> None:
        """Have the client told what the house says now, if it understands that."""
        if self._greeted and self.connect.protocol:
            self._info_due = True
            self.ring()

    def limit_anew(self) -> None:
        """Take over what the house's settings say by now."""
        settings = self._house.settings
        self._decoder.limit(settings)
        self.write_timeout_ns = settings.write_deadline_ns
        self._waiting_max = settings.pending_size_bytes_max
        self._pressed_above = int(settings.pending_size_bytes_max * NATS_STALL_PENDING_PART)

    def reconsider(self) -> None:
        """Have it seen whether the client may stay, and what it may do: who may come in has changed."""
        if self._attempt is not None:
            self._outdated = True
        elif self.session.principal is not STRANGER:
            self._doubted = True
            self.ring()

    def _reconsider(self, effects: list[Effect]) -> None:
        self._doubted = False
        found = judge(self._house.logins, self.session.principal, self.connect, self._nonce, self.peer, self.tls)
        if isinstance(found, bytes):
            log.info("NATS client %s: may not stay", self.peer.address)
            if found:
                effects.append(Send(error_line(found)))
            self._close(CloseReason.AUTH_VIOLATION, effects)
        elif found != self.session.principal:
            self.session.login(found)
            self._take_connect(self.connect)
            self._revision = Revision(self._rules, self._target, self.subscriptions)
            self._memberships.revise(self.session, self._rules, effects)

    def _revise(self, revision: Revision, effects: list[Effect]) -> None:
        """Look at some of the subscriptions, and tell of those that are lost."""
        for sid, entry in revision.part():
            effects.append(Send(error_line(problems.subscription_revoked(entry.pattern, sid))))
            self._forget(entry)
        if revision.done:
            self._revision = None
            effects.append(Resume())  # it may have had something to say meanwhile
        else:
            self.ring()

    def send_away(self, reason: CloseReason = CloseReason.SERVER_SHUTDOWN) -> None:
        """Have the connection closed: the server is about to go, or (CONNECTIONS_EXCEEDED) there may be fewer by now."""
        self._sent_away = reason
        self.ring()

    # -- input -----------------------------------------------------------------------------------------------------

    def feed(self, view: memoryview, effects: list[Effect]) -> int:
        """Carry out every command that has come whole."""
        if self._slow:
            return len(view)  # it is about to be closed
        if self._revision is not None:
            effects.append(Pause())
            return 0
        if self._sniffs:
            self._sniffs = False
            # Where a handshake comes first, whatever comes is one.
            if view[0] == _TLS_FIRST_BYTE or not self._informed:
                self._begin_tls(effects)
                return 0
        house = self._house
        self._late_at_ns = self._pings.heard() + NATS_NS_PER_TURN_MAX
        self.heard_at_ns = house.clock.wall_ns()
        house.pressed = False
        consumed = self._hear(view, effects)
        if self._halted or self._slow:
            return consumed
        if house.pressed:
            self._stall(consumed, effects)
        elif self._resting:
            effects.append(Pause())
            self.ring()
        return consumed

    def _is_late(self) -> bool:
        """Say whether what the client says has taken long enough in this turn."""
        return self._house.clock.monotonic_ns() >= self._late_at_ns

    def _stall(self, size_bytes: int, effects: list[Effect]) -> None:
        """Give somebody who hardly keeps up the time to do it: say nothing more for a while, the longer the more was said."""
        house = self._house
        self._resting = False  # who is waited for gives it the rest of its input, too
        house.stall_count += 1
        self.stall_count += 1
        stall_ns = min(-(-size_bytes // NATS_STALL_SIZE_BYTES) * _STALL_NS, NATS_STALL_NS_MAX)
        effects += (Pause(), SetTimer(TimerName.RETRY, house.clock.monotonic_ns() + stall_ns))

    def _hear(self, view: memoryview, effects: list[Effect]) -> int:
        decoder = self._decoder
        consumed = 0
        while True:
            events, count = decoder.feed(view[consumed:] if consumed else view)
            consumed += count
            if self._awaited and events and type(events[0]) is not Connect:
                self._expect_nothing(effects)  # it is somebody who need not say who he is
            for event in events:
                self._handlers[type(event)](self, event, effects)
                if self._halted or self._slow:
                    return consumed
                if type(event) is Publishes and (self._done < event.batch.count or (event is not events[-1] and self._is_late())):
                    # What is behind comes again.
                    decoder.rewind()
                    self.need = 1
                    self._resting = True
                    return consumed - count + event.end_of(self._done)
            if decoder.need:
                self.need = decoder.need
                return consumed
            if consumed < len(view) and self._is_late():
                self.need = 1
                self._resting = True
                return consumed

    def _connect(self, event: Connect, effects: list[Effect]) -> None:
        connect = parse_connect(event.body, self.connect)
        if connect is None:
            self._close(CloseReason.PROTOCOL_VIOLATION, effects)
            return
        self.connect = connect
        self._authenticate(effects)

    def _authenticate(self, effects: list[Effect]) -> None:
        found = self._house.logins.begin(self.connect, self._nonce, self.peer, self.tls)
        if isinstance(found, Principal | Denied):
            self._conclude(found, effects)
        else:
            self._attempt = found
            self._ask(effects)

    def _ask(self, effects: list[Effect]) -> None:
        assert self._attempt is not None
        self._halted = True
        self._asked += 1
        # It has said who it is: what takes time from here on is ours, and no reason to give it up.
        self._expect_nothing(effects)
        due_ns = self._house.clock.monotonic_ns() + PASSWORD_ANSWER_NS_MAX
        effects.append(Ask(self._asked, self._attempt.question, due_ns))

    def answered(self, token: int, answer: object, effects: list[Effect]) -> None:
        """Go on where somebody had to be asked."""
        assert self._attempt is not None
        if self._outdated:
            self._outdated = self._halted = False
            self._attempt = None
            self._authenticate(effects)
            return
        found = self._attempt.take(answer)
        if found is None:
            self._ask(effects)
            return
        self._halted = False
        self._attempt = None
        self._conclude(found.principal if isinstance(found, Login) else found, effects)

    def _conclude(self, found: Principal | Denied, effects: list[Effect]) -> None:
        """Let the client in, or not."""
        if isinstance(found, Denied):
            log.warning("NATS client %s: %s", self.peer.address, found.reason)
            self._fail(problems.AUTH_VIOLATION, CloseReason.AUTH_VIOLATION, effects)
            return
        problem = connect_problem(self.connect)
        if problem is not None:
            self._fail(*problem, effects)
            return
        self._expect_nothing(effects)
        if self._connected or found is not self.session.principal:
            self._begin_anew()  # as with nats-server since 2.14
        if not self._connected:
            self._connected = True
            self._pings.start(effects)
        self.session.login(found)
        self._take_connect(self.connect)
        self._describe()
        if self._verbose:
            effects.append(Send(OK))

    def _take_connect(self, connect: ClientConnect) -> None:
        """Do as the client has asked for."""
        self._verbose = connect.verbose
        self._headers = self._decoder.headers = connect.headers
        self._decoder.pedantic = connect.pedantic
        self._rules = self.session.live
        self._answering = self._rules is not None and self._rules.answering
        self._publishing.take_connect(connect)

    def _describe(self) -> None:
        connect = self.connect
        self.session.describe(
            PeerView(
                protocol="nats",
                protocol_version=str(connect.protocol),
                remote_address=self.peer.address,
                connected_at_ns=self.connected_at_ns,
                client_id=connect.name,
                user_agent=f"{connect.lang}/{connect.version}" if connect.lang else "",
                authenticated=self.session.principal is not ANONYMOUS,
                identity="" if self.session.principal is ANONYMOUS else self.session.principal.name,
            )
        )

    def _ping(self, event: Ping, effects: list[Effect]) -> None:
        effects.append(Send(PONG))
        if self._connected and not self._greeted:
            self._greeted = True
            if self.connect.protocol:
                effects.append(Send(self._info(connect_info=True)))

    def _pong(self, event: Pong, effects: list[Effect]) -> None:
        self._pings.answered()
        self._memberships.answered()

    def _violation(self, event: Violation, effects: list[Effect]) -> None:
        self._fail(event.text, event.reason, effects)

    def _silent_close(self, event: SilentClose, effects: list[Effect]) -> None:
        self._close(event.reason, effects)

    def _peer_error(self, event: PeerError, effects: list[Effect]) -> None:
        self._close(CloseReason.PARSE_ERROR, effects)

    def _fail(self, text: bytes, reason: CloseReason, effects: list[Effect]) -> None:
        effects.append(Send(error_line(text)))
        self._close(reason, effects)

    def _close(self, reason: CloseReason, effects: list[Effect], *, at_once: bool = False) -> None:
        self._halted = True
        self._reason = reason
        effects.append(Close(reason.value, at_once=at_once))

    # -- publishing ------------------------------------------------------------------------------------------------

    def _publishes(self, event: Publishes, effects: list[Effect]) -> None:
        self._done = done = self._publishing.publish(event, effects)
        self.in_message_count += done
        self.in_size_bytes += event.payloads_size_bytes(done)
        self.bulky = event.size_bytes >= NATS_BULKY_SIZE_BYTES * event.batch.count

    # -- subscriptions ---------------------------------------------------------------------------------------------

    def _subscribe(self, event: Subscribe, effects: list[Effect]) -> None:
        problem = subscribe_problem(event, self._rules, self._house.settings, len(self.subscriptions) + len(self._memberships))
        if problem is None and event.sid not in self.subscriptions and event.sid not in self._memberships:
            try:
                self._take_up(event)
            except Refusal as refusal:
                problem = refused(refusal.code, event)
        if problem is not None:
            effects.append(Send(error_line(problem)))
        elif self._verbose:
            effects.append(Send(OK))

    def _take_up(self, event: Subscribe) -> None:
        if self._memberships.mean(event):
            self._memberships.join(event, self.session, self)
            return
        tag = self._sids.add(event.sid)
        try:
            self.subscriptions[event.sid] = self.session.listen(event.subject, self._target, tag=tag, queue=event.queue)
        except Refusal:
            self._sids.remove(tag)
            raise

    def _unsubscribe(self, event: Unsubscribe, effects: list[Effect]) -> None:
        if self._target.spent:
            self._forget_spent(self._target)
        self._memberships.leave(event.sid, event.deliveries_max)
        entry = self.subscriptions.get(event.sid)
        if entry is not None:
            if event.deliveries_max > entry.given:
                assert entry.interest is not None
                entry.interest.change(entry, limit=event.deliveries_max)
            else:
                self._forget(entry)
        if self._verbose:
            effects.append(Send(OK))

    def _forget(self, entry: Entry) -> None:
        """End a subscription."""
        del self.subscriptions[self._sids.sid(entry.tag)]
        self._house.broker.live.leave(entry)
        self._sids.remove(entry.tag)

    def _forget_spent(self, target: Target) -> None:
        """End the subscriptions that have had all that was asked for."""
        for entry in list(target.spent):
            self._forget(entry)
        target.spent.clear()

    def _begin_anew(self) -> None:
        """End all subscriptions, however many: they are given nothing any more, and are taken out little by little."""
        self._memberships.end()
        if self.subscriptions or self._target.hears is not None:
            self._house.broker.live.dismiss(self._target)
            sent_size_bytes = self._sids.payload_size_bytes
            self._target, self._sids, self.subscriptions = Target(self), SidTable(), {}
            self._sids.note_payload(sent_size_bytes)
            self._publishing.listen_as(self._target, self._sids, self.subscriptions)

    # -- output ----------------------------------------------------------------------------------------------------

    def deliver_live(self, batch: LiveBatch, target: Target, outbox: Outbox, sheet: LiveSheet | None) -> None:
        """Write MSG frames straight from the publisher's buffer into the outbox, or what another client was just told."""
        headers, waiting_max = self._headers, self._waiting_max
        if self._publishing.owed:
            written = self._publishing.write_owed(batch, outbox, headers=headers, waiting_max=waiting_max)
        else:
            written = write_messages(batch, target, self._sids, outbox, sheet, headers=headers, waiting_max=waiting_max)
        if not written:
            self._cut_off()
            return
        if outbox.size_bytes > self._pressed_above:
            self._house.pressed = True
        self.out_message_count += target.pair_count
        if self._answering:
            note_questions(self._rules, batch, target)
        if target.spent:
            self._forget_spent(target)

    def deliver(self, delivery: Delivery, outbox: Outbox) -> None:
        """Write what a work group gives."""
        count, size_bytes = self._memberships.deliver(delivery, outbox, headers=self._headers)
        self.out_message_count += count
        self._sids.note_payload(size_bytes)

    def full(self, effects: list[Effect]) -> None:
        """Have work groups wait."""
        self._memberships.hold(held=True)

    def writable(self, effects: list[Effect]) -> None:
        """Have them go on."""
        self._memberships.hold(held=False)

    def _cut_off(self) -> None:
        """Give up a client that does not keep up: it is told nothing, and gets nothing more."""
        if not self._slow:
            self._slow = True
            self._house.broker.live.dismiss(self._target)
            self.ring()

    # -- time and the end ------------------------------------------------------------------------------------------

    def timer(self, name: TimerName, effects: list[Effect]) -> None:
        """Ping, or give up waiting."""
        if name is TimerName.HANDSHAKE:
            self._fail(problems.AUTH_TIMEOUT, CloseReason.AUTH_TIMEOUT, effects)
        elif name is TimerName.RETRY:
            effects.append(Resume())
        elif name is TimerName.FLUSH:
            self._greet(effects)  # it waits for INFO, and knows nothing of a handshake before that
        elif name is TimerName.HEARTBEAT:
            pinged = self._pings.due(effects)
            if pinged is None:
                self._fail(problems.STALE_CONNECTION, CloseReason.STALE_CONNECTION, effects)
            elif pinged:
                effects.append(Send(PING))

    def woken(self, effects: list[Effect]) -> None:
        """Do what was put off."""
        if self._resting:
            self._resting = False
            effects.append(Resume())
        if self._slow:
            log.warning("NATS client %s does not keep up: closed", self.peer.address)
            self._close(CloseReason.SLOW_CONSUMER_PENDING, effects, at_once=True)
        elif self._sent_away is CloseReason.CONNECTIONS_EXCEEDED:
            self._fail(problems.CONNECTIONS_EXCEEDED, self._sent_away, effects)
        elif self._sent_away is not None:
            self._close(self._sent_away, effects)
        elif self._closed_reason is not None:  # of a work group: as with NSQ, whoever comes again makes it anew
            self._close(CloseReason.CLIENT_CLOSED, effects)
        else:
            if self._doubted:
                self._reconsider(effects)
            if self._revision is not None and not self._halted:
                self._revise(self._revision, effects)
            if self._info_due and not self._halted:
                self._info_due = False
                effects.append(Send(self._info()))

    def stopping(self, effects: list[Effect]) -> None:
        """Close."""
        self._close(CloseReason.SERVER_SHUTDOWN, effects)

    def ended(self) -> None:
        """Leave, with all subscriptions."""
        if self.overdue:
            self._reason = CloseReason.SLOW_CONSUMER_DEADLINE
            text = "NATS client %s does not keep up: it has taken nothing for %g s (write_deadline): closed"
            log.warning(text, self.peer.address, self.write_timeout_ns / _NS_PER_SECOND)
        self._house.dismiss(self, self._reason)
        self._house.broker.live.dismiss(self._target)
        self._memberships.end()
        self.session.close()

    _handlers: ClassVar[Mapping[type[Event], Callable[[NatsClient, Any, list[Effect]], None]]] = {
        Connect: _connect,
        PeerError: _peer_error,
        Ping: _ping,
        Pong: _pong,
        Publishes: _publishes,
        SilentClose: _silent_close,
        Subscribe: _subscribe,
        Unsubscribe: _unsubscribe,
        Violation: _violation,
    }
