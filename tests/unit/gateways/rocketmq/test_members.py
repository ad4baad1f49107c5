from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq.core.deadlines import Timers
from polymq.core.statistics import Registry
from polymq.gateways.rocketmq import members as members_module
from polymq.gateways.rocketmq.members import SILENCE_NS_MAX, Joining, Members, Subscription
from polymq.protocols.rocketmq.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Mapping

SECOND_NS = 1_000_000_000


class Line:
    """A connection that counts which groups it is told of."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def send_request(self, code: int, ext: Mapping[str, str], body: bytes = b"") -> None:
        assert (code, body, list(ext)) == (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, b"", ["consumerGroup"])
        self.told.append(ext["consumerGroup"])

    def take(self) -> int:
        count = len(self.told)
        self.told.clear()
        return count


class Hall:
    """Members with a clock of their own."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.timers = Timers()
        self.news: list[str] = []
        self.members = Members(self.timers, lambda: self.now_ns, self.news.append)

    def join(self, client_id: str, line: Line, *topics: str, group: str = "G", version: int = 1, model: str = "CLUSTERING") -> str | None:
        wanted = {topic: Subscription(topic, "*", "TAG", version, None) for topic in topics or ("T",)}
        joining = Joining(group, "CONSUME_PASSIVELY", model, "CONSUME_FROM_LAST_OFFSET", wanted)
        return self.members.join(client_id, line, joining, language="JAVA", version=409)

    def turn(self, duration_ns: int = 0) -> None:
        self.now_ns += duration_ns
        for _ in range(100):
            due_ns = self.timers.due_ns()
            if due_ns is None or due_ns > self.now_ns:
                return
            self.timers.fire(self.now_ns)
        raise AssertionError("the timers never come to rest")

    def ids(self, group: str = "G") -> list[str]:
        found = self.members.group(group)
        return [] if found is None else found.client_ids()


@pytest.fixture
def hall() -> Hall:
    return Hall()


# -- who is there ----------------------------------------------------------------------------------------------------


def test_members_are_listed_in_an_order_that_does_not_depend_on_who_came_first(hall: Hall) -> None:
    for client_id in ("b", "c", "a"):
        hall.join(client_id, Line())
    assert hall.ids() == ["a", "b", "c"]


def test_a_client_that_comes_again_by_another_connection_is_the_same_member(hall: Hall) -> None:
    old, new = Line(), Line()
    hall.join("a", old)
    hall.join("a", new)
    assert hall.ids() == ["a"]
    assert hall.members.client_channel("a") is new
    hall.members.departed(old)
    assert hall.ids() == ["a"]
    hall.members.departed(new)
    assert hall.ids() == []
    assert len(hall.members) == 0


def test_who_says_nothing_for_two_minutes_is_gone(hall: Hall) -> None:
    quiet, busy = Line(), Line()
    hall.join("quiet", quiet)
    hall.join("busy", busy)
    hall.turn()
    hall.turn(SILENCE_NS_MAX - 1)
    assert hall.ids() == ["busy", "quiet"]
    hall.join("busy", busy)
    busy.take()
    hall.turn(1)
    assert hall.ids() == ["busy"]
    hall.turn(SECOND_NS)
    assert busy.take() == 1
    hall.turn(SILENCE_NS_MAX)
    assert hall.ids() == []
    assert hall.members.subscription_count == 0


def test_a_client_leaves_the_groups_that_it_says(hall: Hall) -> None:
    line, other = Line(), Line()
    hall.join("a", line)
    hall.join("a", line, group="H")
    hall.members.produce("a", line, "P")
    hall.members.leave("a", line, consumers="G")
    hall.members.leave("a", other, consumers="H")
    hall.members.leave("nobody", line, consumers="H", producers="P")
    hall.members.leave("a", line, consumers="", producers="")
    assert (hall.ids("G"), hall.ids("H"), list(hall.members.producers)) == ([], ["a"], ["P"])
    hall.members.leave("a", line, consumers="H", producers="P")
    assert (len(hall.members), hall.members.producers, hall.members.client_channel("a")) == (0, {}, None)


def test_producers_are_found_by_group_and_by_client(hall: Hall) -> None:
    first, second = Line(), Line()
    hall.members.produce("a", first, "P")
    hall.now_ns += SECOND_NS
    hall.members.produce("b", second, "P")
    assert hall.members.producer_channel("P") is second
    assert hall.members.client_channel("a") is first
    hall.members.departed(second)
    assert hall.members.producer_channel("P") is first
    hall.turn(SILENCE_NS_MAX)
    assert hall.members.producer_channel("P") is None


