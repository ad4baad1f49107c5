from __future__ import annotations

import pytest

from polymq.gateways.rocketmq.delays import DEFAULT_LEVELS, Deferred, Delays, Illegal, parse_levels
from polymq.protocols.rocketmq.codes import ResponseCode
from polymq.rocketmq_limits import DELAY_LEVELS_MAX

SECOND_NS = 1_000_000_000
NOW_MS = 1_795_212_447_899
DAY_MS = 24 * 3600 * 1000


def arrange(**properties: str) -> Deferred | Illegal | None:
    return Delays().arrange(properties, topic="T", queue_id=3, now_ms=NOW_MS)


def test_the_levels_are_those_of_rocketmq() -> None:
    levels = parse_levels(DEFAULT_LEVELS)
    assert len(levels) == 18
    assert levels[:5] == (SECOND_NS, 5 * SECOND_NS, 10 * SECOND_NS, 30 * SECOND_NS, 60 * SECOND_NS)
    assert levels[-1] == 7200 * SECOND_NS


@pytest.mark.parametrize("text", ["", "1", "s", "1w", "-1s", "1s,5s", "1.5s", " ".join(["1s"] * (DELAY_LEVELS_MAX + 1))])
def test_levels_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no time|there must be"):
        parse_levels(text)


def test_a_level_gives_the_properties_that_a_real_broker_has_given_by_the_time_of_delivery() -> None:
    said = {"KEYS": "DELAY", "UNIQ_KEY": "FD", "CLUSTER": "DefaultCluster", "DELAY": "2", "WAIT": "true", "TAGS": "TagA"}
    assert arrange(**said) == Deferred(5 * SECOND_NS, {**said, "REAL_TOPIC": "T", "REAL_QID": "3"})


def test_a_level_above_the_last_is_the_last() -> None:
    assert arrange(DELAY="99") == Deferred(7200 * SECOND_NS, {"DELAY": "18", "REAL_TOPIC": "T", "REAL_QID": "3"})


@pytest.mark.parametrize("level", ["0", "-1", "-2147483648"])
def test_no_level_is_no_delay(level: str) -> None:
    assert arrange(DELAY=level) is None


@pytest.mark.parametrize("level", ["", "x", "1.0", " 1", "2147483648", "١", "9" * 5000])
def test_a_level_that_is_no_number_is_an_error_of_the_real_brokers_words(level: str) -> None:
    found = arrange(DELAY=level)
    assert isinstance(found, Illegal)
    assert found.code is ResponseCode.SYSTEM_ERROR
    assert found.remark.startswith('java.lang.NumberFormatException: For input string: "')
    assert len(found.remark) < 200


@pytest.mark.parametrize(
    ("properties", "delay_ns"),
    [
        ({"TIMER_DELAY_SEC": "3"}, 3 * SECOND_NS),
        ({"TIMER_DELAY_MS": "1500"}, 1_500_000_000),
        ({"TIMER_DELIVER_MS": str(NOW_MS + 250)}, 250_000_000),
        ({"TIMER_DELAY_SEC": "3", "TIMER_DELAY_MS": "1", "TIMER_DELIVER_MS": "x"}, 3 * SECOND_NS),
        ({"TIMER_DELAY_SEC": str(3 * 24 * 3600)}, 3 * 24 * 3600 * SECOND_NS),
    ],
)
def test_a_message_may_have_a_time_of_its_own(properties: dict[str, str], delay_ns: int) -> None:
    out_ms = str(NOW_MS + delay_ns // 1_000_000)
    assert arrange(**properties) == Deferred(delay_ns, {**properties, "TIMER_OUT_MS": out_ms, "REAL_TOPIC": "T", "REAL_QID": "3"})


@pytest.mark.parametrize(
    "properties",
    [{"TIMER_DELIVER_MS": str(NOW_MS)}, {"TIMER_DELIVER_MS": "-5"}, {"TIMER_DELAY_MS": "0"}, {"TIMER_DELAY_SEC": "-9223372036854775808"}],
)
def test_what_is_due_already_is_stored_at_once(properties: dict[str, str]) -> None:
    assert arrange(**properties) is None


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELAY_SEC": "x"},
        {"TIMER_DELAY_MS": "1e3"},
        {"TIMER_DELIVER_MS": "99999999999999999999"},
        {"TIMER_DELAY_SEC": str(3 * 24 * 3600 + 1)},
        {"TIMER_DELIVER_MS": str(NOW_MS + 3 * DAY_MS + 1)},
        {"TIMER_DELIVER_MS": str((1 << 63) - 1)},
        {"TIMER_DELAY_SEC": str((1 << 63) - 1)},
    ],
)
def test_a_time_that_is_none_or_too_far_away_is_illegal(properties: dict[str, str]) -> None:
    found = arrange(**properties)
    assert isinstance(found, Illegal)
    assert found.code is ResponseCode.MESSAGE_ILLEGAL
    assert found.remark == (
        "timer message illegal, the delay time should not be bigger than the max delay 259200000ms; "
        "or if set del msg, the delay time should be bigger than the current time"
    )


def test_a_level_counts_rather_than_a_time_which_goes() -> None:
    found = arrange(DELAY="1", TIMER_DELAY_SEC="3", TIMER_DELAY_MS="4", TIMER_DELIVER_MS="5")
    assert found == Deferred(SECOND_NS, {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "3"})


def test_what_a_broker_has_delivered_by_time_already_is_not_delayed_again() -> None:
    assert arrange(TIMER_DELAY_SEC="3", TIMER_OUT_MS="5") is None


def test_an_operator_may_allow_longer_times() -> None:
    delays = Delays(timer_ns_max=40 * DAY_MS * 1_000_000)
    assert isinstance(delays.arrange({"TIMER_DELAY_MS": str(40 * DAY_MS)}, topic="T", queue_id=0, now_ms=NOW_MS), Deferred)
    assert isinstance(delays.arrange({"TIMER_DELAY_MS": str(40 * DAY_MS + 1)}, topic="T", queue_id=0, now_ms=NOW_MS), Illegal)
