"""A broker whose live messages go to listeners that keep them, with an archive and an outlet over a protocol of the tests' own."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from polymq.core.interest.targets import KEEPS_LOCAL, Target
from polymq.core.live_outlet import Outlet
from polymq.core.live_store import Archives, Capture
from polymq.wire.batch import HEADER_SIZE_BYTES, Message, encode_message, parse_header, read_messages
from polymq.wire.live import COLUMNS, KEPT, PAYLOAD_AT, PAYLOAD_SIZE, SPARE, SUBJECT_SIZE, LiveBatch, LiveMessage

from .conftest import World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polymq.core.live import LiveSpace
    from polymq.wire.live import LiveBatch as Batch
    from polymq.wire.slices import Slice

ORIGIN = 9
# Headers that this protocol cannot say.
LEFT_OUT = b"unspeakable"


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

    def live(self, name: bytes, message: Message) -> LiveMessage | None:
        block = b"".join(value for _name, value in message.headers)
        reply = b"".join(data for origin, data in message.extras if origin == ORIGIN)
        return None if block == LEFT_OUT else LiveMessage(name, block + message.body, reply, header_size=len(block))

    def room(self, slice_: Slice) -> int:
        return slice_.end - slice_.position

    def unfold(
        self, target: bytearray, rows: memoryview, slice_: Slice, origin: int, name_size: int
    ) -> tuple[int, int, int, list[tuple[int, int, int]]]:
        """Make rows of records; those with a body only have a payload."""
        position, left, base_time_ns, at, count = slice_.position, slice_.batch_left, slice_.base_time_ns, name_size, 0
        rich: list[tuple[int, int, int]] = []
        for _ in range(slice_.count):
            if not left:
                header = parse_header(slice_.view, position)
                origin, left, base_time_ns = header.origin, header.count, header.base_time_ns
                position += HEADER_SIZE_BYTES
            (message,) = read_messages(slice_.view, position, 1, base_time_ns, 1, slice_.end)
            if origin != ORIGIN:
                row = [0] * COLUMNS
                row[SUBJECT_SIZE], row[SPARE], row[PAYLOAD_AT] = name_size, KEPT, at
                if message.key is not None or message.headers or message.extras:
                    rich.append((count, position, base_time_ns))
                else:
                    row[PAYLOAD_SIZE] = len(message.body)
                    target[at : at + len(message.body)] = message.body
                    at += len(message.body)
                rows[COLUMNS * count : COLUMNS * (count + 1)] = memoryview(array("i", row))
                count += 1
            position += int.from_bytes(slice_.view[position : position + 4], "little")
            left -= 1
        return count, at, origin, rich


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
