from __future__ import annotations

import random
from itertools import count

import pytest

from polymq import limits
from polymq.core.live import Live, LiveSpace
from polymq.gateways.nats.questions import Questions

LIFE_NS = 1000


class Asking:
    def __init__(self, count_max: int = 4) -> None:
        self.now_ns = 1
        numbers = count()
        self.questions = Questions(count_max, lambda: self.now_ns, lambda size: next(numbers).to_bytes(size, "big"))
        self.space: LiveSpace = Live(random.Random(1)).space("A")

    def ask(self, reply: bytes = b"in") -> bytes:
        return self.questions.note(self.space, reply, LIFE_NS)

    def answer(self, ours: bytes, again_ns: int = 0) -> bytes | None:
        question = self.questions.take(ours, again_ns=again_ns)
        if question is None:
            return None
        assert question.space is self.space
        return question.reply


def test_each_question_has_a_reply_of_its_own_under_one_pattern() -> None:
    asking = Asking()
    ours = [asking.ask() for _ in range(3)]
    assert len(set(ours)) == 3
    assert asking.questions.pattern.startswith(b"_R_.")
    assert asking.questions.pattern.count(b".") == 2
    assert all(each.startswith(asking.questions.pattern[:-1]) and each.count(b".") == 2 for each in ours)


def test_an_answer_counts_once() -> None:
    asking = Asking()
    one, two = asking.ask(b"in.1"), asking.ask(b"in.2")
    assert asking.answer(two) == b"in.2"
    assert asking.answer(two) is None
    assert asking.answer(one) == b"in.1"
    assert asking.answer(b"_R_.x.y") is None
    assert len(asking.questions) == 0


def test_an_answer_has_its_time() -> None:
    asking = Asking()
    one, two = asking.ask(), asking.ask()
    asking.now_ns += LIFE_NS
    assert asking.answer(one) == b"in"
    asking.now_ns += 1
    assert asking.answer(two) is None
    assert len(asking.questions) == 0


def test_a_question_may_have_more_answers() -> None:
    asking = Asking()
    ours = asking.ask()
    for _ in range(5):
        asking.now_ns += LIFE_NS
        assert asking.answer(ours, LIFE_NS) == b"in"
    asking.now_ns += LIFE_NS + 1
    assert asking.answer(ours, LIFE_NS) is None


def test_who_was_not_heard_is_forgotten() -> None:
    asking = Asking()
    ours = asking.ask()
    asking.questions.forget(ours)
    asking.questions.forget(ours)
    assert asking.answer(ours) is None


def test_the_oldest_are_forgotten_when_there_are_many() -> None:
    asking = Asking(count_max=4)
    ours = [asking.ask(b"in.%d" % number) for number in range(4)]
    assert asking.answer(ours[0], LIFE_NS) == b"in.0"  # among the youngest again
    ours += [asking.ask(b"in.%d" % number) for number in range(4, 6)]
    assert len(asking.questions) == 4
    assert [asking.answer(each) for each in ours] == [b"in.0", None, None, b"in.3", b"in.4", b"in.5"]


def test_those_whose_time_is_over_go_when_others_come() -> None:
    asking = Asking(count_max=100)
    for _ in range(50):
        asking.ask()
    asking.now_ns += LIFE_NS
    asking.ask()
    assert len(asking.questions) == 1


@pytest.mark.parametrize("count_max", [limits.NATS_JETSTREAM_REQUESTS_MAX, limits.NATS_SERVICE_REQUESTS_MAX])
def test_there_are_never_more_than_the_limit(count_max: int) -> None:
    asking = Asking(count_max)
    first = asking.ask(b"first")
    for _ in range(count_max):
        asking.ask()
    assert len(asking.questions) == count_max
    assert asking.answer(first) is None
