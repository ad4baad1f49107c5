"""A new topic's channels: asked for, made before the first message is given out, and never waited for too long."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from polymq.core.access import Principal
from polymq.gateways.nsq.prepare import ChannelPreparer
from polymq.limits import LOOKUP_CHANNELS_MAX, LOOKUP_QUESTIONS_MAX
from polymq.protocols.http.client import Answer, Failure
from polymq.protocols.nsqlookup.identify import Identity
from tests.unit.core.conftest import World, inbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.protocols.http.client import Question

ONE = Identity("one.invalid", "vm", http_port=4161, tcp_port=4160)
TWO = Identity("::1", "vm", http_port=4261, tcp_port=4260)


@dataclass(eq=False)
class FakeAlarm:
    due_ns: int
    function: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class Story:
    """A broker, and directories whose answers are the test's."""

    connect_timeout_ns = 2_000_000_000
    timeout_ns = 5_000_000_000

    def __init__(self, *directories: Identity, own: dict[str, list[str]] | None = None) -> None:
        self.world = World(1)
        self.known = list(directories)
        self.asked: list[tuple[Question, Callable[[object], None]]] = []
        self.alarms: list[FakeAlarm] = []
        self.world.broker.follow(ChannelPreparer(self.world.session, self))
        self._own = own or {}

    def directories(self) -> list[Identity]:
        return self.known

    def own_channels(self, topic: str) -> list[str]:
        return self._own.get(topic, [])

    def ask(self, question: Question, answered: Callable[[object], None]) -> None:
        self.asked.append((question, answered))

    def call_after(self, delay_ns: int, function: Callable[[], None]) -> FakeAlarm:
        self.alarms.append(FakeAlarm(self.world.clock.now_ns + delay_ns, function))
        return self.alarms[-1]

    def answer(self, answer: object) -> None:
        """Answer the oldest question, and let the turn go on."""
        _, answered = self.asked.pop(0)
        answered(answer)
        self.go_on()

    def go_on(self, seconds: float = 0) -> None:
        self.world.clock.now_ns += int(seconds * 1_000_000_000)
        due = [alarm for alarm in self.alarms if alarm.due_ns <= self.world.clock.now_ns]
        self.alarms = [alarm for alarm in self.alarms if alarm not in due and not alarm.cancelled]
        for alarm in due:
            if not alarm.cancelled:
                alarm.function()
        self.world.turn()

    def channels(self, topic: str = "t") -> list[str]:
        return sorted(group.name for group in self.world.view(topic).groups)

    def bodies(self, channel: str, topic: str = "t") -> list[bytes]:
        subscription = self.world.consume(topic, channel, 10)
        self.world.turn()
        return inbox(subscription).bodies


def channels(*names: Any) -> Answer:
    return Answer(200, body=json.dumps({"channels": names}).encode())


def test_the_channels_have_the_first_message() -> None:
    story = Story(ONE)
    story.world.publish("t", b"first")
    story.go_on()
    [(question, _)] = story.asked
    assert question.url == "http://one.invalid:4161/channels?topic=t"
    assert question.headers == (("Accept", "application/vnd.nsq; version=1.0"),)
    assert story.channels() == []
    story.answer(channels("a", "b"))
    assert story.channels() == ["a", "b"]
    assert story.bodies("a") == story.bodies("b") == [b"first"]


def test_a_consumer_that_is_faster_does_not_take_it_from_the_others() -> None:
    story = Story(ONE)
    early = story.world.consume("t", "early", 10)
    story.world.publish("t", b"first")
    story.go_on()
    assert inbox(early).bodies == []
    story.answer(channels("a"))
    assert inbox(early).bodies == [b"first"]
    assert story.bodies("a") == [b"first"]


def test_every_directory_is_asked_and_waited_for() -> None:
    story = Story(ONE, TWO)
    story.world.publish("t#ephemeral", b"x")
    assert [question.url for question, _ in story.asked] == [
        "http://one.invalid:4161/channels?topic=t%23ephemeral",
        "http://[::1]:4261/channels?topic=t%23ephemeral",
    ]
    story.answer(channels("a", "b"))
    assert story.channels("t#ephemeral") == []
    story.answer(channels("b", "c"))
    assert story.channels("t#ephemeral") == ["a", "b", "c"]


def test_the_lookup_role_is_not_asked_but_knows() -> None:
    story = Story(own={"t": ["a"]})
    story.world.publish("t", b"first")
    assert story.asked == []
    story.go_on()
    assert story.bodies("a") == [b"first"]


