"""What a delivery must be like: whose message it is, whether it may come now, who holds it, which attempt it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from polymq.limits import OFFSET_BITS, OFFSET_MAX
from polymq.testing.promises import PromiseBrokenError, Share

if TYPE_CHECKING:
    from polymq.testing.management import Management
    from polymq.testing.promises import Book, Channel, Connection, Publication

__all__ = ["Deliveries"]

# From the due time to the consumer, where nothing is in the way: a release and a sync.
_LATE_NS: Final = 2_000_000_000


@dataclass(slots=True)
class Deliveries:
    """See the module. `prompt_since_ns`: from then on nothing keeps a deferred message from being on time."""

    book: Book
    management: Management
    count: int = 0
    prompt_since_ns: int | None = None

    def judge(self, connection: Connection, message_id: int, attempts: int, body: bytes, *, made_ns: int) -> Publication:
        """A message frame left the broker; gives the message."""
        channel = connection.channel
        if channel is None:
            raise PromiseBrokenError(f"{connection.name}: a message without a subscription")
        self.count += 1
        if connection.left_ns is not None:
            raise PromiseBrokenError(f"{connection.name}: a message after CLOSE_WAIT")
        publication = self._identify(channel, body)
        self.management.check_delivery(channel, publication, made_ns)
        gone = publication.removed_ns is not None
        if not gone:
            self.book.locate(publication, message_id)
        share = channel.shares.get(message_id)
        if share is None or share.serial != publication.serial:
            share = channel.shares[message_id] = Share(publication.serial, message_id, channel)
        share.delivered += 1
        connection.seen.add(message_id)
        if gone or self._is_blurred(channel, publication, made_ns):
            share.renew()  # made before it was dropped or deleted, perhaps: nothing follows from it
            return publication
        if made_ns < share.lease_seen_ns:
            share.hold(None)  # made before the newest delivery that was seen, perhaps
            return publication
        wall_ns = self.book.clock.wall_ns()
        if share.finished_ns is not None:
            raise PromiseBrokenError(f"{share} was settled and came back, to {connection.name}")
        self.check_due(share, max(publication.due_wall_ns, share.requeue_due_wall_ns), wall_ns)
        self._check_late(share, publication, wall_ns)
        self._check_lease(connection, share, attempts)
        self._check_order(connection, share, publication, attempts)
        for command in share.pending:
            if command.redelivered is None and command not in connection.commands:
                command.redelivered = (connection.name, wall_ns)
        self._lease(connection, share, attempts, made_ns=made_ns)
        return publication

    def _is_blurred(self, channel: Channel, publication: Publication, made_ns: int) -> bool:
        """Whether the channel may have lost the message after this frame was made; else it has it for certain from here on."""
        moments = (
            publication.dropped_ns,
            publication.unsure_ns,
            channel.unsure.get(publication.serial),
            channel.dropped.get(publication.serial),
        )
        if any(each is not None and made_ns <= each for each in moments):
            return True
        channel.unsure.pop(publication.serial, None)
        return False

    def check_due(self, share: Share, due_wall_ns: int, wall_ns: int) -> None:
        """A deferred message may not come before its time."""
        early_ns = due_wall_ns - wall_ns - self.book.wall_slack_ns
        if early_ns > 0:
            raise PromiseBrokenError(f"{share} was delivered {early_ns / 1e6:.3f} ms before its time")

    def _check_late(self, share: Share, publication: Publication, wall_ns: int) -> None:
        since_ns = self.prompt_since_ns
        if since_ns is None or share.delivered > 1 or not publication.due_wall_ns or share.attempts:
            return
        now_ns = self.book.clock.monotonic_ns()
        counted_from_ns = publication.answered_after_wall_ns
        if counted_from_ns is None:
            counted_from_ns = self.book.wall_slack_ns
        late_ns = min(now_ns - since_ns, wall_ns - publication.due_wall_ns - max(0, counted_from_ns)) - _LATE_NS
        if late_ns > 0:
            raise PromiseBrokenError(f"{share} was delivered {(late_ns + _LATE_NS) / 1e6:.3f} ms after its time")

    def _identify(self, channel: Channel, body: bytes) -> Publication:
        """Find out which message this is."""
        publication = self.book.publications.get(int(body[:8])) if body[:8].isdigit() else None
        if publication is None or publication.body != body:
            raise PromiseBrokenError(f"{channel}: bytes that nobody published: {body[:40]!r}")
        if publication.topic != channel.topic:
            raise PromiseBrokenError(f"{channel}: message {publication.serial} belongs to topic {publication.topic}")
        return publication

    def _check_lease(self, connection: Connection, share: Share, attempts: int) -> None:
        now_ns = self.book.clock.monotonic_ns()
        holder = share.holder
        if holder is not None and now_ns < share.lease_from_ns + holder.timeout_ns:
            left_ns = share.lease_from_ns + holder.timeout_ns - now_ns
            raise PromiseBrokenError(
                f"{share} was delivered to {connection.name} while {holder.name} holds it for another {left_ns / 1e6:.3f} ms"
            )
        if attempts <= share.attempts and share.life == self.book.life:
            raise PromiseBrokenError(f"{share} went from attempt {share.attempts} to {attempts}")
        channel = share.channel
        most = share.delivered + channel.ended_connections
        unseen = channel.unseen or any(other.held_up for other in self.book.connections if other.channel is channel)
        if attempts > most and not unseen:
            raise PromiseBrokenError(f"{share} is at attempt {attempts}, but it was sent {share.delivered - 1} times before")

    def _check_order(self, connection: Connection, share: Share, publication: Publication, attempts: int) -> None:
        """First deliveries of one partition to one connection come in the order of the log."""
        if attempts != 1 or share.delivered > 1 or publication.life != self.book.life:
            return
        partition, offset = share.id >> OFFSET_BITS, share.id & OFFSET_MAX
        if connection.offsets.get(partition, -1) >= offset:
            raise PromiseBrokenError(f"{share}: offset {offset} of partition {partition} came after a later one")
        connection.offsets[partition] = offset

    def _lease(self, connection: Connection, share: Share, attempts: int, *, made_ns: int) -> None:
        """Note who holds the message; nobody can hold more than was asked for."""
        now_ns = self.book.clock.monotonic_ns()
        share.attempts, share.life = attempts, self.book.life
        share.lease_from_ns, share.lease_seen_ns = made_ns, now_ns
        share.excused = False
        share.requeue_due_wall_ns = 0
        if any(command in connection.commands for command in share.pending):
            share.hold(None)  # a FIN or REQ of the lease before may yet end this one
            return
        share.hold(connection)
        held = sum(now_ns < other.lease_from_ns + connection.timeout_ns for other in connection.held.values())
        if held > connection.ready_max and not self.management.disturbs(share.channel):
            raise PromiseBrokenError(f"{connection.name} holds {held} messages and asked for {connection.ready_max}")
