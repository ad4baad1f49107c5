"""What follows from making, removing, emptying and pausing topics and channels: what must, may and must not be seen.

An order was carried out at some moment between its sending and its answer, so three kinds of messages are told
apart: what was certainly there before (acknowledged before the order was sent), what certainly came after it (sent
after the answer), and the rest, of which nothing is known until it is seen. An order whose answer never came may
have been carried out at any time up to the end of that process.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from polymq.testing.promises import Pause, PromiseBrokenError

if TYPE_CHECKING:
    from polymq.testing.durability import Loss
    from polymq.testing.promises import Book, Channel, Publication, Topic

__all__ = ["Management", "Order", "OrderKind"]


class OrderKind(enum.Enum):
    """What can be asked of a topic, or of a channel. The value is the path of the HTTP endpoint."""

    CREATE_TOPIC = "/topic/create"
    DELETE_TOPIC = "/topic/delete"
    EMPTY_TOPIC = "/topic/empty"
    PAUSE_TOPIC = "/topic/pause"
    UNPAUSE_TOPIC = "/topic/unpause"
    CREATE_CHANNEL = "/channel/create"
    DELETE_CHANNEL = "/channel/delete"
    EMPTY_CHANNEL = "/channel/empty"
    PAUSE_CHANNEL = "/channel/pause"
    UNPAUSE_CHANNEL = "/channel/unpause"

    @property
    def about_topic(self) -> bool:
        """Whether it is about a topic as a whole."""
        return self.value.startswith("/topic/")


@dataclass(slots=True, eq=False)
class Order:
    """One request. `channel` is empty for those about topics."""

    kind: OrderKind
    topic: str
    channel: str
    sent_ns: int

    def __str__(self) -> str:
        return f"{self.kind.value} {self.topic}{'/' if self.channel else ''}{self.channel}"


@dataclass(slots=True)
class Management:
    """See the module."""

    book: Book
    _waiting: list[Order] = field(default_factory=list)

    def ordered(self, kind: OrderKind, topic: str, channel: str = "") -> Order:
        """A request is sent: from here on nothing that it may change is certain."""
        book = self.book
        order = Order(kind, topic, channel, book.clock.monotonic_ns())
        self._waiting.append(order)
        target = book.topic(topic)
        if kind is OrderKind.PAUSE_TOPIC:
            if target.resumed_ns is not None:
                target.maybe_paused_ns = order.sent_ns
            target.resumed_ns = None
        elif kind is OrderKind.UNPAUSE_TOPIC:
            target.paused = None
        elif kind is OrderKind.DELETE_TOPIC:
            target.paused = target.resumed_ns = target.confirmed_ns = None
            target.maybe_paused_ns = 0
            target.remade_ns = order.sent_ns
            for each in book.channels_of(topic):
                each.paused = each.confirmed_ns = None
                each.first = False
        elif kind is OrderKind.UNPAUSE_CHANNEL:
            book.channel(topic, channel).paused = None
        elif kind is OrderKind.DELETE_CHANNEL:
            found = book.channel(topic, channel)
            found.paused = found.confirmed_ns = None
            found.first = False
        elif kind is OrderKind.CREATE_CHANNEL:
            book.channel(topic, channel)
        return order

    def answered(self, order: Order, status: int) -> None:
        """The answer has come. Without success nothing was changed."""
        if order not in self._waiting:
            return  # it came after the end of its process
        self._waiting.remove(order)
        if status != 200:
            self._doubtful(order)  # nothing was changed, or a full disk has kept it from being written down
            return
        topic = self.book.topic(order.topic)
        carry_out = {
            OrderKind.CREATE_TOPIC: self._created_topic,
            OrderKind.DELETE_TOPIC: self._deleted_topic,
            OrderKind.EMPTY_TOPIC: self._emptied_topic,
            OrderKind.PAUSE_TOPIC: self._paused_topic,
            OrderKind.UNPAUSE_TOPIC: self._resumed_topic,
            OrderKind.CREATE_CHANNEL: self._created_channel,
            OrderKind.DELETE_CHANNEL: self._deleted_channel,
            OrderKind.EMPTY_CHANNEL: self._emptied_channel,
            OrderKind.PAUSE_CHANNEL: self._paused_channel,
        }.get(order.kind)
        if carry_out is not None:
            carry_out(order, topic)

    def stopped(self) -> None:
        """The process is gone, and what it was asked may have been done or not."""
        waiting, self._waiting = self._waiting, []
        for order in waiting:
            self._doubtful(order)
        for topic in self.book.topics.values():
            if topic.ephemeral:
                self._end_topic(topic)
        for channel in self.book.channels.values():
            if channel.ephemeral:
                self._end_channel(channel)

    def disturbs(self, channel: Channel) -> bool:
        """Whether something is under way that takes from consumers what they hold."""
        takes = (OrderKind.EMPTY_CHANNEL, OrderKind.DELETE_CHANNEL)
        return any(
            order.topic == channel.topic
            and (order.kind is OrderKind.DELETE_TOPIC or (order.kind in takes and order.channel == channel.name))
            for order in self._waiting
        )

    # -- what is known about one message -----------------------------------------------------------------------------

    def check_delivery(self, channel: Channel, publication: Publication, made_ns: int) -> None:
        """A frame that was made at `made_ns` or later shows a message to a channel."""
        topic = self.book.topic(publication.topic)
        what = f"message {publication.serial} of {channel}"
        self.check_there(publication, made_ns)
        if publication.dropped_ns is not None and made_ns > publication.dropped_ns:
            raise PromiseBrokenError(f"{what} came although its topic was emptied before")
        dropped_ns = channel.dropped.get(publication.serial)
        if dropped_ns is not None and made_ns > dropped_ns:
            raise PromiseBrokenError(f"{what} came although its channel was emptied or deleted before")
        if channel.paused is not None and made_ns > channel.paused.since_ns:
            raise PromiseBrokenError(f"{what} came although the channel is paused")
        pause = topic.paused
        if pause is not None and made_ns > pause.since_ns and self._is_after(publication, pause):
            raise PromiseBrokenError(f"{what} came although the topic was paused before it was published")

    def check_there(self, publication: Publication, made_ns: int) -> None:
        """Something that was made at `made_ns` or later shows a message to somebody."""
        if publication.removed_ns is not None and made_ns > publication.removed_ns:
            raise PromiseBrokenError(f"message {publication.serial} came although its topic {publication.topic} was deleted before")

    def _is_after(self, publication: Publication, pause: Pause) -> bool:
        if publication.due_wall_ns:
            return publication.due_wall_ns > pause.since_wall_ns + self.book.wall_slack_ns
        return publication.sent_ns > pause.since_ns

    def is_lost_to(self, channel: Channel, publication: Publication) -> bool:
        """Whether a channel need not get a message that it has not been seen to get."""
        gone = any(each is not None for each in (publication.removed_ns, publication.dropped_ns, publication.unsure_ns))
        return gone or publication.serial in channel.dropped or publication.serial in channel.unsure

    # -- what happened -----------------------------------------------------------------------------------------------

    def _doubtful(self, order: Order) -> None:
        """An order may or may not have been carried out."""
        book = self.book
        topic = book.topic(order.topic)
        if order.kind is OrderKind.DELETE_TOPIC:
            for publication in book.publications_of(order.topic):
                self._blur(publication)
            for channel in book.channels_of(order.topic):
                self._renew(channel, order, certain=False)
        elif order.kind is OrderKind.EMPTY_TOPIC:
            for publication in book.publications_of(order.topic):
                self._withhold(publication)
        elif order.kind in (OrderKind.DELETE_CHANNEL, OrderKind.EMPTY_CHANNEL):
            self._renew(book.channel(order.topic, order.channel), order, certain=False)
        elif order.kind in (OrderKind.PAUSE_TOPIC, OrderKind.UNPAUSE_TOPIC):
            topic.paused = topic.resumed_ns = None
            topic.maybe_paused_ns = 0
        elif order.kind in (OrderKind.PAUSE_CHANNEL, OrderKind.UNPAUSE_CHANNEL):
            book.channel(order.topic, order.channel).paused = None

    def _contested(self, order: Order) -> bool:
        """Whether another order about the same topic is under way, which may have come before or after."""
        return any(other.topic == order.topic for other in self._waiting)

    def _created_topic(self, order: Order, topic: Topic) -> None:
        if topic.confirmed_ns is None and not self._contested(order):
            topic.confirmed_ns = self.book.clock.monotonic_ns()

    def _deleted_topic(self, order: Order, topic: Topic) -> None:
        now_ns = self.book.clock.monotonic_ns()
        for publication in self.book.publications_of(order.topic):
            if self._was_there(publication, order):
                publication.removed_ns = now_ns
                publication.promised_ns = None
                publication.ids_before.update(publication.ids)
                publication.ids.clear()
            else:
                self._blur(publication)
        for channel in self.book.channels_of(order.topic):
            self._renew(channel, order, certain=False)
        topic.confirmed_ns = topic.paused = None
        topic.resumed_ns = None if self._contested(order) else now_ns

    def _emptied_topic(self, order: Order, topic: Topic) -> None:
        now_ns = self.book.clock.monotonic_ns()
        channels = [
            channel
            for channel in self.book.channels_of(order.topic)
            if channel.confirmed_ns is not None and channel.confirmed_ns < order.sent_ns and not channel.ephemeral
        ]
        contested = self._contested(order)
        if topic.resumed_ns is not None and topic.resumed_ns < order.sent_ns and channels and not contested:
            return  # there was nothing that only the topic had
        pause = None if contested else topic.paused
        for publication in self.book.publications_of(order.topic):
            if pause is not None and not publication.due_wall_ns:
                if publication.sent_ns > pause.since_ns and self._was_there(publication, order):
                    publication.dropped_ns = now_ns
                    continue
                before = publication.acknowledged_ns is not None and publication.acknowledged_ns < topic.maybe_paused_ns
                if before and any(channel.confirmed_ns is not None and channel.confirmed_ns < publication.sent_ns for channel in channels):
                    continue
            self._withhold(publication)

    def _paused_topic(self, order: Order, topic: Topic) -> None:
        if topic.paused is None and not self._contested(order):
            topic.paused = self._pause()

    def _resumed_topic(self, order: Order, topic: Topic) -> None:
        if not self._contested(order):
            topic.resumed_ns = self.book.clock.monotonic_ns()

    def _created_channel(self, order: Order, topic: Topic) -> None:
        channel = self.book.channel(order.topic, order.channel)
        if channel.confirmed_ns is None and not self._contested(order) and not channel.ephemeral:
            channel.confirmed_ns = self.book.clock.monotonic_ns()

    def _deleted_channel(self, order: Order, topic: Topic) -> None:
        # A paused topic gives a channel that is made later what it has kept since.
        certain = topic.resumed_ns is not None and topic.resumed_ns < order.sent_ns and not self._contested(order)
        self._renew(self.book.channel(order.topic, order.channel), order, certain=certain, keeps_scheduled=True)

    def _emptied_channel(self, order: Order, topic: Topic) -> None:
        certain = topic.resumed_ns is not None and topic.resumed_ns < order.sent_ns and not self._contested(order)
        self._renew(self.book.channel(order.topic, order.channel), order, certain=certain)

    def _paused_channel(self, order: Order, topic: Topic) -> None:
        channel = self.book.channel(order.topic, order.channel)
        if channel.confirmed_ns is not None and not channel.ephemeral and not self._contested(order):
            channel.paused = channel.paused or self._pause()

    def _pause(self) -> Pause:
        return Pause(self.book.clock.monotonic_ns(), self.book.clock.wall_ns())

    def _was_there(self, publication: Publication, order: Order) -> bool:
        return publication.acknowledged_ns is not None and publication.acknowledged_ns < order.sent_ns and publication.unsure_ns is None

    def _renew(self, channel: Channel, order: Order, *, certain: bool, keeps_scheduled: bool = False) -> None:
        """A channel has lost what it had, or may have. `keeps_scheduled`: what is appended later is for the next channel, too."""
        now_ns = self.book.clock.monotonic_ns()
        for publication in self.book.publications_of(channel.topic):
            scheduled = keeps_scheduled and publication.due_wall_ns > 0
            appended = not scheduled or any(seen_ns < order.sent_ns for seen_ns in publication.ids.values())
            emptied = not appended and channel.dropped.pop(publication.serial, None) is not None
            waits = scheduled and publication.due_wall_ns > self.book.clock.wall_ns() + self.book.wall_slack_ns
            if waits and not appended and not emptied:
                continue
            if certain and appended and self._was_there(publication, order):
                channel.dropped.setdefault(publication.serial, now_ns)
                continue
            channel.unsure[publication.serial] = now_ns
            if scheduled and not certain:
                # The channel was emptied of it before it was appended, and a paused topic has it for the next one.
                channel.dropped.pop(publication.serial, None)
        if order.kind is OrderKind.EMPTY_CHANNEL:
            for share in channel.shares.values():
                share.excused = True
                share.hold(None)
        else:
            channel.renewed_ns = now_ns
            for share in channel.shares.values():
                share.renew()

    def _withhold(self, publication: Publication) -> None:
        """A topic may have been emptied of a message: it stays in the log, unless it had not got there."""
        if publication.due_wall_ns and not publication.ids:
            self._blur(publication)
        publication.unsure_ns = self.book.clock.monotonic_ns()

    def _blur(self, publication: Publication) -> None:
        """A message may be gone, or not."""
        publication.unsure_ns = self.book.clock.monotonic_ns()
        publication.promised_ns = None
        publication.ids_before.update(publication.ids)
        publication.ids.clear()

    def _spare(self, channel: Channel, publication: Publication) -> None:
        """What was scheduled when a channel was emptied may yet come to the next channel of that name."""
        if publication.due_wall_ns:
            channel.dropped.pop(publication.serial, None)

    # -- ephemeral ones ----------------------------------------------------------------------------------------------

    def left(self, channel: Channel) -> None:
        """A connection to a channel has ended, or is about to after an error: an ephemeral channel goes with its last consumer.

        That happens at some time from now on. So does an ephemeral topic with its last channel; what is published then is another topic's.
        """
        if not channel.ephemeral or self.book.has_consumers(channel):
            return
        now_ns = self.book.clock.monotonic_ns()
        channel.confirmed_ns = None
        for publication in self.book.publications_of(channel.topic):
            self._spare(channel, publication)
            channel.unsure[publication.serial] = now_ns
        for share in channel.shares.values():
            share.renew()
        topic = self.book.topic(channel.topic)
        if topic.ephemeral and not any(self._lives_on(other) for other in self.book.channels_of(topic.name)):
            topic.remade_ns = now_ns

    def _lives_on(self, channel: Channel) -> bool:
        """Whether a channel keeps an ephemeral topic there, as far as is known."""
        return not channel.ephemeral or self.book.has_consumers(channel)

    def _end_channel(self, channel: Channel) -> None:
        """An ephemeral channel has ended with its process: what others must have got is not for its next life."""
        book = self.book
        now_ns = book.clock.monotonic_ns()
        topic = book.topic(channel.topic)
        lasting = [each.confirmed_ns for each in book.channels_of(channel.topic) if not each.ephemeral]
        confirmed_ns = min((each for each in lasting if each is not None), default=None)
        for publication in book.publications_of(channel.topic):
            self._spare(channel, publication)
            was_taken = confirmed_ns is not None and topic.resumed_ns is not None
            if was_taken and publication.acknowledged_ns is not None and not publication.due_wall_ns:
                channel.dropped.setdefault(publication.serial, now_ns)
            else:
                channel.unsure[publication.serial] = now_ns
        channel.confirmed_ns = channel.paused = None
        for share in channel.shares.values():
            share.renew()

    def _end_topic(self, topic: Topic) -> None:
        """An ephemeral topic has ended with its process."""
        now_ns = self.book.clock.monotonic_ns()
        for publication in self.book.publications_of(topic.name):
            publication.removed_ns = now_ns
            publication.promised_ns = None
            publication.ids.clear()
        topic.confirmed_ns = topic.paused = None
        topic.resumed_ns = now_ns
        for channel in self.book.channels_of(topic.name):
            channel.confirmed_ns = channel.paused = None
            for share in channel.shares.values():
                share.renew()

    # -- power loss --------------------------------------------------------------------------------------------------

    def power_lost(self, loss: Loss) -> None:
        """What was not synced may be undone: then nothing is certain in either direction."""
        now_ns = self.book.clock.monotonic_ns()
        for topic in self.book.topics.values():
            if topic.confirmed_ns is not None and not loss.journal_keeps(topic.confirmed_ns):
                topic.confirmed_ns = None
            if topic.paused is not None and not loss.journal_keeps(topic.paused.since_ns):
                topic.paused = None
            if topic.resumed_ns and not loss.journal_keeps(topic.resumed_ns):
                topic.resumed_ns = None
            if topic.resumed_ns is None:
                topic.maybe_paused_ns = 0
        for channel in self.book.channels.values():
            if channel.paused is not None and not loss.journal_keeps(channel.paused.since_ns):
                channel.paused = None
            undone = [serial for serial, since_ns in channel.dropped.items() if not loss.journal_keeps(since_ns)]
            for serial in undone:
                del channel.dropped[serial]
                channel.unsure[serial] = now_ns
        for publication in self.book.publications.values():
            lasting = not self.book.topic(publication.topic).ephemeral
            if lasting and publication.removed_ns is not None and not loss.journal_keeps(publication.removed_ns):
                publication.removed_ns = None
                self._blur(publication)
            if publication.dropped_ns is not None and not loss.journal_keeps(publication.dropped_ns):
                publication.dropped_ns = None
                publication.unsure_ns = self.book.clock.monotonic_ns()
