"""One NSQ connection: the decoder's events become calls on a Session, deliveries become message frames.

The decoder keeps the connection's state and nsqd's order of errors; this file keeps what is agreed with the client,
its timers and its subscription. Runs of publishes that share a commit share one answer. Read next: `refusals.py`.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from polymq.core.views import PeerView
from polymq.errors import Refusal, RefusalCode
from polymq.gateways.contract import HANDSHAKE_TIMEOUT, BaseGateway
from polymq.gateways.effects import Close, Flush, Send, SendAfter, SendAfterEach, SetTimer, TimerName
from polymq.gateways.lifecycle import Liveness, Sign
from polymq.gateways.login import Credentials, Denied
from polymq.gateways.nsq.auth import NEVER_NS, Doorkeeper, auth_answer
from polymq.gateways.nsq.negotiation import Negotiation
from polymq.gateways.nsq.refusals import publish_refused, settle_refused, subscribe_refused
from polymq.protocols.nsq import problems
from polymq.protocols.nsq.decode import Decoder
from polymq.protocols.nsq.encode import (
    CLOSE_WAIT_FRAME,
    HEARTBEAT_FRAME,
    OK_FRAME,
    encode_messages,
    error_frame,
    frames_size_bytes,
    ok_frames,
    response_frame,
)
from polymq.protocols.nsq.events import (
    Auth,
    Cls,
    Finish,
    ForeignId,
    Identify,
    Nop,
    Publish,
    PublishBegun,
    Ready,
    Requeue,
    SilentClose,
    Subscribe,
    Touch,
    Violation,
)
from polymq.protocols.nsq.identify import first_agreement, negotiate
from polymq.protocols.nsq.names import is_ephemeral
from polymq.protocols.nsq.settings import MAGIC
from polymq.protocols.nsq.states import Command

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polymq.core.group import Delivery, Subscription
    from polymq.core.ports import Ticket
    from polymq.core.session import Session
    from polymq.gateways.contract import Peer
    from polymq.gateways.effects import Effect
    from polymq.gateways.login import Login, Logins
    from polymq.gateways.outbox import Outbox
    from polymq.protocols.nsq.events import Event
    from polymq.protocols.nsq.identify import Agreement
    from polymq.protocols.nsq.settings import NsqSettings
    from polymq.wire.tls import TlsLayer

__all__ = ["NsqGateway"]

_NS_PER_MS: Final = 1_000_000
# The number by which record batches say that they came in through NSQ (docs/INTERNALS.md section 2).
_ORIGIN: Final = 1
# Every client asks for its output to be flushed after 250 ms at the latest; we flush at the end of every turn. Only
# who asks for longer than that wants to wait.
_DELAY_MS_TAKEN_FOR_A_HABIT: Final = 250

log = logging.getLogger(__name__)


class NsqGateway(BaseGateway):
    """The server's side of one NSQ connection."""

    def __init__(
        self,
        session: Session,
        peer: Peer,
        settings: NsqSettings,
        monotonic_ns: Callable[[], int],
        make_tls: Callable[[], TlsLayer] | None = None,
        logins: Logins | None = None,
    ) -> None:
        assert make_tls is not None or not settings.tls
        self.need = len(MAGIC)
        self._session = session
        self._peer = peer
        self._settings = settings
        self._monotonic_ns = monotonic_ns
        self._decoder = Decoder(settings)
        self._decoder.tls_missing = settings.tls_required
        self._negotiation = Negotiation(make_tls, monotonic_ns)
        self._upgrading = False
        self._agreement: Agreement = first_agreement(settings)
        self._first_agreement = self._agreement
        self._identified = False
        self._greeted = False
        self._closing = False
        self._halted = False  # no event may be handled: closing, or somebody is being asked
        self._doorkeeper = Doorkeeper(logins, session, monotonic_ns) if logins is not None else None
        self._login_ends_ns = NEVER_NS
        self._liveness = Liveness(monotonic_ns)
        self._subscription: Subscription | None = None
        self._hold_below = 0
        self._left_out = session.broker.left_out.of("nsq")
        # Publishes that are to be answered when `_ok_ticket` is durable, behind those to other partitions before them.
        self._ok_ticket: Ticket | None = None
        self._ok_count = 0
        self._ok_tickets: list[Ticket] = []
        self._ok_sizes: list[int] = []
        self._ok_command = Command.PUB
        self._topic_name = ""
        self._topic_bytes = b""
        self._describe()

    # -- input -----------------------------------------------------------------------------------------------------

    def opened(self, effects: list[Effect]) -> None:
        """Wait for the client as long as for one that falls silent later; nsqd would wait for ever."""
        self._liveness.expect(self._agreement.heartbeat_interval_ms * _NS_PER_MS, effects)

    def feed(self, view: memoryview, effects: list[Effect]) -> int:
        """Carry out every command that has come whole."""
        decoder = self._decoder
        now_ns = self._monotonic_ns()
        if now_ns >= self._login_ends_ns:
            self._expire()
        consumed = 0
        while True:
            events, count = decoder.feed(view[consumed:] if consumed else view)
            consumed += count
            if count:  # half a command is no sign of life
                self._liveness.heard(now_ns)
            left = iter(events)
            for event in left:
                self._handlers[type(event)](self, event, effects)
                if self._halted:
                    break
            if decoder.need or self._halted:
                break
            if self._upgrading:  # what follows has to be read differently
                self._upgrading = False
                self.need = 1
                return consumed
        if self._closing:
            return consumed
        if self._doorkeeper is not None and self._halted:
            self._doorkeeper.hold(left)
        if self._ok_count:
            self._answer(effects)
        self.need = decoder.need or 1
        if not self._greeted:
            self._greeted = True
            self._start_heartbeats(effects)
        return consumed

    def eof(self, effects: list[Effect]) -> None:
        """Say what a client that only closed its sending side can still read."""
        if not self._closing:
            for event in self._decoder.eof():
                self._handlers[type(event)](self, event, effects)

    def _publish(self, event: Publish, effects: list[Effect]) -> None:
        topic = event.topic
        if topic != self._topic_bytes:
            self._topic_bytes = topic
            self._topic_name = topic.decode("ascii")
        try:
            if topic.endswith(b"#ephemeral"):
                self._session.ensure_topic(self._topic_name, ephemeral=True)
            ticket = self._session.publish(self._topic_name, event.batch, origin=_ORIGIN, delay_ns=event.delay_ms * _NS_PER_MS)
        except Refusal as refusal:
            if refusal.code is RefusalCode.LOGIN_EXPIRED:
                self._renew(event, effects)
            else:
                self._fail(publish_refused(event.command, topic, refusal), effects)
            return
        if ticket is not self._ok_ticket or event.command is not self._ok_command:
            if self._ok_count:
                if event.command is self._ok_command:
                    self._turn_page()
                else:
                    self._answer(effects)
            self._ok_ticket = ticket
            self._ok_command = event.command
        self._ok_count += event.answers

    def _turn_page(self) -> None:
        """Count what is answered when another ticket is durable."""
        assert self._ok_ticket is not None
        self._ok_tickets.append(self._ok_ticket)
        self._ok_sizes.append(self._ok_count * len(OK_FRAME))
        self._ok_count = 0

    def _answer(self, effects: list[Effect]) -> None:
        """Answer the publishes so far: nothing may be sent before their answers."""
        assert self._ok_ticket is not None
        failure = _FAILURES[self._ok_command]
        if self._ok_tickets:
            self._turn_page()
            tickets, self._ok_tickets = self._ok_tickets, []
            sizes, self._ok_sizes = self._ok_sizes, []
            effects.append(SendAfterEach(tickets, sizes, ok_frames(sum(sizes) // len(OK_FRAME)), failure))
        else:
            effects.append(SendAfter(self._ok_ticket, ok_frames(self._ok_count), failure))
        self._ok_count = 0
        self._ok_ticket = None

    def _send(self, frame: bytes, effects: list[Effect]) -> None:
        if self._ok_count:
            self._answer(effects)
        effects.append(Send(frame))

    def _fail(self, text: bytes, effects: list[Effect]) -> None:
        self._send(error_frame(text), effects)
        effects.append(Close(text.decode("utf-8", "replace")))
        self._closing = self._halted = True

    def _violation(self, event: Violation, effects: list[Effect]) -> None:
        self._fail(event.text, effects)

    def _silent_close(self, event: SilentClose, effects: list[Effect]) -> None:
        if self._ok_count:
            self._answer(effects)
        effects.append(Close("command line too long"))
        self._closing = self._halted = True

    def _publish_begun(self, event: PublishBegun, effects: list[Effect]) -> None:
        try:
            self._session.ensure_topic(event.topic.decode("ascii"), ephemeral=is_ephemeral(event.topic))
        except Refusal as refusal:
            if refusal.code is RefusalCode.LOGIN_EXPIRED:
                self._renew(event, effects)
            else:
                self._fail(publish_refused(Command.MPUB, event.topic, refusal), effects)

    def _nop(self, event: Nop, effects: list[Effect]) -> None:
        """Any command says that the client is alive; that was noted when it was read."""

    # -- negotiation -----------------------------------------------------------------------------------------------

    def _identify(self, event: Identify, effects: list[Effect]) -> None:
        answer = negotiate(event.body, self._settings, self._agreement)
        if isinstance(answer, bytes):
            self._fail(answer, effects)
            return
        if self._negotiation.contradicts(answer):
            self._fail(problems.upgrade_failed("the connection has been upgraded already"), effects)
            return
        self._send(response_frame(answer.reply), effects)
        self._agreement = answer
        self._decoder.heartbeats = answer.heartbeat_interval_ms > 0
        if self._identified:
            # Only the first IDENTIFY sets what a delivery depends on; the read deadline follows every one. Observed on 1.3.0.
            self._liveness.expect(answer.heartbeat_interval_ms * _NS_PER_MS, effects)
        else:
            self._identified = True
            self._greeted = True
            self._first_agreement = answer
            self._start_heartbeats(effects)
            self._start_gathering(effects)
        self._describe()
        self._upgrading = self._negotiation.begin(answer, effects)

    def upgraded(self, effects: list[Effect]) -> None:
        """Say OK inside the new layer, and go on to the next."""
        self._negotiation.upgraded(effects)
        self._decoder.tls_missing = self._settings.tls_required and not self._negotiation.has_tls
        self._describe()

    def upgrade_failed(self, reason: str, effects: list[Effect]) -> None:
        """Say so in plain text, as nsqd does, whether the client understands it or not."""
        if reason == HANDSHAKE_TIMEOUT:
            reason = f"read tcp {self._peer.listener}->{self._peer.address}: {reason}"
        effects.append(Send(self._negotiation.failure(reason)))

    def _start_heartbeats(self, effects: list[Effect]) -> None:
        self._liveness.start(self._agreement.heartbeat_interval_ms * _NS_PER_MS, effects)

    def _start_gathering(self, effects: list[Effect]) -> None:
        """Gather message frames for a client that asked for it; everybody else is served at once."""
        timeout_ms = self._agreement.output_buffer_timeout_ms
        if timeout_ms > _DELAY_MS_TAKEN_FOR_A_HABIT:
            self._hold_below = self._agreement.output_buffer_size_bytes
            effects.append(SetTimer(TimerName.FLUSH, self._monotonic_ns() + timeout_ms * _NS_PER_MS))

    # -- who is there ----------------------------------------------------------------------------------------------

    def _auth(self, event: Auth, effects: list[Effect]) -> None:
        doorkeeper = self._doorkeeper
        if doorkeeper is None:
            self._fail(problems.AUTH_DISABLED, effects)
        elif doorkeeper.login is not None:
            self._fail(problems.AUTH_SET, effects)
        else:
            if self._ok_count:
                self._answer(effects)
            credentials = Credentials(event.secret, self._peer.remote_host, self._negotiation.has_tls, self._negotiation.common_name)
            self._conclude(doorkeeper.begin(credentials, effects), effects)

    def _expire(self) -> None:
        assert self._doorkeeper is not None
        self._doorkeeper.expire()
        self._login_ends_ns = NEVER_NS

    def _renew(self, event: Event, effects: list[Effect]) -> None:
        """Find out again who is there, before this event is handled."""
        assert self._doorkeeper is not None
        if self._ok_count:
            self._answer(effects)
        if self._conclude(self._doorkeeper.renew(event, effects), effects, renewed=True):
            self._handlers[type(event)](self, event, effects)

    def _conclude(self, verdict: Login | Denied | None, effects: list[Effect], *, renewed: bool = False) -> bool:
        """Act on what is known of who is there; whether to go on. None: that is being asked."""
        if verdict is None:
            self._halted = True
        elif isinstance(verdict, Denied):
            log.warning("NSQ client %s: AUTH failed: %s", self._peer, verdict.reason)
            self._fail(problems.AUTH_FAILED, effects)
        elif not renewed and not verdict.permission_count:
            self._fail(problems.AUTH_EMPTY, effects)
        else:
            assert self._doorkeeper is not None
            self._login_ends_ns = self._doorkeeper.ends_ns
            self._describe()
            if not renewed:
                self._send(response_frame(auth_answer(verdict)), effects)
            return True
        return False

    def answered(self, token: int, answer: object, effects: list[Effect]) -> None:
        """Go on where somebody had to be asked, with what came behind."""
        doorkeeper = self._doorkeeper
        assert doorkeeper is not None
        self._liveness.heard(self._monotonic_ns())
        self._halted = False
        first = doorkeeper.login is None
        if not self._conclude(doorkeeper.answered(token, answer, effects), effects, renewed=not first):
            return
        left = iter(doorkeeper.release())
        for event in left:
            self._handlers[type(event)](self, event, effects)
            if self._halted:
                break
        self._upgrading = False  # nothing is left of this input that a new layer could change: it ends at IDENTIFY
        doorkeeper.hold(left)
        if self._ok_count:
            self._answer(effects)

    def _describe(self) -> None:
        """Tell what is known of the client; until it says something, its address stands for its names."""
        agreement, negotiation = self._agreement, self._negotiation
        login = self._doorkeeper.login if self._doorkeeper is not None else None
        self._session.describe(
            PeerView(
                protocol="nsq",
                protocol_version="V2",
                remote_address=self._peer.address,
                connected_at_ns=self._session.peer.connected_at_ns,
                client_id=agreement.client_id if self._identified else self._peer.host,
                host_name=agreement.hostname if self._identified else self._peer.host,
                user_agent=agreement.user_agent,
                compression=negotiation.compression if negotiation.compression_is_on else "",
                tls=negotiation.tls_view,
                authenticated=login is not None,
                identity=login.principal.name if login is not None else "",
                identity_url=login.identity_url if login is not None else "",
                sample_percent=agreement.sample_percent,
            )
        )

    # -- consuming -------------------------------------------------------------------------------------------------

    def _subscribe(self, event: Subscribe, effects: list[Effect]) -> None:
        try:
            self._subscription = self._session.subscribe(
                event.topic.decode("ascii"),
                event.channel.decode("ascii"),
                listener=self,
                lease_ns=self._first_agreement.message_timeout_ms * _NS_PER_MS,
                sample_percent=self._first_agreement.sample_percent,
                ephemeral_topic=is_ephemeral(event.topic),
                ephemeral_group=is_ephemeral(event.channel),
            )
        except Refusal as refusal:
            if refusal.code is RefusalCode.LOGIN_EXPIRED:
                self._renew(event, effects)
            else:
                self._fail(subscribe_refused(event.topic, event.channel, refusal), effects)
            return
        if self._ok_count:
            self._answer(effects)
        effects.append(SendAfter(self._session.journaled(), OK_FRAME, _subscribe_failed, publishes=False))

    def _ready(self, event: Ready, effects: list[Effect]) -> None:
        assert self._subscription is not None
        self._session.credit(self._subscription, event.count)

    def _finish(self, event: Finish, effects: list[Effect]) -> None:
        assert self._subscription is not None
        failures = self._session.settle(self._subscription, event.ids, event.first, event.count)
        for index, code in failures:
            raw_id = b"%016x" % event.ids[index]
            self._send(error_frame(settle_refused(Command.FIN, raw_id, code)), effects)

    def _requeue(self, event: Requeue, effects: list[Effect]) -> None:
        assert self._subscription is not None
        try:
            self._session.requeue(self._subscription, event.id, delay_ns=event.delay_ms * _NS_PER_MS)
        except Refusal as refusal:
            text = settle_refused(Command.REQ, b"%016x" % event.id, refusal.code)
            self._send(error_frame(text), effects)

    def _touch(self, event: Touch, effects: list[Effect]) -> None:
        assert self._subscription is not None
        lease_ns_max = self._settings.message_timeout_ms_max * _NS_PER_MS
        try:
            self._session.extend(
                self._subscription,
                event.id,
                lease_ns=self._agreement.message_timeout_ms * _NS_PER_MS,
                lease_ns_max=lease_ns_max,
            )
        except Refusal as refusal:
            text = settle_refused(Command.TOUCH, b"%016x" % event.id, refusal.code)
            self._send(error_frame(text), effects)

    def _foreign_id(self, event: ForeignId, effects: list[Effect]) -> None:
        self._send(error_frame(problems.not_in_flight(event.command, event.raw_id)), effects)

    def _cls(self, event: Cls, effects: list[Effect]) -> None:
        assert self._subscription is not None
        self._subscription.closing = True
        self._session.credit(self._subscription, 0)
        if self._ok_count:
            self._answer(effects)
        # It confirms the settles before it, so it waits for the journal as the answer to a publish does for its log.
        effects.append(SendAfter(self._session.journaled(), CLOSE_WAIT_FRAME, _close_failed, publishes=False))

    # -- output ----------------------------------------------------------------------------------------------------

    def deliver(self, delivery: Delivery, outbox: Outbox) -> None:
        """Write message frames straight from the log into the outbox."""
        piece = delivery.slice
        at = outbox.reserve(frames_size_bytes(piece))
        outbox.advance(encode_messages(outbox.data, at, piece, delivery.attempts, self._left_out))
        if self._hold_below:
            subscription = delivery.subscription
            outbox.hold_below = self._hold_below if subscription.leased < subscription.credit else 0

    def full(self, effects: list[Effect]) -> None:
        """Take no more deliveries until what waits has been written."""
        if self._subscription is not None:
            self._session.hold(self._subscription, held=True)

    def writable(self, effects: list[Effect]) -> None:
        """Take deliveries again."""
        if self._subscription is not None:
            self._session.hold(self._subscription, held=False)

    # -- time and the end ------------------------------------------------------------------------------------------

    def timer(self, name: TimerName, effects: list[Effect]) -> None:
        """Send a heartbeat, end a silent connection, or flush what was gathered."""
        if name is TimerName.FLUSH:
            effects.append(Flush())
            timeout_ns = self._agreement.output_buffer_timeout_ms * _NS_PER_MS
            effects.append(SetTimer(TimerName.FLUSH, self._monotonic_ns() + timeout_ns))
            return
        if name is TimerName.HANDSHAKE:
            self._negotiation.moment_over(effects)
            self._describe()
            return
        if self._halted:
            self._liveness.heard(self._monotonic_ns())  # it is we who do not listen, as somebody is being asked
        sign = self._liveness.timer(name, effects)
        if sign is Sign.BEAT:
            effects.append(Send(HEARTBEAT_FRAME))
        elif sign is Sign.SILENCE:
            self.eof(effects)  # a body that has not come is an error, in the same words
            if not self._closing:
                effects.append(Close("no command within two heartbeat intervals"))

    def ended(self) -> None:
        """Leave: what is out comes back when its leases end."""
        self._session.close()

    _handlers: ClassVar[Mapping[type[Event], Callable[[NsqGateway, Any, list[Effect]], None]]] = {
        Publish: _publish,
        Finish: _finish,
        Nop: _nop,
        Identify: _identify,
        Auth: _auth,
        Subscribe: _subscribe,
        Ready: _ready,
        Requeue: _requeue,
        Touch: _touch,
        ForeignId: _foreign_id,
        Cls: _cls,
        PublishBegun: _publish_begun,
        Violation: _violation,
        SilentClose: _silent_close,
    }


def _subscribe_failed(reason: str) -> bytes:
    return error_frame(b"E_SUB_FAILED SUB failed " + reason.encode())


def _close_failed(_reason: str) -> bytes:
    """Say nothing: an answer would confirm settles that come back."""
    return b""


def _publish_failed(command: Command, reason: str) -> bytes:
    return error_frame(problems.publish_failed(command, reason.encode()))


_FAILURES: Final[Mapping[Command, Callable[[str], bytes]]] = {
    command: partial(_publish_failed, command) for command in (Command.PUB, Command.MPUB, Command.DPUB)
}
