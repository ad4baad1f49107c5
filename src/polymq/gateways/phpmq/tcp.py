"""One PHPMQ connection: the decoder's events become calls on a Session, deliveries become messages of type 003.

The protocol has no answers, so what it promises is in what is dispatched: a message in a slot that was full says that what had it is
settled. Therefore everything that goes out behind a settle waits for the journal, and behind a publish for its log; if that
fails the connection is closed. Whoever breaks the protocol, or is refused, is closed alone. Read next: `house.py`, docs/adr/0019.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, ClassVar, Final

from polymq.core.views import PeerView
from polymq.errors import Refusal
from polymq.gateways.contract import BaseGateway
from polymq.gateways.effects import Close, Pause, Resume, SendAfter, SendAfterEach, SetTimer, TimerName, Upgrade
from polymq.gateways.phpmq.refusals import REASONS
from polymq.phpmq_limits import EVENTS_PER_STEP_MAX, QUEUES_KNOWN_MAX, QUEUES_MADE_PER_TURN_MAX
from polymq.protocols.phpmq.decode import Decoder
from polymq.protocols.phpmq.encode import dispatch_head, dispatches_size_bytes, encode_dispatches
from polymq.protocols.phpmq.events import Consume, ForeignId, Publish, Remove, Requeue, Settle, Violation
from polymq.protocols.phpmq.names import topic_of
from polymq.protocols.phpmq.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polymq.core.group import Delivery, Subscription
    from polymq.core.ports import Ticket
    from polymq.core.session import Session
    from polymq.gateways.contract import Layer, Peer
    from polymq.gateways.effects import Effect
    from polymq.gateways.outbox import Outbox
    from polymq.gateways.phpmq.house import House
    from polymq.protocols.phpmq.events import Event

__all__ = ["PhpmqGateway"]

_NS_PER_S: Final = 1_000_000_000
# The number by which record batches say that they came in through PHPMQ (docs/INTERNALS.md section 2).
_ORIGIN: Final = 4
# As long as nobody waits: a lease that does not end.
_FOR_EVER_NS: Final = 1 << 61
# What a message that is not all there is given room for, as long as nothing has come of it.
_NEED_SIZE_BYTES_FIRST: Final = 16 * 1024
# How long a connection is not read that asks for more requeues than the disk takes.
_CROWDED_NS: Final = 20_000_000


class PhpmqGateway(BaseGateway):
    """The server's side of one PHPMQ connection."""

    def __init__(self, session: Session, peer: Peer, house: House, make_tls: Callable[[], Layer] | None = None) -> None:
        self._session = session
        self._peer = peer
        self._house = house
        self._settings = house.settings
        self._make_tls = make_tls
        self._decoder = Decoder(house.settings)
        self._decoder.events_max = EVENTS_PER_STEP_MAX
        self.need = 1  # the time of a message begins with its first byte
        self._topics: dict[bytes, str] = {}
        # Until the client has shown which dialect it speaks: by a 001, or by a 005 or 006, which the older one has not.
        self._legacy = house.settings.legacy
        self._closing = False
        self._subscription: Subscription | None = None
        self._is_full = False
        self._queue = b""
        # What every message of the queue begins with, by dialect: the newer one, the older one.
        self._heads = (b"", b"")
        self._left_out = session.broker.left_out.of("phpmq")
        # Of the feed that is running: publishes that are not durable yet, and whether something was settled.
        self._tickets: dict[int, Ticket] = {}
        self._settled = False
        # What somebody else has settled of what is out here.
        self._owed: Ticket | None = None
        # When the message began that is not all there; the timer that looks is set.
        self._partial_since_ns: int | None = None
        self._watching = False
        # The topic of which too much is being appended anew: nothing is read until it is less.
        self._crowded = ""
        # What has come makes more queues than a turn has time for: the rest is read in the next one.
        self._waits_for_turn = False
        session.describe(
            PeerView(
                protocol="phpmq",
                protocol_version="1",
                remote_address=peer.address,
                connected_at_ns=session.peer.connected_at_ns,
                client_id=peer.host,
                host_name=peer.host,
            )
        )

    # -- input -----------------------------------------------------------------------------------------------------

    def opened(self, effects: list[Effect]) -> None:
        """Put TLS in place, where this is for those who speak it."""
        self._house.clients.add(self)
        if self._make_tls is not None:
            effects.append(Upgrade(self._make_tls()))

    def feed(self, view: memoryview, effects: list[Effect]) -> int:
        """Carry out every message that has come whole, unless they make so many queues that others are to have their turn first."""
        decoder, catalogue = self._decoder, self._session.broker.catalogue
        made_before, consumed = catalogue.next_group_id, 0
        try:
            while True:
                events, count = decoder.feed(view[consumed:] if consumed else view)
                consumed += count
                for event in events:
                    self._handlers[type(event)](self, event, effects)
                    if self._closing:
                        break
                if self._closing or decoder.need or consumed == len(view) or self._crowded:
                    break
                if catalogue.next_group_id - made_before >= QUEUES_MADE_PER_TURN_MAX:
                    self._waits_for_turn = True
                    break
        except Refusal as refusal:
            self._close(REASONS[refusal.code], refusal.text, effects)
        finally:
            self._promise(effects)
        if self._closing:
            effects.append(Close("the protocol was broken, or the broker refused"))
            return consumed
        # Not more than twice what is there: room is made for it at once, and an announcement costs the client nothing.
        # Nor more than one byte before anything of a message is there: its time begins with the first.
        left = len(view) - consumed
        self.need = min(decoder.need or 1, max(_NEED_SIZE_BYTES_FIRST, 2 * left)) if left else 1
        self._watch(consumed > 0, effects)
        if self._crowded:
            effects.append(Pause())
            effects.append(SetTimer(TimerName.RETRY, self._house.clock.monotonic_ns() + _CROWDED_NS))
        elif self._waits_for_turn:
            effects.append(Pause())
            self.ring()
        return consumed

    def _promise(self, effects: list[Effect]) -> None:
        """Have all that goes out from here on wait for what this feed has changed."""
        tickets = list(self._tickets.values())
        self._tickets.clear()
        if len(tickets) == 1:
            effects.append(SendAfter(tickets[0], b"", _say_nothing))
        elif tickets:
            effects.append(SendAfterEach(tickets, [0] * len(tickets), b"", _say_nothing))
        if self._settled:
            self._settled = False
            effects.append(SendAfter(self._session.journaled(), b"", _say_nothing, publishes=False))

    def _close(self, reason: str, text: str, effects: list[Effect]) -> None:
        if not self._closing:
            self._closing = True
            self._house.complain(self._peer, reason, text)

    def _topic(self, queue: bytes, effects: list[Effect]) -> str | None:
        """Give the topic of a queue; None closes the connection, for no topic can be called so."""
        topic = self._topics.get(queue)
        if topic is None:
            topic = topic_of(queue)
            if topic is None:
                self._close(Problem.NAME.value, f"no topic can be called {queue[:64]!r}", effects)
                return None
            if len(self._topics) >= QUEUES_KNOWN_MAX:
                self._topics.clear()
            self._topics[queue] = topic
        return topic

    def _publish(self, event: Publish, effects: list[Effect]) -> None:
        topic = self._topic(event.queue, effects)
        if topic is None:
            return
        self._legacy = event.legacy
        session = self._session
        session.ensure_queue(topic, self._settings.group)
        if event.ttls is None:
            ticket = session.publish(topic, event.batch, origin=_ORIGIN)
        else:
            ticket = session.publish_expiring(topic, event.batch, event.ttls, unit_ns=_NS_PER_S, origin=_ORIGIN)
        self._tickets[id(ticket)] = ticket

    def _settle(self, event: Settle, effects: list[Effect]) -> None:
        self._house.foreign_ids += event.foreign
        topic = self._topic(event.queue, effects)
        if topic is not None and event.count:
            self._settle_ids(topic, event.ids, event.first, event.count)

    def _settle_ids(self, topic: str, ids: memoryview, first: int, count: int) -> None:
        session = self._session
        freed = session.settle_any(topic, self._settings.group, ids, first, count, subscription=self._subscription)
        self._settled = True
        for subscription in freed:
            if isinstance(subscription.listener, PhpmqGateway):
                subscription.listener.owe(session.journaled())

    def _requeue(self, event: Requeue, effects: list[Effect]) -> None:
        self._legacy = False
        topic = self._topic(event.queue, effects)
        if topic is not None:
            self._session.renew(topic, self._settings.group, event.id, lifetime_ns=event.ttl_s * _NS_PER_S)
            self._see_whether_crowded(topic)

    def _remove(self, event: Remove, effects: list[Effect]) -> None:
        self._legacy = False
        topic = self._topic(event.queue, effects)
        if topic is None:
            return
        if self._settings.copy_dead:
            self._session.bury(topic, self._settings.group, event.id)
            self._see_whether_crowded(topic)
        else:
            self._settle_ids(topic, memoryview(array("q", [event.id])), 0, 1)

    def _see_whether_crowded(self, topic: str) -> None:
        if self._session.is_crowded(topic, self._settings.group):
            self._crowded = topic

    def _foreign_id(self, event: ForeignId, effects: list[Effect]) -> None:
        self._legacy = False
        self._house.foreign_ids += 1
        self._topic(event.queue, effects)

    def _violation(self, event: Violation, effects: list[Effect]) -> None:
        self._close(event.problem.value, event.text, effects)

    def _consume(self, event: Consume, effects: list[Effect]) -> None:
        """Begin anew: what is out goes back first, whatever queue it is of."""
        topic = self._topic(event.queue, effects)
        if topic is None:
            return
        session, subscription = self._session, self._subscription
        if subscription is not None:
            session.give_back(subscription)
            if event.queue != self._queue:
                self._subscription = None
                session.unsubscribe(subscription)
                subscription = None
        if subscription is None:
            lease_ns = self._settings.lease_ns or _FOR_EVER_NS
            subscription = session.subscribe_to_queue(topic, self._settings.group, listener=self, lease_ns=lease_ns)
            session.hold(subscription, held=self._is_full)
            self._subscription = subscription
            self._queue = event.queue
            self._heads = (dispatch_head(event.queue, legacy=False), dispatch_head(event.queue, legacy=True))
        session.credit(subscription, min(event.count, self._settings.window_max))

    # -- output ----------------------------------------------------------------------------------------------------

    def deliver(self, delivery: Delivery, outbox: Outbox) -> None:
        """Write messages straight from the log into the outbox, in the dialect that the client speaks."""
        piece, legacy = delivery.slice, self._legacy
        head = self._heads[legacy]
        at = outbox.reserve(dispatches_size_bytes(piece, head))
        now_ns, salt = self._house.clock.wall_ns(), self._settings.salt
        outbox.advance(encode_dispatches(outbox.data, at, piece, head, legacy=legacy, now_ns=now_ns, salt=salt, left_out=self._left_out))

    def owe(self, ticket: Ticket) -> None:
        """Somebody else has settled what is out here: what goes out in its place waits for the journal."""
        self._owed = ticket
        self.ring()

    def woken(self, effects: list[Effect]) -> None:
        """Wait for what was settled elsewhere; close if the queue is gone."""
        if self._owed is not None:
            effects.append(SendAfter(self._owed, b"", _say_nothing, publishes=False))
            self._owed = None
        if self._waits_for_turn:
            self._waits_for_turn = False
            effects.append(Resume())
        super().woken(effects)

    def full(self, effects: list[Effect]) -> None:
        """Take no more deliveries until what waits has been written."""
        self._is_full = True
        if self._subscription is not None:
            self._session.hold(self._subscription, held=True)

    def writable(self, effects: list[Effect]) -> None:
        """Take deliveries again."""
        self._is_full = False
        if self._subscription is not None:
            self._session.hold(self._subscription, held=False)

    # -- time and the end ------------------------------------------------------------------------------------------

    def _watch(self, moved: bool, effects: list[Effect]) -> None:
        """Note when the message began that is not all there, and look whether it comes to an end."""
        if not self._decoder.partial:
            self._partial_since_ns = None
        elif moved or self._partial_since_ns is None:
            self._partial_since_ns = self._house.clock.monotonic_ns()
            if not self._watching:
                self._watching = True
                effects.append(SetTimer(TimerName.READ_DEADLINE, self._partial_since_ns + self._settings.message_ns))

    def timer(self, name: TimerName, effects: list[Effect]) -> None:
        """Close a connection whose message does not come to an end; read one again that was not read."""
        if name is TimerName.RETRY:
            self._read_again(effects)
            return
        self._watching = False
        if self._crowded and self._partial_since_ns is not None:
            self._partial_since_ns = self._house.clock.monotonic_ns()  # it is not read
        since_ns = self._partial_since_ns
        if name is not TimerName.READ_DEADLINE or since_ns is None or self._closing:
            return
        due_ns = since_ns + self._settings.message_ns
        if due_ns > self._house.clock.monotonic_ns():
            self._watching = True
            effects.append(SetTimer(TimerName.READ_DEADLINE, due_ns))
        else:
            self._close(Problem.SLOW.value, "a message was not complete in time", effects)
            effects.append(Close("a message was not complete in time"))

    def _read_again(self, effects: list[Effect]) -> None:
        """Go on, unless there is still too much to append."""
        now_ns = self._house.clock.monotonic_ns()
        if self._session.is_crowded(self._crowded, self._settings.group):
            effects.append(SetTimer(TimerName.RETRY, now_ns + _CROWDED_NS))
            return
        self._crowded = ""
        if self._partial_since_ns is not None:
            self._partial_since_ns = now_ns  # it could not go on
        effects.append(Resume())

    def ended(self) -> None:
        """Leave: what is out waits for somebody else at once."""
        self._house.clients.discard(self)
        if self._subscription is not None:
            self._session.give_back(self._subscription)
        self._session.close()

    _handlers: ClassVar[Mapping[type[Event], Callable[[PhpmqGateway, Any, list[Effect]], None]]] = {
        Publish: _publish,
        Settle: _settle,
        Consume: _consume,
        Requeue: _requeue,
        Remove: _remove,
        ForeignId: _foreign_id,
        Violation: _violation,
    }


def _say_nothing(_reason: str) -> bytes:
    """There are no words for it; that the connection is closed says that something is lost."""
    return b""
