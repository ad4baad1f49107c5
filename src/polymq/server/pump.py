"""The pump: runs the whole broker, one turn after the other, without waiting for anything.

It reads connections into their gateways, carries out the gateways' effects, drives core and store through a turn (`docs/INTERNALS.md`,
section 1), and writes once per connection. The shell calls it when the operating system has something, the simulator when its seed says
so. The turn is in `end_turn`; reading is in `intake.py`, what is kept per connection in `connection.py`.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from polymq.gateways.buffers import BufferPool
from polymq.gateways.contract import HANDSHAKE_END
from polymq.gateways.effects import (
    Ask,
    Close,
    Flush,
    Pause,
    Resume,
    Send,
    SendAfter,
    SendAfterEach,
    SetTimer,
    TimerName,
    Upgrade,
    WantWritable,
)
from polymq.limits import OUTBOX_SIZE_BYTES_HIGH, OUTBOX_SIZE_BYTES_LOW
from polymq.server.connection import Connection, ConnectionState, PumpTimer
from polymq.server.courier import CourierMeans, LiveCourier
from polymq.server.crew import send_views
from polymq.server.intake import ENDED, InputTooLarge, Intake
from polymq.server.settings import PumpSettings
from polymq.server.timers import Alarm, Timers
from polymq.server.unfolding import Unfolding
from polymq.server.upgrades import PumpMeans, Upgrades
from polymq.wire.layers import LayerFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from polymq.core.group import Delivery
    from polymq.core.ports import Clock, Listener
    from polymq.gateways.contract import Gateway, Peer
    from polymq.gateways.effects import Effect
    from polymq.server.crew import Crew, Job
    from polymq.server.ports import Broker, Outside, Store, Stream, Watcher
    from polymq.wire.layers import Layer, LayerStack

__all__ = ["Pump"]

_OPEN: Final = ConnectionState.OPEN
_AT_ONCE: Final = 0  # a due time that is always past
log = logging.getLogger(__name__)


class Pump:
    """All connections, and the turn. Not thread-safe: everything is called from the thread of the broker."""

    def __init__(
        self,
        broker: Broker,
        store: Store,
        clock: Clock,
        watcher: Watcher,
        *,
        settings: PumpSettings | None = None,
        crew: Crew | None = None,
    ) -> None:
        self._broker = broker
        self._crew = crew
        self._store = store
        self._clock = clock
        self._watcher = watcher
        self.outside: Outside | None = None  # who asks questions needs the pump for it, so that comes later
        self._settings = settings or PumpSettings()
        self._intake = Intake()
        self._pool = BufferPool()
        means = PumpMeans(self._call, self._soil, self._feed_again, self._set_timer, self._close, self._drop)
        self._upgrades = Upgrades(self._intake, self._pool, means, clock, timeout_ns=self._settings.handshake_timeout_ns)
        self._connections: dict[Gateway | Listener, Connection] = {}
        self.courier = LiveCourier(self._connections, CourierMeans(self._apply, self._soil, self._flush, self._crash))
        self._timers: Timers[tuple[Connection, TimerName | PumpTimer] | Alarm] = Timers()
        self._stopping = False
        self._congested = False
        self.opened_count = 0
        self._dirty: list[Connection] = []  # of those that something is to be done for, in this turn or in the next
        self._gated: list[Connection] = []
        self._again: list[Connection] = []
        self._unfolding = Unfolding(clock, self._unfold)
        self._rung: list[Connection] = []
        self._unsettled = False  # what somebody waits for may need another turn's commit

    @property
    def connections(self) -> Collection[Connection]:
        """Every connection that is not closed."""
        return self._connections.values()

    # What happens to a connection

    def open(self, stream: Stream, gateway: Gateway, peer: Peer, layer: Layer | None = None) -> Connection:
        """Take a new connection over; `layer` is under its gateway from the first byte on."""
        connection = Connection(stream, gateway, peer, self._pool)
        self.opened_count += 1
        gateway.ring = partial(self._rung.append, connection)
        self._connections[gateway] = connection
        self._follow(connection)
        if layer is not None:
            self._upgrades.begin(connection, layer)
        self._call(connection, gateway.opened)
        if self._stopping and connection.state is _OPEN:
            self._call(connection, gateway.stopping)
        return connection

    def readable(self, connection: Connection) -> None:
        """Read once, and let the gateway handle what came."""
        if connection.state is not _OPEN:
            self._linger(connection)
        elif not connection.unfolding and not connection.resuming:  # else there is earlier input, before anything new
            self._read(connection)

    def _read(self, connection: Connection) -> None:
        try:
            view = self._intake.read(connection)
            if connection.upgrading:
                view = self._upgrades.shake_hands(connection, view)
            if view is None and connection.layers is not None:
                self._soil(connection)  # a handshake may have to be answered
                if connection.layers.holding:
                    self._unfolding.note(connection)
            elif view is ENDED:
                self._end_input(connection)
            elif view is not None:
                self._feed(connection, view)
                if connection.layers is not None:
                    self._follow_layers(connection, connection.layers)
        except LayerFailed as error:
            self._upgrades.fail(connection, str(error))
        except InputTooLarge:
            self._drop(connection, "more unconsumed input than the limit")
        except OSError as error:
            self._drop(connection, error.strerror or str(error))
        except Exception as error:
            self._crash(connection, error)

    def writable(self, connection: Connection) -> None:
        """Write on, where the last write could not; at the end of the turn, as everybody, if the turn has added something.

        That may be an answer to what was read in it, and would confirm settles that are not in the journal yet.
        """
        if connection.state < ConnectionState.LINGERING and not connection.dirty:
            self._flush(connection)

    def answered(self, connection: Connection, token: int, answer: object) -> None:
        """Hand over the answer to a question; too late or twice is ignored."""
        if connection.asking != token or connection.state is not _OPEN:
            return
        connection.asking = None
        connection.forget_question()
        self._timers.cancel((connection, PumpTimer.ASK))
        self._call(connection, lambda effects: connection.gateway.answered(token, answer, effects))
        self._feed_again(connection)

    def call_at(self, due_ns: int, function: Callable[[], None]) -> Alarm:
        """Have `function` called in the first turn after `due_ns`, monotonic: for what has no connection to have timers."""
        alarm = Alarm(self._timers, function)
        self._timers.set(alarm, due_ns)
        return alarm

    # A turn

    def end_turn(self) -> None:
        """Do everything that is not reading: time, commit, deliveries, writing."""
        broker, store = self._broker, self._store
        self._unsettled = False
        if self._again:
            self._feed_all_again()
        if self._unfolding:
            self._unfolding.run()
        broker.tick()
        due_ns = self._timers.due_ns()
        if due_ns is not None and due_ns <= (now_ns := self._clock.monotonic_ns()):
            self._expire(now_ns)
        if self._rung:
            self._wake()
        if not self._dirty and not self._gated:
            # Nobody is to be answered, so nothing that is sent now can promise what has not been written yet: what settles
            # have made room for can go out at once, and the peer works while the journal is written.
            deliveries = broker.dispatch()
            if deliveries:
                self._deliver(deliveries)
                self._flush_all()
        store.commit()
        if store.unwritten:
            self._hang_up(store.unwritten)
        if self._gated:  # who only publishes has its answer first, and goes on while everything else is looked after
            self._settle()
            self._flush_publishers()
        store.poll()
        if self._gated:
            self._settle()
        rung_count = len(self._rung)
        self._deliver(broker.dispatch())
        if len(self._rung) > rung_count:
            self._wake(rung_count)  # what they wait for has just been committed
            self._unsettled = bool(self._gated)
        if self._dirty:
            self._flush_all()
        if store.congested is not self._congested:
            self._follow_congestion()

    def _hang_up(self, reason: str) -> None:
        """Close every connection without another word: this turn's settles and requeues are not in the journal.

        A later command that is answered would confirm them, and they would come back after a crash.
        """
        if self._connections:
            log.error("closing every connection: %s", reason)
        for connection in list(self._connections.values()):
            self._drop(connection, reason)

    def _deliver(self, deliveries: Iterable[Delivery]) -> None:
        for delivery in deliveries:
            connection = self._connections.get(delivery.subscription.listener)
            if connection is None:
                continue  # it failed a moment ago, at an earlier delivery
            try:
                connection.gateway.deliver(delivery, connection.outbox)
            except Exception as error:
                self._crash(connection, error)
            else:
                connection.consumes = True
                self._soil(connection)

    def due_ns(self) -> int | None:
        """When `end_turn` is wanted although nothing is readable, monotonic; may be past; None: not by itself."""
        if self._dirty or self._again or self._unfolding or self._rung or self._unsettled:
            return _AT_ONCE
        return min([due for due in (self._broker.due_ns(), self._store.due_ns, self._timers.due_ns()) if due is not None], default=None)

    # The end

    def stop(self) -> None:
        """Ask every gateway to come to an end. Turns go on until `connections` is empty, or patience is."""
        self._stopping = True
        for connection in list(self._connections.values()):
            if connection.state is _OPEN:
                self._call(connection, connection.gateway.stopping)

    def abandon(self) -> None:
        """Close every connection that is left, as it is."""
        for connection in list(self._connections.values()):
            self._drop(connection, "shutting down")

    # Input

    def _feed(self, connection: Connection, view: memoryview) -> None:
        gateway = connection.gateway
        if len(view) < gateway.need:
            self._intake.keep(connection, view, 0)
            return
        effects: list[Effect] = []
        self.courier.begin(connection, effects)
        consumed = gateway.feed(view, effects)
        self.courier.end()
        self._intake.keep(connection, view, consumed)
        if effects:
            self._apply(connection, effects)

    def _follow_layers(self, connection: Connection, layers: LayerStack) -> None:
        """Have what is still compressed read in the next turn; see whether the peer has ended a layer, behind all input."""
        if layers.holding:
            self._unfolding.note(connection)
        elif layers.closing and not connection.paused:
            self._end_input(connection)

    def _feed_again(self, connection: Connection) -> None:
        """Go on with input that was kept; in this turn, if it has not come to that yet."""
        self._again.append(connection)
        self._follow(connection)

    def _feed_all_again(self) -> None:
        again, self._again = self._again, []
        for connection in again:
            connection.resuming = False
            if connection.state is not _OPEN or connection.paused or connection.asking is not None:
                continue
            view = self._intake.held(connection)
            try:
                if view:
                    self._feed(connection, view)
                if connection.layers is not None:
                    self._follow_layers(connection, connection.layers)
            except InputTooLarge:
                self._drop(connection, "more unconsumed input than the limit")
            except Exception as error:
                self._crash(connection, error)

    def _unfold(self, connection: Connection) -> None:
        """Handle a piece of what is still compressed; a connection that is not to be read is noted again when it is."""
        if connection.state is _OPEN and connection.reads(congested=self._congested):
            self._read(connection)

    def _end_input(self, connection: Connection) -> None:
        """The peer sends nothing more: that is the end of the connection, as far as every protocol is concerned."""
        if connection.upgrading:
            self._upgrades.fail(connection, HANDSHAKE_END)
        elif connection.state is _OPEN:
            self._call(connection, connection.gateway.eof)
            self._close(connection, "closed by the peer")

    def _linger(self, connection: Connection) -> None:
        try:
            if connection.state is ConnectionState.LINGERING and not self._intake.discard(connection):
                self._drop(connection, "")
        except OSError:
            self._drop(connection, "")

    # Effects

    def _call(self, connection: Connection, function: Callable[[list[Effect]], None]) -> None:
        """Call a gateway and carry out what it says."""
        effects: list[Effect] = []
        try:
            function(effects)
            if effects:
                self._apply(connection, effects)
        except Exception as error:
            self._crash(connection, error)

    def _apply(self, connection: Connection, effects: list[Effect]) -> None:
        outbox = connection.outbox
        for effect in effects:
            if connection.state is not _OPEN:
                return
            if isinstance(effect, Send):
                outbox.write(effect.data)
                outbox.hold_below = 0
                self._soil(connection)
            elif isinstance(effect, SendAfter):
                outbox.write_after(effect.ticket, effect.data, effect.failure)
                self._gate(connection, publishes=effect.publishes)
            elif isinstance(effect, SendAfterEach):
                outbox.write_after_each(effect.tickets, effect.sizes, effect.data, effect.failure)
                self._gate(connection, publishes=True)
            else:
                self._apply_rare(connection, effect)

    def _apply_rare(self, connection: Connection, effect: Effect) -> None:
        match effect:
            case Close():
                (self._drop if effect.at_once else self._close)(connection, effect.reason)
            case SetTimer():
                self._set_timer(connection, effect.name, effect.due_ns)
            case Flush():
                connection.outbox.hold_below = 0
                self._soil(connection)
            case Pause():
                connection.paused = True
                self._follow(connection)
            case Resume():
                connection.paused, connection.resuming = False, True
                self._feed_again(connection)
            case WantWritable():
                connection.wants_writable = True
                self._soil(connection)
            case Ask():
                self._ask(connection, effect)
            case Upgrade():
                self._upgrades.begin(connection, effect.layer, effect.timeout_ns)
            case _:
                raise AssertionError(f"unknown effect {effect!r}")

    def _gate(self, connection: Connection, *, publishes: bool) -> None:
        connection.outbox.hold_below = 0
        if not connection.gated:
            connection.gated = True
            self._gated.append(connection)
        if publishes and not connection.publishes:
            connection.publishes = True
            self._follow(connection)

    def _settle(self) -> None:
        """See whose commits are done."""
        gated, self._gated = self._gated, []
        for connection in gated:
            if connection.state >= ConnectionState.LINGERING:
                continue
            failure = connection.outbox.settle()
            self._soil(connection)
            if failure is not None:
                connection.gated = False
                self._close(connection, failure)
            elif connection.outbox.gated:
                self._gated.append(connection)
            else:
                connection.gated = False

    def _set_timer(self, connection: Connection, name: TimerName | PumpTimer, due_ns: int | None) -> None:
        if due_ns is None:
            self._timers.cancel((connection, name))
        else:
            self._timers.set((connection, name), due_ns)

    def _expire(self, now_ns: int) -> None:
        for key in self._timers.expired(now_ns):
            if isinstance(key, Alarm):
                key.ring()
                continue
            connection, name = key
            if connection.state is ConnectionState.CLOSED:
                continue
            if isinstance(name, TimerName):
                if connection.state is _OPEN:
                    self._call(connection, partial(connection.gateway.timer, name))
            elif name is PumpTimer.ASK:
                assert connection.asking is not None
                self.answered(connection, connection.asking, None)
            elif name is PumpTimer.HANDSHAKE:
                self._upgrades.time_out(connection)
            else:
                connection.gateway.overdue = name is PumpTimer.WRITE
                self._drop(connection, "the peer does not read" if name is PumpTimer.WRITE else "")

    def _wake(self, first: int = 0) -> None:
        """Call the gateways that rang, all or the last; one that rings again meanwhile is called in the next turn."""
        rung, self._rung[first:] = self._rung[first:], []
        for connection in rung:
            if connection.state is _OPEN:
                self._call(connection, connection.gateway.woken)

    def _ask(self, connection: Connection, effect: Ask) -> None:
        connection.asking = effect.token
        self._set_timer(connection, PumpTimer.ASK, effect.deadline_ns)
        self._follow(connection)
        answered = partial(self.answered, connection, effect.token)
        if self.outside is None:
            answered(None)
        else:
            connection.question = self.outside.ask(effect.request, answered)

    # Output

    def _flush_all(self) -> None:
        """Write once per connection that may have something to write; what that brings about waits for the next time."""
        dirty, self._dirty = self._dirty, []
        jobs = self._crew.send_large(dirty) if self._crew is not None and len(dirty) > 1 else {}
        for connection in dirty:
            connection.dirty = False
            self._flush(connection, jobs.get(connection))

    def _flush_publishers(self) -> None:
        """Write once to those whom no delivery of this turn can reach; the others' answers go out with their deliveries."""
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            if connection.consumes:
                self._dirty.append(connection)
            else:
                connection.dirty = False
                self._flush(connection)

    def _soil(self, connection: Connection) -> None:
        """Remember that the connection may have something to write."""
        if not connection.dirty:
            connection.dirty = True
            self._dirty.append(connection)

    def _flush(self, connection: Connection, job: Job | None = None) -> None:
        """Write once, if `job` has not done so; then see whether all is well with how much is left."""
        if connection.state >= ConnectionState.LINGERING:
            return
        outbox = connection.outbox
        try:
            if connection.wire is not None:
                if connection.encode_layers(connection.wire, self._clock):
                    self._soil(connection)  # it goes on in the next turn
                outbox = connection.wire
            waiting = outbox.ready_size_bytes
            if waiting and (waiting >= outbox.hold_below or connection.state is not _OPEN):
                sent = send_views(connection.stream, outbox.views()) if job is None else job.result()
                outbox.sent(sent)
                if sent < waiting or connection.unsent:
                    self._note_unsent(connection, unsent=sent < waiting, progress=True)
        except BlockingIOError:
            self._note_unsent(connection, unsent=True, progress=not connection.unsent)
        except (LayerFailed, OSError) as error:
            self._drop(connection, getattr(error, "strerror", None) or str(error))
            return
        left = connection.waiting_size_bytes()
        if connection.state is _OPEN:
            if left > OUTBOX_SIZE_BYTES_LOW or connection.blocked or connection.wants_writable:
                self._follow_output(connection, left)
        elif not left:
            self._finish(connection)

    def _note_unsent(self, connection: Connection, *, unsent: bool, progress: bool) -> None:
        if unsent:
            if progress:
                own_ns = connection.gateway.write_timeout_ns or self._settings.write_timeout_ns
                timeout_ns = own_ns if connection.state is _OPEN else self._settings.close_timeout_ns
                self._timers.set((connection, PumpTimer.WRITE), self._clock.monotonic_ns() + timeout_ns)
        elif connection.unsent and connection.state is _OPEN:
            self._timers.cancel((connection, PumpTimer.WRITE))
        if unsent is not connection.unsent:
            connection.unsent = unsent
            self._follow(connection)

    def _follow_output(self, connection: Connection, left: int) -> None:
        """Tell the gateway when too much waits, and when little does; stop reading who does not listen at all."""
        flooded = left > connection.gateway.unread_above
        if flooded is not connection.flooded:
            connection.flooded = flooded
            self._follow(connection)
        if left > OUTBOX_SIZE_BYTES_HIGH:
            if not connection.blocked:
                connection.blocked = True
                self._call(connection, connection.gateway.full)
        elif left < OUTBOX_SIZE_BYTES_LOW and (connection.blocked or connection.wants_writable):
            connection.blocked = connection.wants_writable = False
            self._call(connection, connection.gateway.writable)

    def _follow(self, connection: Connection) -> None:
        """Watch for what is wanted."""
        watched = (connection.reads(congested=self._congested), connection.unsent)
        if watched != connection.watched:
            connection.watched = watched
            self._watcher.watch(connection, readable=watched[0], writable=watched[1])
            if watched[0] and connection.layers is not None and connection.layers.holding:
                self._unfolding.note(connection)

    def _follow_congestion(self) -> None:
        self._congested = self._store.congested
        for connection in self._connections.values():
            if connection.publishes:
                self._follow(connection)

    # Closing

    def _close(self, connection: Connection, reason: str) -> None:
        """Stop calling the gateway, write what waits, then close."""
        if connection.state is not _OPEN:
            return
        log.debug("%s: closing: %s", connection.peer, reason)
        connection.state = ConnectionState.CLOSING
        self._timers.set((connection, PumpTimer.WRITE), self._clock.monotonic_ns() + self._settings.close_timeout_ns)
        self._end_gateway(connection)
        self._follow(connection)
        self._soil(connection)

    def _finish(self, connection: Connection) -> None:
        """Everything has been written: say so, and give the peer a moment to read it."""
        self._timers.forget((connection, PumpTimer.WRITE))
        try:
            connection.stream.end_output()
        except OSError:
            self._drop(connection, "")
            return
        connection.state = ConnectionState.LINGERING
        connection.unsent = False
        self._timers.set((connection, PumpTimer.LINGER), self._clock.monotonic_ns() + self._settings.linger_timeout_ns)
        self._follow(connection)

    def _drop(self, connection: Connection, reason: str) -> None:
        """Close at once, whatever waits."""
        if connection.state is ConnectionState.CLOSED:
            return
        if reason:
            log.debug("%s: closed: %s", connection.peer, reason)
        was_open = connection.state is _OPEN
        connection.state = ConnectionState.CLOSED
        if was_open:
            self._end_gateway(connection)
        for timer in PumpTimer:
            self._timers.forget((connection, timer))
        connection.unsent = False
        self._follow(connection)
        connection.outbox.clear()
        if connection.wire is not None:
            connection.wire.clear()
        connection.stream.close()
        del self._connections[connection.gateway]

    def _end_gateway(self, connection: Connection) -> None:
        for name in (*TimerName, PumpTimer.HANDSHAKE):
            self._timers.forget((connection, name))
        connection.upgrading = False
        connection.forget_question()
        self._intake.release(connection)
        connection.rest = b""
        try:
            connection.gateway.ended()
        except Exception:
            log.exception("%s: a gateway failed while it was being ended", connection.peer)

    def _crash(self, connection: Connection, error: Exception) -> None:
        """Our own bug shows: log it once and give the connection up; the others go on."""
        log.error("%s: internal error, connection closed", connection.peer, exc_info=error)
        self._drop(connection, "internal error")