def test_producers_are_told_nothing(hall: Hall) -> None:
    line = Line()
    hall.members.produce("a", line, "P")
    hall.members.produce("a", Line(), "P")
    hall.turn(SECOND_NS)
    assert line.told == []


# -- subscriptions ---------------------------------------------------------------------------------------------------


def test_a_newer_subscription_replaces_an_older_one_and_not_the_other_way_round(hall: Hall) -> None:
    line = Line()
    hall.join("a", line, version=5)
    for version, wanted in ((6, 6), (4, 6), (7, 7)):
        hall.join("a", line, version=version)
        found = hall.members.subscription("G", "T")
        assert found is not None
        assert found.version == wanted
    assert hall.news == ["G", "G", "G"]


def test_topics_that_a_member_leaves_out_are_its_no_longer(hall: Hall) -> None:
    line, other = Line(), Line()
    hall.join("a", line, "T", "U")
    hall.join("b", other, "U")
    hall.join("a", line, "T")
    assert hall.members.subscription("G", "U", line) is None
    assert hall.members.subscription("G", "U", other) is not None
    assert hall.members.subscription("G", "U") is not None
    hall.join("b", other, "T")
    assert hall.members.subscription("G", "U") is None
    assert hall.members.subscription_count == 2


def test_two_members_of_one_group_may_want_different_things(hall: Hall) -> None:
    line, other = Line(), Line()
    hall.join("a", line, version=1)
    hall.join("b", other, version=2)
    mine, theirs, newest = (hall.members.subscription("G", "T", each) for each in (line, other, None))
    assert mine is not None
    assert theirs is not None
    assert (mine.version, theirs.version) == (1, 2)
    assert newest is theirs
    assert hall.members.subscription("G", "T", Line()) is theirs


def test_a_group_without_members_wants_nothing(hall: Hall) -> None:
    assert hall.members.subscription("G", "T", Line()) is None
    assert hall.members.group("G") is None


