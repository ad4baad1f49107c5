"""What the rows of RocketMQ stand on: servers that stay up, topics that are there, a message that has come through."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from bench.harness.process import Kept, ServerProcess, Setup
from bench.harness.rocketmq_client import make_topic, message_passed
from bench.harness.rocketmq_rows import REPORTED, ROCKETMQ_ROWS
from bench.harness.rocketmq_servers import REAL_KINDS, ROCKETMQ_KINDS

from tests.interop.rocketmq_fake import CREATE, PULL, ROUTE, SEND, Answer, Asked, Fake

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Sleeper(ServerProcess):
    """A process that is up at once."""

    def command(self) -> list[str]:
        return [sys.executable, "-c", "import time; time.sleep(60)"]

    def accepts(self) -> bool:
        return self.process is not None


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path, 1, tmp_path, [])


def test_a_server_that_is_kept_is_the_same_until_it_is_dropped_or_has_ended(setup: Setup) -> None:
    with Kept() as kept:
        first = kept.get("one", lambda: Sleeper("one", setup))
        assert kept.get("one", lambda: Sleeper("one", setup)) is first
        other = kept.get("two", lambda: Sleeper("two", setup))
        kept.drop_others("two")
        assert (first.is_running, other.is_running) == (False, True)
        assert not first.data.exists()
        assert other.process is not None
        other.process.kill()
        other.process.wait()
        again = kept.get("two", lambda: Sleeper("two", setup))
        assert again is not other
        assert again.is_running
    assert not again.is_running
    assert not again.data.exists()


def test_a_topic_is_made_once_and_a_message_passes() -> None:
    with Fake(topics={"TBW102": 8}) as fake:
        assert make_topic(fake.address, "there", 3) == fake.address
        assert make_topic(fake.address, "there", 3) == fake.address
        message_passed(fake.address, "there")
    assert fake.topics["there"] == 3
    assert [asked.code for asked in fake.asked].count(CREATE) == 1
    assert [body for body, _ in fake.queue("there", 0)] == [b"is anybody there?"]


@pytest.mark.parametrize(
    ("code", "change", "words"),
    [
        (ROUTE, lambda answer: replace(answer, code=1, remark="what"), "the question for bench is answered by 1 what"),
        (SEND, lambda answer: replace(answer, code=14, remark="no"), "a message is answered by 14 no"),
        (PULL, lambda answer: replace(answer, code=19), "a pull is answered by 19"),
        (PULL, lambda answer: replace(answer, body=b""), "a pull is answered by 0"),
    ],
)
def test_a_message_that_does_not_pass_is_an_error(code: int, change: Callable[[Answer], Answer], words: str) -> None:
    def wrong(asked: Asked, answer: Answer) -> Answer:
        return change(answer) if asked.code == code else answer

    with Fake(wrong=wrong) as fake, pytest.raises(OSError, match=words):
        message_passed(fake.address, "bench")


def test_nobody_there_is_an_error() -> None:
    with Fake(topics={}) as fake, pytest.raises(OSError, match="knows no broker"):
        make_topic(fake.address, "bench", 4)


def test_reports_of_the_official_tool_are_read() -> None:
    line = "Current Time: 2026-11-22 03:42:01,000 | Send TPS: 30123 | Max RT(ms): 12 | Average RT(ms):   2.101 | Send Failed: 3 | Response Failed: 0"
    found = REPORTED.search(line)
    assert found is not None
    assert found.groups() == ("30123", "3")
    assert REPORTED.search("topic: official-1, threadCount: 64") is None


def test_rows_are_measured_on_all_kinds_and_held_against_both_real_ones() -> None:
    for row in ROCKETMQ_ROWS:
        assert (row.protocol, row.kinds, row.against) == ("RocketMQ", ROCKETMQ_KINDS, REAL_KINDS)
        assert row.name.startswith("rocketmq-")
        assert any(metric.goal for metric in row.metrics)
