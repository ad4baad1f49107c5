"""A broker whose live messages go to listeners that keep them, with an archive and an outlet over a protocol of the tests' own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.core.interest.targets import KEEPS_LOCAL, Target
from polymq.core.live_outlet import Outlet
from polymq.core.live_store import Archives, Capture
from polymq.wire.batch import Message, encode_message
from polymq.wire.live import LiveBatch, LiveMessage

from .conftest import World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polymq.core.live import LiveSpace
    from polymq.wire.live import LiveBatch as Batch

ORIGIN = 9


class Codec:
    """Headers are one text, and so is a reply."""

    origin = ORIGIN

    def encode(self, batch: Batch, indexes: memoryview, first: int, count: int) -> memoryview:
        return memoryview(b"".join(encode_message(self.record(batch.messages()[index])) for index in indexes[first : first + count]))

    def record(self, message: LiveMessage) -> Message:
        extras = ((ORIGIN, message.reply),) if message.reply else ()
        cut = message.header_size
        headers = ((b"block", message.payload[:cut]),) if cut else ()
        return Message(message.payload[cut:], headers=headers, extras=extras)

    def live(self, name: bytes, message: Message) -> LiveMessage:
        block = b"".join(value for _name, value in message.headers)
        reply = b"".join(data for origin, data in message.extras if origin == ORIGIN)
        return LiveMessage(name, block + message.body, reply, header_size=len(block))


class Ears:
    """The owner of a target, with what it got, as (name, payload)."""

    def __init__(self, space: LiveSpace, *patterns: bytes, remote: bool = False) -> None:
        self.target = Target(self, remote=remote)
        self.space = space
        self.messages: list[LiveMessage] = []
        self.marks: list[int] = []
        for tag, pattern in enumerate(patterns):
            space.listen(pattern, self.target, tag=tag)

    @property
    def got(self) -> list[tuple[bytes, bytes]]:
        return [(message.subject, message.payload) for message in self.messages]

    def leave(self) -> None:
        for entry in list(self.target.entries):
            self.space.leave(entry)


class HandCourier:
    """Delivers to ears at once; `passes` counts how often it was called."""

    def __init__(self) -> None:
        self.passes = 0

    def waiting_size_bytes(self, owner: object) -> int:
        return 0

    def deliver(self, batch: Batch, targets: list[Target], *, more: bool) -> None:
        self.passes += 1
        for target in targets:
            ears = target.owner
            if isinstance(ears, Ears):
                messages = batch.messages()
                indexes = target.pairs.tolist()[: 2 * target.pair_count : 2]
                ears.messages += [messages[index] for index in indexes]
                ears.marks += [batch.rows[12 * index + 11] for index in indexes]
            target.clear()


class LiveWorld(World):
    """`capture` is the configuration."""

    def __init__(self, capture: Capture | None = None, partitions: int = 1) -> None:
        self.capture = capture or Capture()
        super().__init__(partitions)

    def restart(self, *, cut: bool = True) -> None:
        super().restart(cut=cut)
        self.courier = self.broker.live.courier = HandCourier()
        self.archives = Archives(self.broker, Codec(), self.capture)
        self.outlet = Outlet(self.broker, Codec())
        self.broker.feeders.append(self.outlet)

    @property
    def space(self) -> LiveSpace:
        return self.broker.live.space()

    def say(self, *messages: LiveMessage | tuple[bytes, bytes], sender: Target | None = None) -> int:
        """Publish live: what nobody took is counted."""
        found = [message if isinstance(message, LiveMessage) else LiveMessage(*message) for message in messages]
        self.broker.live.stored = None
        return self.space.publish(LiveBatch.of(found), sender)

    def kept(self, topic: str, namespace: str = "") -> list[bytes]:
        """The bodies that a topic has, partition after partition."""
        found = self.broker.catalogue.topics[namespace, topic]
        return [message.body for partition in found.partitions for message in self.store.logs[partition.number].messages()]

    def refusals(self) -> Sequence[tuple[bytes, str]]:
        stored = self.broker.live.stored
        return [] if stored is None else stored.refusals


def capturing(*patterns: bytes, keeps: int = KEEPS_LOCAL, topics_max: int = 100) -> Capture:
    return Capture(patterns, keeps, topics_max, (b"_IN.", b"$"))
