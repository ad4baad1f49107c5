"""Simulated RocketMQ clients: producers that send in every way, and consumers that read by position, commit and give back.

They speak JSON headers over one connection each. What they ask and are answered is told to the ledger and the witness.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from polymq.limits import OFFSET_BITS
from polymq.testing.clients import Client, make_body
from polymq.testing.positions import Spot
from polymq.testing.promises import PromiseBrokenError
from polymq.testing.rocketmq_wire import Code, Frame, FrameReader, batch_body, place_of, properties, pulled_messages, request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from polymq.testing.clients import ClientStream
    from polymq.testing.options import TopicPlan
    from polymq.testing.positions import Commit
    from polymq.testing.promises import Publication
    from polymq.testing.rocketmq_wire import Pulled
    from polymq.testing.witness import WitnessedSurroundings

__all__ = ["RocketmqClient", "RocketmqConsumer", "RocketmqProducer", "TopicMaker", "dead_letter_topic", "retry_topic", "spelt"]

_MS: Final = 1_000_000
_LEVEL_ONE_NS: Final = 1_000_000_000
_PULL_COUNT: Final = 32
_SUBSCRIPTION: Final = 4
_SUSPEND: Final = 2
_SUSPEND_MS: Final = 200
_AGAIN_NS: Final = 50_000_000
_RETURN_LEVELS: Final = (1, 1, 1, -1)


def spelt(topic: str) -> str:
    """Say how RocketMQ spells a topic of any protocol."""
    return topic.replace(".", "%2E")


def retry_topic(group: str) -> str:
    """Name the topic of what a group gives back."""
    return f"%RETRY%{group}"


def dead_letter_topic(group: str) -> str:
    """Name the topic of what a group gives up."""
    return f"%DLQ%{group}"


class RocketmqClient(Client):
    """A client that asks, and gets its answers in any order."""

    def __init__(self, world: WitnessedSurroundings, name: str) -> None:
        super().__init__(world, name)
        self._told = world
        self._reader = FrameReader()
        self._life = -1
        self._opaque = 0
        self._asked: dict[int, Callable[[Frame], None]] = {}

    @property
    def unanswered(self) -> int:
        """How many answers are waited for."""
        return len(self._asked)

    def hear_out(self, said: bytes) -> None:
        """Take what the process has said before it ended; whatever follows from it is never sent."""
        self._took(said)

    def _reach(self) -> ClientStream | None:
        return self._told.dial("rocketmq")

    def _opened(self) -> None:
        self._reader = FrameReader()
        self._asked.clear()
        self._life = self.world.ledger.life

    def _ask(self, code: int, ext: Mapping[str, object], then: Callable[[Frame], None], body: bytes = b"") -> None:
        self._opaque += 1
        self._asked[self._opaque] = then
        self._output += request(code, self._opaque, ext, body)

    def _took(self, data: bytes) -> None:
        if self._life != self.world.ledger.life:
            return  # what a process has said that is gone: a loss of power may have taken it
        for frame in self._reader.feed(data):
            if not frame.is_answer:
                continue
            then = self._asked.pop(frame.opaque, None)
            if then is None:
                raise PromiseBrokenError(f"{self.connection.name}: an answer to nothing that was asked")
            then(frame)


class RocketmqProducer(RocketmqClient):
    """Sends one message, a batch, one that is due later, or one that nobody answers; makes topics and queues."""

    def _act(self) -> None:
        if self.stopped:
            if not self._asked:
                self.disconnect()
            return
        options, random = self.world.options, self.world.random
        if self._chance(options.disconnect_percent) and not self._asked:
            self._hang_up()
            return
        for _ in range(1 + random.randrange(options.pipeline)):
            if len(self._asked) < options.pipeline and self.world.wants_messages:
                self._send_some(random.choice(self._told.topics_of("rocketmq")))

    def _send_some(self, topic: TopicPlan) -> None:
        options, random = self.world.options, self.world.random
        count = 2 + random.randrange(options.multi_publish_count_max) if self._chance(options.multi_publish_percent) else 1
        delay_ms = 0
        named: dict[str, object] = {}
        if count == 1 and self._chance(options.deferred_percent):
            delay_ms = random.choice((1000, 1 + random.randrange(options.deferred_ns_max // _MS)))
            named = {"DELAY": 1} if delay_ms == 1000 else {"TIMER_DELAY_MS": delay_ms}
        self._send(topic, count, delay_ms=delay_ms, named=named, oneway=self._chance(10))

    def _send(self, topic: TopicPlan, count: int, *, delay_ms: int, named: Mapping[str, object], oneway: bool) -> None:
        world, random = self.world, self.world.random
        serial = world.next_serial(count)
        bodies = [make_body(number, random.randrange(*world.options.body_size_bytes)) for number in range(serial, serial + count)]
        numbered = list(enumerate(bodies, serial))
        publications = world.ledger.announces(self.connection.name, topic.name, numbered, delay_ns=delay_ms * _MS, sync=topic.sync)
        queue = random.randrange(topic.partitions)
        world.trace("%s sends %d+%d to %s/%d, delay %d ms", self.connection.name, serial, count, topic.name, queue, delay_ms)
        self._told.sent[
            "RocketMQ batch" if count > 1 else "RocketMQ later" if delay_ms else "RocketMQ one way" if oneway else "RocketMQ"
        ] += count
        ext: dict[str, object] = {"a": "P", "b": spelt(topic.name), "c": "TBW102", "d": topic.partitions, "e": queue, "f": 0}
        ext |= {"g": world.clock.wall_ns() // _MS, "h": 0, "i": properties({"UNIQ_KEY": f"{serial:032X}"} | dict(named)), "j": 0}
        ext |= {"k": "false", "m": "true" if count > 1 else "false"}
        code = Code.SEND_BATCH if count > 1 else Code.SEND
        body = batch_body(bodies) if count > 1 else bodies[0]
        if oneway:
            self._opaque += 1
            self._output += request(code, self._opaque, ext, body, oneway=True)
            return
        self._ask(code, ext, lambda frame: self._answered(frame, publications), body)

    def _answered(self, frame: Frame, publications: Sequence[Publication]) -> None:
        """Note what is promised, and where it is said to lie."""
        if frame.code != Code.DONE:
            self.world.trace("%s is refused: %d %s", self.connection.name, frame.code, frame.remark)
            self._told.sent["refused"] += len(publications)
            return
        ids = str(frame.ext["msgId"]).split(",")
        if len(ids) != len(publications):
            raise PromiseBrokenError(f"{self.connection.name}: {len(ids)} ids for {len(publications)} messages")
        for publication, message_id in zip(publications, ids, strict=True):
            self.world.ledger.acknowledged(publication)
            if not publication.due_wall_ns and publication.promised_ns is not None:
                number, offset = place_of(message_id)
                self.world.ledger.book.locate(publication, number << OFFSET_BITS | offset)


class TopicMaker(RocketmqClient):
    """Makes topics and gives them more queues; both must be there ever after. `known`: queues by topic, as far as they were confirmed."""

    def __init__(self, world: WitnessedSurroundings, name: str, known: dict[str, int]) -> None:
        super().__init__(world, name)
        self._known = known
        self._unsure: dict[str, int] = {}

    def _opened(self) -> None:
        super()._opened()
        for topic in list(self._known):
            self._look(topic)

    def _look(self, topic: str) -> None:
        least = self._known[topic]

        def told(frame: Frame) -> None:
            found = json.loads(frame.body)["queueDatas"][0]["writeQueueNums"] if frame.code == Code.DONE else 0
            if found < least:
                raise PromiseBrokenError(f"{topic} has {found} queues, and was given {least}")

        self._ask(Code.ROUTE, {"topic": spelt(topic)}, told)

    def _act(self) -> None:
        if self.stopped or self._asked or not self._chance(20):
            return
        random = self.world.random
        topic = (
            f"made{len(self._known)}" if not self._known or (len(self._known) < 6 and self._chance(20)) else random.choice([*self._known])
        )
        queues = min(self._known.get(topic, 0) + random.choice((1, 2)), 12)
        ext: dict[str, object] = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6}
        ext |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}

        def made(frame: Frame) -> None:
            if frame.code == Code.DONE:
                self.world.trace("%s has %d queues", topic, queues)
                self._known[topic] = max(queues, self._known.get(topic, 0))

        self._ask(Code.CHANGE_TOPIC, ext, made)


@dataclass(slots=True)
class _Reading:
    """One queue that a consumer reads: `at` None until it knows where; `committed`: what it has asked for last."""

    spot: Spot
    wire_topic: str
    at: int | None = None
    busy: bool = False
    again_ns: int = 0
    committed: int = 0
    commit: Commit | None = None


class RocketmqConsumer(RocketmqClient):
    """Reads all queues of its topics for a group, from where the group is; its topics are those that `topics` gives, and the retry topic.

    `eager` ones commit everything at once and give nothing back.
    """

    def __init__(self, world: WitnessedSurroundings, group: str, topics: Callable[[], Mapping[str, int]], *, eager: bool = False) -> None:
        super().__init__(world, f"{group}{'.eager' if eager else ''}")
        self.group = group
        self.eager = eager
        self._topics = topics
        self._readings: dict[Spot, _Reading] = {}

    def disconnect(self) -> None:
        """Hang up: commits under way may still be carried out."""
        for reading in self._readings.values():
            if reading.commit is not None:
                self._told.witness.positions.abandoned(reading.commit)
        self._readings.clear()
        super().disconnect()

    def _act(self) -> None:
        if self.stopped:
            return
        if (
            not self.eager
            and self._chance(self.world.options.disconnect_percent)
            and not any(each.commit for each in self._readings.values())
        ):
            self._hang_up()
            return
        now_ns = self.world.clock.monotonic_ns()
        for topic, queues in [*self._topics().items(), (retry_topic(self.group), 1)]:
            for queue in range(queues):
                spot = Spot(self.group, topic, queue)
                if spot not in self._readings:
                    self._readings[spot] = _Reading(spot, spelt(topic))
        for reading in self._readings.values():
            if not reading.busy and reading.again_ns <= now_ns:
                self._go_on(reading)

    def _go_on(self, reading: _Reading) -> None:
        """Ask where the group is, or for what comes there."""
        reading.busy = True
        spot = reading.spot
        ext: dict[str, object] = {"consumerGroup": spot.group, "topic": reading.wire_topic, "queueId": spot.queue}
        if reading.at is None:
            asked_ns = self.world.clock.monotonic_ns()
            self._ask(Code.POSITION, ext, lambda frame: self._positioned(reading, frame, asked_ns))
            return
        ext |= {"queueOffset": reading.at, "maxMsgNums": _PULL_COUNT, "sysFlag": _SUBSCRIPTION | _SUSPEND, "commitOffset": 0}
        ext |= {"suspendTimeoutMillis": _SUSPEND_MS, "subscription": "*", "subVersion": 0, "expressionType": "TAG"}
        asked = reading.at
        self._ask(Code.PULL, ext, lambda frame: self._pulled(reading, frame, asked))

    def _positioned(self, reading: _Reading, frame: Frame, asked_ns: int) -> None:
        reading.busy = False
        if frame.code not in (Code.DONE, Code.NO_POSITION):
            self._pause(reading)
            return
        offset = int(frame.ext["offset"]) if frame.code == Code.DONE else None
        self.world.trace("%s is at %s", reading.spot, offset)
        self._told.witness.positions.told(reading.spot, offset, asked_ns=asked_ns)
        reading.at = reading.committed = offset or 0

    def _pause(self, reading: _Reading) -> None:
        reading.again_ns = self.world.clock.monotonic_ns() + _AGAIN_NS

    def _pulled(self, reading: _Reading, frame: Frame, asked: int) -> None:
        reading.busy = False
        if frame.code == Code.MOVED:
            self._told.witness.positions.moved(reading.spot, asked, int(frame.ext["nextBeginOffset"]))
            reading.at = None
        if frame.code != Code.DONE:
            self._pause(reading)
            return
        messages = pulled_messages(frame.body)
        self.world.trace("%s shows %s", reading.spot, _serials(messages))
        self._judge(reading, messages, asked)
        reading.at = int(frame.ext["nextBeginOffset"])
        if reading.at != asked + len(messages):
            raise PromiseBrokenError(f"{reading.spot}: {len(messages)} messages from {asked}, and then {reading.at}")
        for message in messages:
            if not self.eager and self._chance(self.world.options.requeue_percent):
                self._give_back(message)
        if reading.commit is None and (self.eager or self._chance(60)):
            self._commit(reading)

    def _judge(self, reading: _Reading, messages: Sequence[Pulled], asked: int) -> None:
        witness, topic = self._told.witness, reading.spot.topic
        records = [(message.number, message.offset, message.body) for message in messages]
        if topic not in witness.copies.topics:
            witness.positions.shown(self.group, topic, asked, records)
            return
        witness.positions.check_run(topic, asked, [(number, offset) for number, offset, _ in records])
        for message in messages:
            witness.copies.saw(topic, message.number, message.offset, message.body)
            if topic == retry_topic(self.group) and message.attempts < 1:
                raise PromiseBrokenError(f"{topic}: message {message.body[:8]!r} was given back, and says that it was not")

    def _commit(self, reading: _Reading) -> None:
        assert reading.at is not None
        if reading.at <= reading.committed:
            return
        spot, reading.committed = reading.spot, reading.at
        commit = reading.commit = self._told.witness.positions.commits_at(spot, reading.at)
        ext = {"consumerGroup": spot.group, "topic": reading.wire_topic, "queueId": spot.queue, "commitOffset": reading.at}

        def answered(frame: Frame) -> None:
            reading.commit = None
            if frame.code == Code.DONE:
                self._told.witness.positions.confirmed(commit)
            else:
                self._told.witness.positions.abandoned(commit)

        self._ask(Code.COMMIT, ext, answered)

    def _give_back(self, message: Pulled) -> None:
        """Have a message consumed again later, or given up."""
        copies, random = self._told.witness.copies, self.world.random
        level = random.choice(_RETURN_LEVELS)
        topic = retry_topic(self.group) if level > 0 else dead_letter_topic(self.group)
        copies.add_topic(topic)
        serial = int(message.body[:8])
        copy = copies.asks(serial, topic, delay_ns=_LEVEL_ONE_NS if level > 0 else 0)
        self.world.trace("%s gives back %d to %s", self.connection.name, serial, topic)
        self._told.sent["RocketMQ given back"] += 1
        ext: dict[str, Any] = {"offset": message.physical, "group": self.group, "delayLevel": level, "originTopic": message.topic}
        ext |= {"originMsgId": "", "unitMode": "false", "maxReconsumeTimes": 16}

        def answered(frame: Frame) -> None:
            if frame.code == Code.DONE:
                copies.confirmed(copy)
            else:
                self.world.trace("%s may not give back %d: %d %s", self.connection.name, serial, frame.code, frame.remark)
                self._told.sent["refused"] += 1

        self._ask(Code.GIVE_BACK, ext, answered)


def _serials(messages: Sequence[Pulled]) -> str:
    return " ".join(message.body[:8].decode("ascii", "replace").lstrip("0") for message in messages)
