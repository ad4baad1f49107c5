"""What the broker has promised, kept outside of it, and whether it keeps it.

The ledger sees what a client sees and no more: commands as they are sent, frames as they leave the broker, the end of
connections and processes. From that it knows, by the acknowledgement table of the architecture, what must still be
there, what must not come back, who holds which message and since when; anything else raises `PromiseBrokenError`.

Times are bounds, because an observer does not see the inside: a frame that leaves at `now_ns` was made at
`made_ns` or later (`made_ns` < `now_ns` only if output was held up), and a command was carried out some time after it
was sent. A check fires only if it fires for every time within the bounds, so it never accuses a correct broker.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from polymq.limits import OFFSET_BITS, OFFSET_MAX, SYNC_INTERVAL_NS
from polymq.testing.promises import Channel, Command, Connection, PromiseBrokenError, Publication, Share, Verb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from polymq.core.ports import Clock

__all__ = ["Ledger"]

_LIFE: Final = "life"  # no connection has this name


@dataclass(slots=True)
class Ledger:
    """Every promise of one run.

    `sync_slack_ns`: how much longer than promised a sync may take because the disk is slow; `wall_slack_ns`: how far
    the wall clock may have been set back.
    """

    clock: Clock
    sync_slack_ns: int = 0
    wall_slack_ns: int = 0
    publications: dict[int, Publication] = field(default_factory=dict)
    channels: dict[tuple[str, str], Channel] = field(default_factory=dict)
    topics_by_partition: dict[int, str] = field(default_factory=dict)
    life: int = 0
    delivered_count: int = 0
    _open: list[Publication] = field(default_factory=list)  # what `owed` looks at
    _serials_by_id: dict[int, int] = field(default_factory=dict)
    _connections: list[Connection] = field(default_factory=list)
    _lives: list[tuple[int, int]] = field(default_factory=list)  # (start, end) of those that are over
    _started_ns: int = 0
    _synced_ns: int = 0  # everything up to then is on the disk
    # Topics with a failed sync or write (None: the journal): in which life, and since when promises are in doubt.
    _doubts: dict[str | None, tuple[int, int]] = field(default_factory=dict)
    _closed_ns: dict[str, int] = field(default_factory=dict)  # topics that take no publishes from then on

    # What clients do.

    def connected(self, connection: Connection) -> None:
        """A client has connected."""
        connection.open = True
        self._connections.append(connection)

    def publishes(
        self, connection: Connection, topic: str, bodies: Sequence[tuple[int, bytes]], *, delay_ns: int = 0, sync: bool = False
    ) -> None:
        """A client sends PUB, MPUB or DPUB with these (serial, body) pairs."""
        now_ns, wall_ns = self.clock.monotonic_ns(), self.clock.wall_ns()
        publications = [
            Publication(
                serial=serial,
                topic=topic,
                body=body,
                connection=connection.name,
                order=len(self.publications) + index,
                first=bodies[0][0],
                count=len(bodies),
                sync=sync,
                sent_ns=now_ns,
                due_wall_ns=wall_ns + delay_ns if delay_ns else 0,
                life=self.life,
            )
            for index, (serial, body) in enumerate(bodies)
        ]
        self.publications.update((publication.serial, publication) for publication in publications)
        self._open += publications
        self._send(connection, Command(Verb.PUBLISH, publications=publications))

    def subscribes(self, connection: Connection, topic: str, channel: str) -> None:
        """A client sends SUB."""
        connection.channel = self.channels.setdefault((topic, channel), Channel(topic, channel))
        self._send(connection, Command(Verb.SUBSCRIBE))

    def asks(self, connection: Connection) -> None:
        """A client sends IDENTIFY or CLS: something that is answered and promises nothing."""
        self._send(connection, Command(Verb.ASK))

    def readies(self, connection: Connection, count: int) -> None:
        """A client sends RDY."""
        connection.ready = count
        connection.ready_max = max(connection.ready_max, count)
        self._send(connection, Command(Verb.READY))

    def settles(self, connection: Connection, verb: Verb, serial: int, message_id: int, *, delay_ns: int = 0) -> None:
        """A client sends FIN, REQ or TOUCH for a message that it has received."""
        assert connection.channel is not None
        share = connection.channel.shares[serial]
        command = Command(verb, share=share, id=message_id)
        if verb is Verb.REQUEUE:
            command.due_wall_ns = self.clock.wall_ns() + delay_ns
        command.foreign = serial not in connection.seen
        if verb is not Verb.TOUCH:
            share.pending.append(command)
            share.let_go(connection)
        self._send(connection, command)

    def provokes(self, connection: Connection) -> None:
        """A client sends FIN for a message that cannot exist: its error is an answer, and confirms what went before."""
        self._send(connection, Command(Verb.PROVOKE))

    def ended(self, connection: Connection) -> None:
        """A connection has ended at one of its ends: what it held is free, what it asked last stays unknown."""
        if not connection.open:
            return
        connection.open = False
        self._connections.remove(connection)
        for command in connection.commands:
            if command.share is not None and command.verb is Verb.FINISH:
                command.share.excused = True
            command.forget()
        connection.commands.clear()
        for share in list(connection.held.values()):
            share.let_go(connection)
        if connection.channel is not None:
            connection.channel.ended_connections += 1

    def _send(self, connection: Connection, command: Command) -> None:
        command.sent_ns = self.clock.monotonic_ns()
        connection.commands.append(command)

    def made_since_ns(self, connection: Connection) -> int:
        """When what leaves the broker on a connection may have been made: output queues behind answers that wait."""
        for command in connection.commands:
            if command.verb.answered:
                return command.sent_ns
        return self.clock.monotonic_ns()

    # What the broker sends.

    def responded(self, connection: Connection) -> None:
        """A response frame left the broker: the oldest command that awaits one is done, and all before it."""
        command = self._confirm(connection, lambda command: command.verb.answered)
        now_ns = self.clock.monotonic_ns()
        if command.verb is Verb.PUBLISH:
            for publication in command.publications:
                self._check_open(publication)
                publication.acknowledged = True
                if publication.promised_ns is None:
                    publication.promised_ns = now_ns
        elif command.verb is Verb.SUBSCRIBE:
            assert connection.channel is not None
            if connection.channel.confirmed_ns is None:
                connection.channel.confirmed_ns = now_ns

    def _check_open(self, publication: Publication) -> None:
        closed_ns = self._closed_ns.get(publication.topic)
        if closed_ns is not None and publication.sent_ns > closed_ns and not publication.due_wall_ns:
            raise PromiseBrokenError(f"message {publication.serial} was acknowledged by {publication.topic}, which cannot be synced")

    def refused(self, connection: Connection, verb: Verb | None, message_id: int) -> None:
        """An error frame left the broker: for a settle (`verb` and id), or fatal for what awaits an answer (None)."""
        if verb is None:
            connection.dying = True
            return
        if message_id < 0:
            self._confirm(connection, lambda command: command.verb is Verb.PROVOKE)
            return
        command = self._confirm(connection, lambda command: command.verb is verb and command.id == message_id, failed=True)
        command.forget()

    def _confirm(self, connection: Connection, matches: Callable[[Command], bool], *, failed: bool = False) -> Command:
        """Take out the commands up to the first that matches; those before it have been carried out."""
        while connection.commands:
            command = connection.commands.popleft()
            if matches(command):
                if not failed:
                    self._carried_out(connection, command)
                if not any(other.verb is Verb.READY for other in connection.commands):
                    connection.ready_max = connection.ready
                return command
            if command.verb.answered:
                raise PromiseBrokenError(f"{connection.name}: an answer was left out: {command.verb.value}")
            self._carried_out(connection, command)
        raise PromiseBrokenError(f"{connection.name}: an answer to nothing that was asked")

    def _carried_out(self, connection: Connection, command: Command) -> None:
        share = command.share
        if share is None:
            return
        if command.foreign and share.serial not in connection.seen:
            raise PromiseBrokenError(f"{connection.name} never had {share}, but its {command.verb.value} was not refused")
        if command.verb is Verb.TOUCH:
            if share.holder is connection:
                share.lease_from_ns = max(share.lease_from_ns, command.sent_ns)
            return
        command.forget()
        again = command.redelivered
        if command.verb is Verb.FINISH:
            if again is not None:
                raise PromiseBrokenError(f"{share} was delivered again after FIN, to {again[0]}")
            share.finished_ns = self.clock.monotonic_ns()
        elif again is not None:
            self._check_due(share, command.due_wall_ns, again[1])
        else:
            share.requeue_due_wall_ns = command.due_wall_ns
            share.requeued_ns = self.clock.monotonic_ns()

    def _check_due(self, share: Share, due_wall_ns: int, wall_ns: int) -> None:
        early_ns = due_wall_ns - wall_ns - self.wall_slack_ns
        if early_ns > 0:
            raise PromiseBrokenError(f"{share} was delivered {early_ns / 1e6:.3f} ms before its time")

    def delivered(self, connection: Connection, message_id: int, attempts: int, body: bytes, *, made_ns: int) -> None:
        """A message frame left the broker."""
        channel = connection.channel
        if channel is None:
            raise PromiseBrokenError(f"{connection.name}: a message without a subscription")
        self.delivered_count += 1
        publication = self._identify(channel, message_id, body)
        share = channel.shares.get(publication.serial)
        if share is None:
            share = channel.shares[publication.serial] = Share(publication.serial, channel)
        share.delivered += 1
        connection.seen.add(publication.serial)
        if made_ns < share.lease_seen_ns or publication.undone:
            share.hold(None)  # made before the newest delivery that was seen, perhaps: nothing follows from it
            return
        wall_ns = self.clock.wall_ns()
        if share.finished_ns is not None:
            raise PromiseBrokenError(f"{share} was settled and came back, to {connection.name}")
        self._check_due(share, max(publication.due_wall_ns, share.requeue_due_wall_ns), wall_ns)
        self._check_lease(connection, share, attempts)
        self._check_order(connection, share, publication, message_id, attempts)
        for command in share.pending:
            if command.redelivered is None and command not in connection.commands:
                command.redelivered = (connection.name, wall_ns)
        self._lease(connection, share, attempts, made_ns=made_ns)

    def _identify(self, channel: Channel, message_id: int, body: bytes) -> Publication:
        """Find out which message this is, and that it has the id that it always had."""
        publication = self.publications.get(int(body[:8])) if body[:8].isdigit() else None
        if publication is None or publication.body != body:
            raise PromiseBrokenError(f"{channel}: bytes that nobody published: {body[:40]!r}")
        if publication.topic != channel.topic:
            raise PromiseBrokenError(f"{channel}: message {publication.serial} belongs to topic {publication.topic}")
        now_ns = self.clock.monotonic_ns()
        if publication.promised_ns is None:
            publication.promised_ns = now_ns
        if publication.id is None:
            self._check_new_id(publication, message_id)
            publication.id, publication.id_seen_ns = message_id, now_ns
            self._serials_by_id[message_id] = publication.serial
            self.topics_by_partition[message_id >> OFFSET_BITS] = publication.topic
        elif publication.id != message_id:
            raise PromiseBrokenError(f"message {publication.serial} is stored twice, as {publication.id:016x} and {message_id:016x}")
        return publication

    def _check_new_id(self, publication: Publication, message_id: int) -> None:
        serial = self._serials_by_id.get(message_id)
        if serial is not None and self.publications[serial].id == message_id:
            raise PromiseBrokenError(f"messages {serial} and {publication.serial} have one id, {message_id:016x}")

    def _check_lease(self, connection: Connection, share: Share, attempts: int) -> None:
        now_ns = self.clock.monotonic_ns()
        holder = share.holder
        if holder is not None and now_ns < share.lease_from_ns + holder.timeout_ns:
            left_ns = share.lease_from_ns + holder.timeout_ns - now_ns
            raise PromiseBrokenError(
                f"{share} was delivered to {connection.name} while {holder.name} holds it for another {left_ns / 1e6:.3f} ms"
            )
        if attempts <= share.attempts and share.life == self.life:
            raise PromiseBrokenError(f"{share} went from attempt {share.attempts} to {attempts}")
        most = share.delivered + share.channel.ended_connections
        if attempts > most:
            raise PromiseBrokenError(f"{share} is at attempt {attempts}, but it was sent {share.delivered - 1} times before")

    def _check_order(self, connection: Connection, share: Share, publication: Publication, message_id: int, attempts: int) -> None:
        """First deliveries of one partition to one connection come in the order of the log."""
        if attempts != 1 or share.delivered > 1 or publication.life != self.life:
            return
        partition, offset = message_id >> OFFSET_BITS, message_id & OFFSET_MAX
        if connection.offsets.get(partition, -1) >= offset:
            raise PromiseBrokenError(f"{share}: offset {offset} of partition {partition} came after a later one")
        connection.offsets[partition] = offset

    def _lease(self, connection: Connection, share: Share, attempts: int, *, made_ns: int) -> None:
        """Note who holds the message; nobody can hold more than was asked for."""
        now_ns = self.clock.monotonic_ns()
        share.attempts, share.life = attempts, self.life
        share.lease_from_ns, share.lease_seen_ns = made_ns, now_ns
        share.excused = False
        share.requeue_due_wall_ns = 0
        if any(command in connection.commands for command in share.pending):
            share.hold(None)  # a FIN or REQ of the lease before may yet end this one
            return
        share.hold(connection)
        held = sum(now_ns < other.lease_from_ns + connection.timeout_ns for other in connection.held.values())
        if held > connection.ready_max:
            raise PromiseBrokenError(f"{connection.name} holds {held} messages and asked for {connection.ready_max}")

    # What happens to the broker.

    def started(self) -> None:
        """A process of the broker serves."""
        self._started_ns = self.clock.monotonic_ns()

    def stopped(self, *, clean: bool = False) -> None:
        """The process is gone. After a clean stop everything is synced."""
        now_ns = self.clock.monotonic_ns()
        for connection in list(self._connections):
            self.ended(connection)
        self._lives.append((self._started_ns, now_ns))
        if now_ns - self._started_ns >= self._window_ns:
            # It had the time to write again what an earlier process could not sync.
            self._doubts = {topic: doubt for topic, doubt in self._doubts.items() if doubt[0] == self.life}
        if clean and not self._doubts:
            self._lives.clear()
            self._synced_ns = now_ns
        self._closed_ns.clear()
        self.life += 1

    def power_lost(self) -> None:
        """The power failed, after `stopped`: promises that were not synced are forgiven."""
        until_ns = self._synced_until_ns()
        for publication in self.publications.values():
            self._forgive_publication(publication, until_ns)
        until_ns = min(until_ns, self._doubted_since_ns(None))
        for channel in self.channels.values():
            if channel.confirmed_ns is not None and channel.confirmed_ns > until_ns:
                channel.confirmed_ns = None
            for share in channel.shares.values():
                # A channel that is made anew may begin behind what the one before it was given.
                share.excused = share.excused or channel.confirmed_ns is None
                if share.finished_ns is not None and share.finished_ns > until_ns:
                    share.finished_ns = None
                    share.excused = True
                if share.requeued_ns > until_ns:
                    share.requeue_due_wall_ns = 0
        self._synced_ns = self._lives[-1][1] if self._lives else self._synced_ns
        self._lives.clear()  # what is left is on the disk
        self._doubts.clear()

    def _forgive_publication(self, publication: Publication, until_ns: int) -> None:
        until_ns = min(until_ns, self._doubted_since_ns(publication.topic))
        released = publication.id is not None and publication.id_seen_ns <= until_ns
        if publication.due_wall_ns and not released:
            publication.undone = True
        if publication.sync:
            return
        if publication.promised_ns is not None and publication.promised_ns > until_ns:
            publication.promised_ns = None
        if publication.id is not None and publication.id_seen_ns > until_ns:
            self._serials_by_id.pop(publication.id, None)
            publication.id = None

    def failed(self, topic: str | None, *, closes: bool = False) -> None:
        """A sync or write failed (None: of the journal, or of nobody knows which topic).

        The kernel takes pages that it failed to write for clean: until another process has written them again, no sync
        covers them. `closes`: it was the only partition of the topic, so the topic must take no more publishes.
        """
        now_ns = self.clock.monotonic_ns()
        _, since_ns = self._doubts.get(topic, (0, now_ns))
        self._doubts[topic] = (self.life, min(since_ns, now_ns - self._window_ns))
        if closes and topic is not None:
            self._closed_ns.setdefault(topic, now_ns + self.sync_slack_ns)

    def _doubted_since_ns(self, topic: str | None) -> int:
        """Since when promises about a topic, or for None about what the journal holds, are in doubt; the future: never."""
        moments = [self._doubts[each][1] for each in (topic, None) if each in self._doubts]
        return min(moments, default=1 << 62)

    @property
    def _window_ns(self) -> int:
        return SYNC_INTERVAL_NS + self.sync_slack_ns

    def _synced_until_ns(self) -> int:
        """Promises up to this moment survive a power loss at this moment. Time without a process does not count."""
        left_ns = self._window_ns
        for start_ns, end_ns in reversed(self._lives):
            if end_ns - start_ns >= left_ns:
                return end_ns - left_ns
            # A process that ran for less may have found the work of the one before it unsynced.
            left_ns = max(self._window_ns, left_ns - (end_ns - start_ns))
        return self._lives[0][0] if self._lives else self._synced_ns

    # What is left at the end.

    def falls_due_later(self, margin_ns: int) -> bool:
        """Whether a promised message is deferred to a time that has not come, or came less than `margin_ns` ago."""
        until_ns = self.clock.wall_ns() - margin_ns
        return any(each.due_wall_ns > until_ns and each.promised_ns is not None for each in self._open)

    def owed(self) -> list[tuple[Channel, Publication]]:
        """Every message that a channel must still be given, or must still be seen to be done with."""
        found: list[tuple[Channel, Publication]] = []
        for channel in self.channels.values():
            for publication in self._open:
                if publication.topic != channel.topic or publication.promised_ns is None:
                    continue
                share = channel.shares.get(publication.serial)
                if share is not None and (share.finished_ns is not None or share.maybe_finished):
                    continue
                if share is None and not self._reaches(channel, publication):
                    continue
                found.append((channel, publication))
        return found

    def retire(self) -> None:
        """Look for what is owed only among what is published from here on: for long runs, when nothing is owed."""
        self._open.clear()

    def _reaches(self, channel: Channel, publication: Publication) -> bool:
        """Whether the channel must get a message that it has not been seen to get."""
        if sum(other.topic == channel.topic for other in self.channels.values()) == 1:
            return True  # the first channel gets what was there before it
        return channel.confirmed_ns is not None and publication.sent_ns > channel.confirmed_ns

    def check_log(self, partitions: Iterable[tuple[int, Sequence[tuple[int, bytes]]]]) -> None:
        """Compare what the log holds, as (partition number, (offset, body) pairs), with what was promised."""
        found: dict[int, tuple[int, int]] = {}
        for number, records in partitions:
            orders: dict[str, int] = {}
            for index, (offset, body) in enumerate(records):
                if offset != records[0][0] + index:
                    raise PromiseBrokenError(f"partition {number}: offset {offset} is where {records[0][0] + index} should be")
                self._check_record(number, offset, body, found, orders)
        for publication in self.publications.values():
            if publication.promised_ns is not None and publication.serial not in found:
                raise PromiseBrokenError(
                    f"message {publication.serial} of {publication.topic} was acknowledged or read, and is not in the log"
                )
            self._check_whole(publication, found)

    def _check_record(self, number: int, offset: int, body: bytes, found: dict[int, tuple[int, int]], orders: dict[str, int]) -> None:
        publication = self.publications.get(int(body[:8])) if body[:8].isdigit() else None
        if publication is None or publication.body != body:
            raise PromiseBrokenError(f"partition {number}, offset {offset}: bytes that nobody published: {body[:40]!r}")
        serial = publication.serial
        if serial in found:
            raise PromiseBrokenError(f"message {serial} is in the log twice: {found[serial]} and {(number, offset)}")
        found[serial] = (number, offset)
        if publication.id is not None and publication.id != number << OFFSET_BITS | offset:
            raise PromiseBrokenError(f"message {serial} was delivered as {publication.id:016x} and is at {(number, offset)} in the log")
        if not publication.due_wall_ns:
            if orders.get(publication.connection, -1) >= publication.order:
                raise PromiseBrokenError(f"partition {number}: message {serial} is behind a later one of its connection")
            orders[publication.connection] = publication.order
            if orders.get(_LIFE, -1) > publication.life:
                raise PromiseBrokenError(f"partition {number}: message {serial} is behind one of a later process")
            orders[_LIFE] = publication.life

    def _check_whole(self, publication: Publication, found: dict[int, tuple[int, int]]) -> None:
        """All messages of one MPUB are there, side by side, or none is."""
        place = found.get(publication.serial)
        first = found.get(publication.first)
        expected = None if first is None else (first[0], first[1] + publication.serial - publication.first)
        if place != expected and not publication.due_wall_ns:
            raise PromiseBrokenError(f"an MPUB was torn: message {publication.serial} is at {place}, not at {expected}")
