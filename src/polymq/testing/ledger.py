"""What the broker has promised, kept outside of it, and whether it keeps it.

The ledger sees what a client sees and no more: commands as they are sent, frames as they leave the broker, the end of
connections and processes. From that it knows, by the acknowledgement table of the architecture, what must still be
there, what must not come back, who holds which message and since when; anything else raises `PromiseBrokenError`.

Times are bounds, because an observer does not see the inside: a frame that leaves at `now_ns` was made at
`made_ns` or later (`made_ns` < `now_ns` only if output was held up), and a command was carried out some time after it
was sent. A check fires only if it fires for every time within the bounds, so it never accuses a correct broker.

Here are commands, answers and lives. What a delivery must be like is in `deliveries.py`, what follows from pausing,
emptying and deleting in `management.py`, what a power loss may take in `durability.py`, what logs hold in `log_book.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.limits import OFFSET_BITS
from polymq.testing.deliveries import Deliveries
from polymq.testing.durability import JOURNAL, Durability, Place
from polymq.testing.log_book import LogBook
from polymq.testing.management import Management
from polymq.testing.promises import Book, Channel, Command, Connection, PromiseBrokenError, Publication, Verb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from polymq.core.ports import Clock
    from polymq.testing.durability import Loss

__all__ = ["Ledger"]


class Ledger:
    """Every promise of one run.

    `sync_slack_ns`: how much longer than promised a sync may take because the disk is slow; `wall_slack_ns`: how far
    the wall clock may have been set back; `retention_ns`: how long messages stay that nobody needs any more (None: for good).
    """

    def __init__(self, clock: Clock, *, sync_slack_ns: int = 0, wall_slack_ns: int = 0, retention_ns: int | None = None) -> None:
        self.clock = clock
        self.book = Book(clock, wall_slack_ns=wall_slack_ns)
        self.durability = Durability(clock, slack_ns=sync_slack_ns)
        self.management = Management(self.book)
        self.deliveries = Deliveries(self.book, self.management)
        self.log_book = LogBook(self.book, self.management, retention_ns=retention_ns)
        # Whether nothing is under way any more that could end what lives by its consumers.
        self.calm = False
        self._open: list[Publication] = []  # what `owed` looks at
        self._closed_ns: dict[Place, int] = {}  # what takes no writes from then on

    @property
    def channels(self) -> dict[tuple[str, str], Channel]:
        """Every channel by (topic, name)."""
        return self.book.channels

    @property
    def publications(self) -> dict[int, Publication]:
        """Every message by its serial."""
        return self.book.publications

    @property
    def open_publications(self) -> Sequence[Publication]:
        """The messages that may be owed to somebody: those since `retire`."""
        return self._open

    @property
    def life(self) -> int:
        """How many processes have ended."""
        return self.book.life

    @property
    def delivered_count(self) -> int:
        """How many deliveries were judged."""
        return self.deliveries.count

    # What clients do.

    def connected(self, connection: Connection) -> None:
        """A client has connected."""
        connection.open = True
        self.book.connections.append(connection)

    def publishes(
        self, connection: Connection, topic: str, bodies: Sequence[tuple[int, bytes]], *, delay_ns: int = 0, sync: bool = False
    ) -> None:
        """A client sends PUB, MPUB or DPUB with these (serial, body) pairs."""
        publications = self.announces(connection.name, topic, bodies, delay_ns=delay_ns, sync=sync)
        self._send(connection, Command(Verb.PUBLISH, publications=publications))

    def announces(
        self, connection: str, topic: str, bodies: Sequence[tuple[int, bytes]], *, delay_ns: int = 0, sync: bool = False
    ) -> list[Publication]:
        """A client of any protocol sends (serial, body) pairs; it says itself when they are `acknowledged`."""
        now_ns, wall_ns = self.clock.monotonic_ns(), self.clock.wall_ns()
        publications = [
            Publication(
                serial=serial,
                topic=topic,
                body=body,
                connection=connection,
                order=len(self.publications) + index,
                first=bodies[0][0],
                count=len(bodies),
                sync=sync,
                sent_ns=now_ns,
                sent_wall_ns=wall_ns,
                due_wall_ns=wall_ns + delay_ns if delay_ns else 0,
                life=self.life,
            )
            for index, (serial, body) in enumerate(bodies)
        ]
        self.publications.update((publication.serial, publication) for publication in publications)
        self._open += publications
        return publications

    def subscribes(self, connection: Connection, topic: str, channel: str) -> None:
        """A client sends SUB."""
        connection.channel = self.book.channel(topic, channel)
        self._send(connection, Command(Verb.SUBSCRIBE))

    def asks(self, connection: Connection) -> None:
        """A client sends IDENTIFY: something that is answered and promises nothing."""
        self._send(connection, Command(Verb.ASK))

    def leaves(self, connection: Connection) -> None:
        """A client sends CLS: once that is answered it gets no more messages."""
        connection.ready = 0
        self._send(connection, Command(Verb.LEAVE))

    def readies(self, connection: Connection, count: int) -> None:
        """A client sends RDY."""
        connection.ready = count
        connection.ready_max = max(connection.ready_max, count)
        self._send(connection, Command(Verb.READY))

    def settles(self, connection: Connection, verb: Verb, serial: int, message_id: int, *, delay_ns: int = 0) -> None:
        """A client sends FIN, REQ or TOUCH for a message that it has received."""
        assert connection.channel is not None
        share = connection.channel.shares[message_id]
        assert share.serial == serial
        command = Command(verb, share=share, id=message_id)
        if verb is Verb.REQUEUE:
            command.due_wall_ns = self.clock.wall_ns() + delay_ns
        command.foreign = message_id not in connection.seen
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
        self.book.connections.remove(connection)
        for command in connection.commands:
            if command.share is not None and command.verb is Verb.FINISH:
                command.share.excused = True
            command.forget()
        connection.commands.clear()
        for share in list(connection.held.values()):
            share.let_go(connection)
        if connection.channel is not None:
            connection.channel.ended_connections += 1
            connection.channel.unseen |= connection.held_up
            self.management.left(connection.channel)

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
                self.acknowledged(publication)
        elif command.verb is Verb.SUBSCRIBE:
            channel = connection.channel
            assert channel is not None
            self._check_open(JOURNAL, command.sent_ns, f"a subscription to {channel}")
            if command.sent_ns > channel.renewed_ns and not self.management.disturbs(channel):
                channel.confirmed_ns = now_ns if channel.confirmed_ns is None else channel.confirmed_ns
                self._is_there(channel.topic)
        elif command.verb is Verb.LEAVE:
            connection.left_ns = now_ns

    def acknowledged(self, publication: Publication) -> None:
        """The broker has said that it has a message."""
        now_ns = self.clock.monotonic_ns()
        self._check_open(JOURNAL, publication.sent_ns, f"message {publication.serial}")
        if not publication.due_wall_ns:
            for place in self._closed_ns:
                if place.topic == publication.topic and self._closed_ns[place] > self.book.topic(publication.topic).remade_ns:
                    self._check_open(place, publication.sent_ns, f"message {publication.serial}")
        publication.acknowledged_ns = now_ns
        publication.answered_after_wall_ns = self.clock.wall_ns() - publication.sent_wall_ns
        if publication.unsure_ns is not None or publication.removed_ns is not None:
            return
        if self.calm or not self.book.topic(publication.topic).ephemeral:
            if publication.promised_ns is None:
                publication.promised_ns = now_ns
            self._is_there(publication.topic)

    def check_journal(self, sent_ns: int, what: str) -> None:
        """Something was confirmed that is in the journal. Raises PromiseBrokenError if that takes nothing any more."""
        self._check_open(JOURNAL, sent_ns, what)

    def _is_there(self, name: str) -> None:
        topic = self.book.topic(name)
        if topic.confirmed_ns is None:
            topic.confirmed_ns = self.clock.monotonic_ns()

    def _check_open(self, place: Place, sent_ns: int, what: str) -> None:
        closed_ns = self._closed_ns.get(place)
        if closed_ns is not None and sent_ns > closed_ns + self.durability.slack_ns:
            where = "the journal" if place == JOURNAL else f"{place.topic}"
            raise PromiseBrokenError(f"{what} was acknowledged although {where} cannot be written or synced")

    def refused(self, connection: Connection, verb: Verb | None, message_id: int) -> None:
        """An error frame left the broker: for a settle (`verb` and id), or fatal for what awaits an answer (None)."""
        if verb is None:
            connection.dying = True
            if connection.channel is not None:
                self.management.left(connection.channel)
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
                if not any(other.verb in (Verb.READY, Verb.LEAVE) for other in connection.commands):
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
        if command.foreign and share.id not in connection.seen:
            raise PromiseBrokenError(f"{connection.name} never had {share}, but its {command.verb.value} was not refused")
        if command.verb is Verb.TOUCH:
            if share.holder is connection:
                share.lease_from_ns = max(share.lease_from_ns, command.sent_ns)
            return
        if not share.channel.ephemeral:
            self._check_open(JOURNAL, command.sent_ns, f"{command.verb.value} of {share}")
        command.forget()
        again = command.redelivered
        if command.verb is Verb.FINISH:
            if again is not None:
                raise PromiseBrokenError(f"{share} was delivered again after FIN, to {again[0]}")
            share.finished_ns = self.clock.monotonic_ns()
        elif again is not None:
            self.deliveries.check_due(share, command.due_wall_ns, again[1])
        else:
            share.requeue_due_wall_ns = command.due_wall_ns
            share.requeued_ns = self.clock.monotonic_ns()

    def delivered(self, connection: Connection, message_id: int, attempts: int, body: bytes, *, made_ns: int) -> None:
        """A message frame left the broker."""
        publication = self.deliveries.judge(connection, message_id, attempts, body, made_ns=made_ns)
        self.saw(publication, message_id, made_ns=made_ns)

    def saw(self, publication: Publication, message_id: int, *, made_ns: int) -> None:
        """A reader got a message: it must stay, unless it was asked to go."""
        if publication.removed_ns is not None or (publication.unsure_ns is not None and made_ns <= publication.unsure_ns):
            return
        if publication.promised_ns is None and (self.calm or not self.book.topic(publication.topic).ephemeral):
            publication.promised_ns = self.clock.monotonic_ns()

    # What happens to the broker.

    def started(self) -> None:
        """A process of the broker serves."""
        self.durability.started()

    def stopped(self, *, clean: bool = False) -> None:
        """The process is gone. After a clean stop everything is synced."""
        for connection in list(self.book.connections):
            self.ended(connection)
        self.management.stopped()
        self.durability.stopped(clean=clean)
        self._closed_ns.clear()
        self.calm = False
        self.book.life += 1

    def failed(self, place: Place, kind: str = "sync", *, alone: bool = False) -> None:
        """A sync or a write failed. `alone`: it was the only partition of its topic, so the topic must take no more publishes.

        From the time on by which that is noticed, nothing that needs the place may be acknowledged by this process.
        """
        self.durability.failed(place, kind)
        if kind == "sync" and (alone or place == JOURNAL):
            self._closed_ns.setdefault(place, self.clock.monotonic_ns())

    def power_lost(self) -> Loss:
        """The power failed, after `stopped`: promises that were not synced are forgiven, and no others. Gives what may be lost."""
        loss = self.durability.power_lost()
        for publication in self.publications.values():
            self._forgive_publication(publication, loss)
        self.management.power_lost(loss)
        for channel in self.channels.values():
            self._forgive_channel(channel, loss)
        return loss

    def _forgive_channel(self, channel: Channel, loss: Loss) -> None:
        if channel.confirmed_ns is not None and not loss.journal_keeps(channel.confirmed_ns):
            channel.confirmed_ns = None
            channel.first = False
        for share in channel.shares.values():
            # A channel that is made anew may begin behind what the one before it was given.
            share.excused = share.excused or channel.confirmed_ns is None
            if share.finished_ns is not None and not loss.journal_keeps(share.finished_ns):
                share.finished_ns = None
                share.excused = True
            if not loss.journal_keeps(share.requeued_ns):
                share.requeue_due_wall_ns = 0
            if share.id not in self.publications[share.serial].ids:
                share.finished_ns = None
                share.excused = True

    def _forgive_publication(self, publication: Publication, loss: Loss) -> None:
        topic = publication.topic
        topic_ns = self.book.topic(topic).confirmed_ns
        topic_kept = topic_ns is None or loss.journal_keeps(topic_ns)
        for message_id, seen_ns in list(publication.ids.items()):
            since_ns, at_ns = publication.written_between(seen_ns)
            kept = topic_kept and loss.log_keeps(topic, message_id >> OFFSET_BITS, at_ns, since_ns=since_ns)
            if not publication.sync and not kept:
                publication.ids_before[message_id] = publication.ids.pop(message_id)
        if publication.sync or publication.promised_ns is None or publication.ids:
            return
        at_ns = publication.promised_ns
        kept = topic_kept and loss.log_keeps(topic, None, at_ns)
        if publication.due_wall_ns:
            kept = loss.journal_keeps(at_ns) and loss.log_keeps(topic, None, at_ns, schedule=True)
        if not kept:
            publication.promised_ns = None

    # What is left at the end.

    def falls_due_later(self, margin_ns: int) -> bool:
        """Whether a promised message is deferred to a time that has not come, or came less than `margin_ns` ago."""
        until_ns = self.clock.wall_ns() - margin_ns
        return any(each.due_wall_ns > until_ns and each.promised_ns is not None for each in self._open)

    def owed(self) -> list[tuple[Channel, Publication]]:
        """Every message that a channel must still be given, or must still be seen to be done with."""
        return [
            (channel, publication)
            for channel in self.channels.values()
            for publication in self._open
            if publication.topic == channel.topic and publication.promised_ns is not None and self._is_owed(channel, publication)
        ]

    def _is_owed(self, channel: Channel, publication: Publication) -> bool:
        shares = [share for share in map(channel.shares.get, publication.ids) if share is not None]
        if shares:
            return any(share.finished_ns is None and not share.maybe_finished for share in shares)
        if any(self._may_have_been(channel, publication, each) for each in publication.ids_before):
            return False
        return not self.management.is_lost_to(channel, publication) and self._reaches(channel, publication)

    def _may_have_been(self, channel: Channel, publication: Publication, message_id: int) -> bool:
        share = channel.shares.get(message_id)
        return share is not None and share.serial == publication.serial and (share.excused or share.finished_ns is not None)

    def retire(self) -> None:
        """Look for what is owed only among what is published from here on: for long runs, when nothing is owed."""
        self._open.clear()

    def _reaches(self, channel: Channel, publication: Publication) -> bool:
        """Whether the channel must get a message that it has not been seen to get."""
        if not channel.ephemeral and (channel.first or len(self.book.channels_of(channel.topic)) == 1):
            return True  # the first channel gets what was there before it
        return channel.confirmed_ns is not None and publication.sent_ns > channel.confirmed_ns

    def check_log(self, partitions: Iterable[tuple[int, Sequence[tuple[int, bytes]]]], *, asked_ns: int | None = None) -> None:
        """Compare what the logs hold, as (partition number, (offset, body) pairs), with what was promised before `asked_ns`."""
        self.log_book.check_all(partitions, asked_ns=self.clock.monotonic_ns() + 1 if asked_ns is None else asked_ns)
