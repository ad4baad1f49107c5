"""Lines about what is wrong: the first few of each sort in a minute, and how many were left out."""

from __future__ import annotations

import logging

import pytest

from polymq.gateways.nats import complaints as complaints_module
from polymq.gateways.nats.complaints import Complaints
from tests.unit.gateways.nats.route_world import Clock

log = logging.getLogger(__name__)
SECOND_NS = 1_000_000_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def complaints(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Complaints:
    monkeypatch.setattr(complaints_module, "COMPLAINTS_PER_MINUTE_MAX", 2)
    return Complaints(log, clock.monotonic_ns)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    messages = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return messages


def test_of_each_sort_the_first_few_are_said(complaints: Complaints, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(4):
        complaints.say(logging.WARNING, "it is %d", number)
    complaints.say(logging.ERROR, "something else")
    assert said(caplog) == ["it is 0", "it is 1 (more of these are left out for a minute)", "something else"]


def test_a_minute_later_it_is_said_how_many_were_left_out(complaints: Complaints, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(5):
        complaints.say(logging.WARNING, "it is %d", number)
    clock.now_ns += 59 * SECOND_NS
    complaints.say(logging.WARNING, "it is %d", 5)
    said(caplog)
    clock.now_ns += SECOND_NS
    complaints.say(logging.WARNING, "it is %d", 6)
    complaints.say(logging.WARNING, "it is %d", 7)
    assert said(caplog) == [
        "it is 6 (and 4 more of these before, which were left out)",
        "it is 7 (more of these are left out for a minute)",
    ]
    clock.now_ns += 60 * SECOND_NS
    complaints.say(logging.WARNING, "it is %d", 8)
    assert said(caplog) == ["it is 8"]


def test_what_nobody_wants_to_hear_does_not_count(complaints: Complaints, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    for _ in range(5):
        complaints.say(logging.DEBUG, "it is so")
    complaints.say(logging.WARNING, "it is so")
    assert said(caplog) == ["it is so"]