def test_nobody_to_ask_is_no_reason_to_wait() -> None:
    story = Story()
    story.world.publish("t", b"x")
    assert story.alarms == []
    assert story.bodies("c") == [b"x"]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (Failure("cannot connect: Connection refused"), "cannot connect: Connection refused"),
        (Answer(404), "HTTP status 404"),
        (Answer(200, body=b"<html>"), "the answer is not JSON"),
        (Answer(200, body=b"[" * 100_000), "the answer is not JSON"),
        (Answer(200, body=b"[]"), "the answer names no channels"),
        (Answer(200, body=b'{"channels":null}'), "the answer names no channels"),
        (channels("a", 1), "the answer names no channels"),
    ],
)
def test_without_an_answer_the_topic_goes_without(answer: object, complaint: str, caplog: pytest.LogCaptureFixture) -> None:
    story = Story(ONE)
    story.world.publish("t", b"x")
    with caplog.at_level(logging.WARNING):
        story.answer(answer)
    assert caplog.messages == [f"nsqlookupd one.invalid:4161 does not say which channels topic t should have: {complaint}"]
    assert story.bodies("c") == [b"x"]


def test_a_directory_that_goes_on_failing_is_mentioned_once(caplog: pytest.LogCaptureFixture) -> None:
    story = Story(ONE)
    for number, answer in enumerate([Failure("x"), Failure("x"), Failure("y"), channels(), Failure("y")]):
        story.world.session.create_topic(f"t{number}")
        story.answer(answer)
    assert [message.rpartition(" ")[2] for message in caplog.messages] == ["x", "y", "y"]


def test_names_that_cannot_be_and_ephemeral_ones_are_left_out() -> None:
    story = Story(ONE)
    story.world.session.create_topic("t")
    story.answer(channels("a", "b$", "", "\ud800", "x" * 65, "c#ephemeral"))
    assert story.channels() == ["a"]


def test_a_directory_that_lies_does_not_fill_the_broker() -> None:
    story = Story(ONE, TWO)
    story.world.session.create_topic("t")
    story.answer(channels(*(f"a{number}" for number in range(LOOKUP_CHANNELS_MAX))))
    story.answer(channels("one-more"))
    assert len(story.channels()) == LOOKUP_CHANNELS_MAX


def test_a_topic_that_is_deleted_meanwhile_is_forgotten() -> None:
    story = Story(ONE)
    story.world.session.create_topic("t")
    story.world.session.delete_topic("t")
    story.world.session.create_topic("t")
    story.answer(channels("late"))
    assert story.channels() == []
    story.answer(channels("right"))
    assert story.channels() == ["right"]
    assert story.alarms == []


def test_a_directory_that_hangs_is_not_waited_for_for_long() -> None:
    story = Story(ONE, TWO)
    story.world.publish("t", b"x")
    story.answer(channels("a"))
    story.go_on(4.9)
    assert story.channels() == []
    story.go_on(0.1)
    assert story.bodies("a") == [b"x"]
    story.answer(channels("late"))
    assert story.channels() == ["a"]


def test_many_topics_wait_for_their_turn_to_be_asked_about() -> None:
    story = Story(ONE)
    count = LOOKUP_QUESTIONS_MAX + 5
    for number in range(count):
        story.world.session.create_topic(f"t{number}")
    assert len(story.asked) == LOOKUP_QUESTIONS_MAX
    for number in range(count):
        story.answer(channels("c"))
        assert story.channels(f"t{number}") == ["c"]
    assert story.asked == []


def test_topics_that_wait_do_so_no_longer_than_others() -> None:
    story = Story(ONE)
    for number in range(LOOKUP_QUESTIONS_MAX + 1):
        story.world.publish(f"t{number}", b"x")
    story.go_on(5)
    assert story.bodies("c", f"t{LOOKUP_QUESTIONS_MAX}") == [b"x"]
    story.answer(channels("c"))
    assert len(story.asked) == LOOKUP_QUESTIONS_MAX - 1  # nobody asks about it any more


def test_a_directory_that_fails_is_asked_by_one_until_it_answers_again() -> None:
    story = Story(ONE)
    count = LOOKUP_QUESTIONS_MAX + 5
    for number in range(count):
        story.world.publish(f"t{number}", b"x")
    story.answer(Failure("no answer in time"))
    assert len(story.asked) == LOOKUP_QUESTIONS_MAX - 1
    for number in range(LOOKUP_QUESTIONS_MAX, count):  # those who waited go without
        assert story.bodies("c", f"t{number}") == [b"x"]
    while story.asked:
        story.answer(Failure("no answer in time"))
    story.world.publish("probe", b"x")
    story.world.publish("without", b"x")
    story.go_on()
    assert [question.url.rpartition("=")[2] for question, _ in story.asked] == ["probe"]
    assert story.bodies("c", "without") == [b"x"]
    story.answer(channels("a"))
    story.world.session.create_topic("u1")
    story.world.session.create_topic("u2")
    assert len(story.asked) == 2


def test_what_is_known_of_a_directory_goes_with_it() -> None:
    story = Story(ONE)
    story.world.session.create_topic("t")
    story.answer(Failure("x"))
    story.known = [TWO]
    story.world.session.create_topic("u")
    story.answer(channels())
    story.known = [ONE]
    story.world.session.create_topic("v1")
    story.world.session.create_topic("v2")
    assert len(story.asked) == 2


def test_what_nsq_does_not_see_is_not_asked_for() -> None:
    story = Story(ONE)
    story.world.session.create_topic("a/b")
    story.world.broker.session(Principal("somebody", "elsewhere")).create_topic("t")
    assert story.asked == []