def test_a_heartbeat_that_says_nothing_of_subscriptions_changes_none(hall: Hall) -> None:
    line = Line()
    hall.join("a", line)
    hall.members.join("a", line, Joining("G", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", None))
    assert hall.members.subscription("G", "T", line) is not None


# -- telling of changes ----------------------------------------------------------------------------------------------


def test_a_newcomer_is_told_at_once_and_the_others_in_the_same_turn_once(hall: Hall) -> None:
    lines = [Line() for _ in range(4)]
    hall.join("0", lines[0])
    hall.turn()
    assert lines[0].take() == 1
    for index in (1, 2, 3):
        hall.join(str(index), lines[index])
        assert lines[index].told == ["G"]
    assert lines[0].told == []
    hall.turn(SECOND_NS)
    assert [line.take() for line in lines] == [1, 2, 2, 1]
    hall.turn(SECOND_NS)
    assert [line.take() for line in lines] == [0, 0, 0, 0]


def test_heartbeats_that_bring_nothing_new_tell_nobody_anything(hall: Hall) -> None:
    lines = [Line(), Line()]
    for index, line in enumerate(lines):
        hall.join(str(index), line)
    hall.turn(SECOND_NS)
    for line in lines:
        line.take()
    for version in range(2, 5):
        for index, line in enumerate(lines):
            hall.join(str(index), line, version=version)
        hall.turn(SECOND_NS)
    assert [line.take() for line in lines] == [0, 0]


def test_the_others_are_told_when_somebody_leaves_or_wants_another_topic(hall: Hall) -> None:
    lines = [Line(), Line(), Line()]
    for index, line in enumerate(lines):
        hall.join(str(index), line)
    hall.turn(SECOND_NS)
    for line in lines:
        line.take()
    hall.members.departed(lines[2])
    hall.turn(SECOND_NS)
    assert [line.take() for line in lines] == [1, 1, 0]
    hall.join("0", lines[0], "T", "U")
    hall.turn(SECOND_NS)
    assert [line.take() for line in lines] == [1, 1, 0]


def test_a_member_that_has_come_by_another_connection_is_told_there_and_nobody_else_is(hall: Hall) -> None:
    old, new, other = Line(), Line(), Line()
    hall.join("a", old)
    hall.join("b", other)
    hall.turn(SECOND_NS)
    old.take(), other.take()
    hall.join("a", new)
    hall.turn(SECOND_NS)
    assert (old.take(), new.take(), other.take()) == (0, 1, 0)


def test_a_group_to_which_many_come_is_not_told_of_each(hall: Hall) -> None:
    lines = [Line() for _ in range(1000)]
    for index, line in enumerate(lines):
        hall.join(str(index), line)
        hall.turn(100_000)
    hall.turn(SECOND_NS)
    # One each for coming, and what grows with the logarithm of their number rather than with it.
    assert sum(line.take() for line in lines) < 20 * len(lines)


def test_a_turn_tells_so_many_members_and_the_next_goes_on(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members_module, "_NOTICES_PER_TURN", 3)
    lines = [Line() for _ in range(8)]
    for index, line in enumerate(lines):
        hall.join(str(index), line)
        hall.join(str(index), line, group="H")
    for line in lines:
        line.take()
    hall.now_ns += SECOND_NS
    told = []
    for _ in range(6):
        hall.timers.fire(hall.now_ns)
        told.append(sum(line.take() for line in lines))
    assert told == [3, 3, 3, 3, 2, 0]


# -- limits ----------------------------------------------------------------------------------------------------------


def test_members_and_their_subscriptions_are_limited(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members_module, "MEMBERS_MAX", 2)
    monkeypatch.setattr(members_module, "SUBSCRIPTIONS_MAX", 3)
    monkeypatch.setattr(members_module, "SUBSCRIPTIONS_PER_MEMBER_MAX", 2)
    line = Line()
    assert hall.join("a", line, "T", "U") is None
    assert hall.join("a", line, "T", "U", "V") == "more than 2 subscriptions of one member"
    assert hall.join("b", line, "T", "U") == "there are 3 subscriptions already"
    assert hall.join("b", line, "T") is None
    assert hall.join("c", line, "T") == "there are 2 members of groups already"
    assert hall.members.produce("c", line, "P") == "there are 2 members of groups already"
    assert hall.join("a", line, "T", "U") is None
    assert hall.join("a", line, "T") is None
    assert hall.join("b", line, "T", "U") is None
    assert (hall.ids(), hall.members.subscription_count) == (["a", "b"], 3)


def test_one_connection_has_so_many_members(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members_module, "MEMBERS_PER_CONNECTION_MAX", 2)
    line, other = Line(), Line()
    assert hall.join("a", line) is None
    assert hall.members.produce("p", line, "P") is None
    problem = "there are 2 members of groups at this connection already"
    assert hall.join("b", line) == hall.members.produce("q", line, "P") == problem
    assert hall.join("a", line) is None  # who is here already stays
    assert hall.members.produce("p", line, "P") is None
    assert hall.join("b", other) is None
    assert hall.join("b", line) == problem  # nor may he come over from elsewhere
    hall.members.departed(line)
    assert hall.join("b", line) is None
    assert hall.ids() == ["b"]


def test_long_expressions_of_all_members_together_are_limited(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members_module, "SUBSCRIPTIONS_SIZE_BYTES_MAX", 10_000)

    def join(client_id: str, expression: str, codes: frozenset[int] | None, version: int = 1) -> str | None:
        wanted = {"T": Subscription("T", expression, "TAG", version, codes)}
        return hall.members.join(client_id, Line(), Joining("G", "", "CLUSTERING", "", wanted))

    assert join("a", "x" * 1000, frozenset(range(50))) is None
    assert join("b", "x" * 1000, None) == "all subscriptions together take 10000 bytes already"
    assert join("b", "x", None) is None
    assert join("a", "x", None, version=2) is None
    assert join("b", "x" * 2000, None, version=2) is None
    hall.turn(2 * SILENCE_NS_MAX)
    assert (hall.ids(), hall.members.subscription_size_bytes) == ([], 0)


def test_very_many_that_fall_silent_at_once_go_over_several_turns(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members_module, "_EXPIRED_PER_TURN", 3)
    for index in range(7):
        hall.join(str(index), Line())
    hall.turn()
    hall.now_ns += SILENCE_NS_MAX
    left = []
    for _ in range(3):
        hall.timers.fire(hall.now_ns)
        left.append(len(hall.ids()))
    assert left == [4, 1, 0]


# -- statistics ------------------------------------------------------------------------------------------------------


def test_the_metrics_say_who_is_there(hall: Hall) -> None:
    registry = Registry()
    hall.members.register(registry)
    line = Line()
    hall.join("a", line, "T", "U")
    hall.join("b", Line())
    hall.members.produce("a", line, "P")
    values = {family.name: [sample.value for sample in family.collect()] for family in registry}
    assert values == {
        "polymq_rocketmq_groups": [1],
        "polymq_rocketmq_consumers": [2],
        "polymq_rocketmq_producers": [1],
        "polymq_rocketmq_subscriptions": [3],
        "polymq_rocketmq_notices_total": [2],
    }
