"""Simulated users of the two HTTP ports: an operator who manages topics and channels, and a reader of the log.

Both have one request under way at a time, and tell the ledger what they asked and what they were answered.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from polymq.limits import OFFSET_MAX
from polymq.testing.clients import Client, Surroundings
from polymq.testing.http_wire import Answer, AnswerReader, request, take_batches
from polymq.testing.management import OrderKind
from polymq.testing.promises import PromiseBrokenError

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.testing.clients import ClientStream
    from polymq.testing.options import TopicPlan
    from polymq.testing.promises import Publication

__all__ = ["HttpSurroundings", "LogReader", "Operator", "channel_names"]

_SIZES_BYTES: Final = (1, 300, 3000, 1 << 20)
_WAITS_MS: Final = (0, 0, 50, 500)


class HttpSurroundings(Surroundings, Protocol):
    """What a client of the HTTP ports can reach."""

    def dial(self, port: str) -> ClientStream | None:
        """Reach the broker's HTTP port for NSQ ("nsq") or for the log ("log"), if it is up."""


class HttpClient(Client):
    """A client with at most one request under way; `_answer` gets its response."""

    port = "nsq"

    def __init__(self, world: HttpSurroundings, name: str) -> None:
        super().__init__(world, name)
        self._http_world = world
        self._reader = AnswerReader()
        self._then: Callable[[Answer], None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether an answer is waited for."""
        return self._then is not None

    def _reach(self) -> ClientStream | None:
        return self._http_world.dial(self.port)

    def _opened(self) -> None:
        self._reader = AnswerReader()
        self._then = None

    def _ask(self, method: str, path: str, then: Callable[[Answer], None], **arguments: object) -> None:
        self._then = then
        self._output += request(method, path, arguments)

    def _took(self, data: bytes) -> None:
        for answer in self._reader.feed(data):
            then, self._then = self._then, None
            if then is None:
                raise PromiseBrokenError(f"{self.connection.name}: a response to nothing that was asked")
            then(answer)

    def disconnect(self) -> None:
        """Hang up: the answer is not heard any more."""
        self._then = None
        super().disconnect()


class Operator(HttpClient):
    """Creates, deletes, empties, pauses. What it has paused it resumes some time, or leaves to the next life.

    `resumes_all`: it only puts an end to every pause of any topic or channel.
    """

    def __init__(self, world: HttpSurroundings, name: str, *, resumes_all: bool = False) -> None:
        super().__init__(world, name)
        self.agenda: list[tuple[OrderKind, str, str]] = []
        self._resumes_all = resumes_all
        if resumes_all:
            self.agenda = self._all_ends_of_pauses()
        self._paused: list[tuple[OrderKind, str, str]] = []

    def _all_ends_of_pauses(self) -> list[tuple[OrderKind, str, str]]:
        ledger = self.world.ledger
        channels = [(OrderKind.UNPAUSE_CHANNEL, channel.topic, channel.name) for channel in ledger.channels.values()]
        topics = sorted({topic for _, topic, _ in channels})
        return [*((OrderKind.UNPAUSE_TOPIC, topic, "") for topic in topics), *channels]

    def _act(self) -> None:
        if self.is_busy:
            return
        if self.agenda:
            self._order(*self.agenda.pop(0))
        elif not self.stopped and not self._resumes_all and self._chance(self.world.options.manage_percent):
            self._order(*self._choose())

    def _choose(self) -> tuple[OrderKind, str, str]:
        options, random = self.world.options, self.world.random
        if self._paused and random.random() < 0.5:
            return self._paused.pop(random.randrange(len(self._paused)))
        kind = random.choice(options.orders)
        topic = random.choice([plan for plan in options.topics if not plan.name.endswith("#ephemeral")])
        if kind is OrderKind.DELETE_TOPIC and not topic.plain:
            kind = OrderKind.PAUSE_TOPIC  # made anew by a publish, it would have other partitions and durability
        channel = "" if kind.about_topic else random.choice(channel_names(topic))
        if kind is OrderKind.PAUSE_TOPIC:
            self._paused.append((OrderKind.UNPAUSE_TOPIC, topic.name, ""))
        elif kind is OrderKind.PAUSE_CHANNEL:
            self._paused.append((OrderKind.UNPAUSE_CHANNEL, topic.name, channel))
        return kind, topic.name, channel

    def _order(self, kind: OrderKind, topic: str, channel: str) -> None:
        management = self.world.ledger.management
        order = management.ordered(kind, topic, channel)
        self.world.trace("%s asks for %s", self.connection.name, order)

        def answered(answer: Answer) -> None:
            self.world.trace("%s: %s gives %d", self.connection.name, order, answer.status)
            management.answered(order, answer.status)

        names = {"topic": topic} if kind.about_topic else {"topic": topic, "channel": channel}
        self._ask("POST", kind.value, answered, **names)


class _Partition(NamedTuple):
    """One partition as the catalogue described it. `place` counts within the topic."""

    place: int
    number: int
    epochs: list[tuple[int, int]]
    start: int
    readable: int


class LogReader(HttpClient):
    """Reads the partitions of one topic from their start on, batch by batch, over and over. `thorough`: all, and at once."""

    port = "log"

    def __init__(self, world: HttpSurroundings, name: str, topic: str, *, thorough: bool = False) -> None:
        super().__init__(world, name)
        self.topic = topic
        self.thorough = thorough
        # All records by partition number, in order: (offset, body).
        self.records: dict[int, list[tuple[int, bytes]]] = {}
        self.missing = False  # there is no such topic
        self._partitions: list[_Partition] = []
        self._positions: dict[int, int] = {}
        self._turn = 0

    @property
    def is_done(self) -> bool:
        """Whether a thorough reader has everything."""
        return self.missing or (bool(self._partitions) and all(self._positions[each.number] >= each.readable for each in self._partitions))

    def _act(self) -> None:
        if self.is_busy or (self.stopped and not self.thorough) or (self.thorough and self.is_done):
            return
        self._turn += 1
        if self._partitions and (self.thorough or self._turn % 8):
            waiting = [each for each in self._partitions if not self.thorough or self._positions[each.number] < each.readable]
            self._read_on(self.world.random.choice(waiting))
        else:
            self._ask("GET", f"/v1/topics/{self.topic.replace('#', '%23')}", self._described)

    def _described(self, answer: Answer) -> None:
        if answer.status != 200:
            self.missing = answer.status == 404
            self._partitions = []
            return
        self._partitions = []
        for each in json.loads(answer.body)["partitions"]:
            epochs = [(epoch, first) for epoch, first in each["epochs"]]
            self._partitions.append(_Partition(each["partition"], each["number"], epochs, each["start"], each["readable"]))
            self._positions.setdefault(each["number"], each["start"])
            self.records.setdefault(each["number"], [])
            self.world.ledger.log_book.check_start(each["number"], each["start"])

    def _read_on(self, partition: _Partition) -> None:
        random, position = self.world.random, self._positions[partition.number]
        if not self.thorough and position > partition.start and random.random() < 0.2:
            position = partition.start + random.randrange(position - partition.start)  # somewhere that was read before
        arguments: dict[str, object] = {"offset": position}
        if not self.thorough:
            arguments["max_bytes"] = random.choice(_SIZES_BYTES)
            arguments["wait_ms"] = random.choice(_WAITS_MS)
        asked_ns = self.world.clock.monotonic_ns()
        path = f"/v1/topics/{self.topic.replace('#', '%23')}/{partition.place}/records"
        self._ask("GET", path, lambda answer: self._got(partition, position, asked_ns, answer), **arguments)

    def _got(self, partition: _Partition, position: int, asked_ns: int, answer: Answer) -> None:
        ledger = self.world.ledger
        if answer.status == 416:
            self._out_of_range(partition, position, json.loads(answer.body))
            return
        if answer.status != 200:
            self._partitions = []
            return
        number, start = int(answer.headers["polymq-number"]), int(answer.headers["polymq-start"])
        if number != partition.number:
            self._partitions = []  # the topic was made anew meanwhile
            return
        ledger.log_book.check_start(number, start)
        batches = take_batches(answer.body)
        if not batches:
            self._nothing(partition, position, int(answer.headers["polymq-readable"]))
            return
        first = batches[0]
        if not first.base_offset <= position < first.base_offset + len(first.bodies):
            raise PromiseBrokenError(f"{self.connection.name} asked partition {number} for {position} and got {first.base_offset} on")
        ledger.log_book.check_epoch(number, partition.epochs, batches)
        found = ledger.log_book.read(self.topic, number, batches, epoch=int(answer.headers["polymq-epoch"]), asked_ns=asked_ns)
        self._note(partition, position, found, asked_ns)

    def _note(self, partition: _Partition, position: int, found: list[tuple[Publication, int]], asked_ns: int) -> None:
        ledger = self.world.ledger
        for publication, message_id in found:
            ledger.saw(publication, message_id, made_ns=asked_ns)
        last = found[-1][1] & OFFSET_MAX
        self.world.trace("%s reads partition %d from %d to %d", self.connection.name, partition.number, position, last)
        if position == self._positions[partition.number]:
            self.records[partition.number] += [
                (message_id & OFFSET_MAX, publication.body) for publication, message_id in found if message_id & OFFSET_MAX >= position
            ]
            self._positions[partition.number] = last + 1

    def _nothing(self, partition: _Partition, position: int, readable: int) -> None:
        if position < readable:
            raise PromiseBrokenError(
                f"{self.connection.name}: partition {partition.number} gives nothing at {position}, readable is {readable}"
            )

    def _out_of_range(self, partition: _Partition, position: int, said: dict[str, int]) -> None:
        """The log does not go so far any more, or begins later: read on from where it can be read."""
        if said["start"] <= position <= said["readable"]:
            raise PromiseBrokenError(f"{self.connection.name}: {position} is refused although it lies within {said}")
        self.world.trace("%s: partition %d, %d is outside %s", self.connection.name, partition.number, position, said)
        self.world.ledger.log_book.check_start(partition.number, said["start"])
        self._positions[partition.number] = min(max(position, said["start"]), said["readable"])
        self._partitions = []


def channel_names(topic: TopicPlan) -> list[str]:
    """Give the names of a topic's channels."""
    names = [f"channel{number}" for number in range(topic.channels)]
    return [*names, "passing#ephemeral"] if topic.ephemeral_channel else names
