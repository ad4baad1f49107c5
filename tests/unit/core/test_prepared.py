"""Prepared batches on fakes: what is refused, what is forgotten, what a snapshot says."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from polymq import limits
from polymq.core.access import Action, Permission, Principal
from polymq.core.patterns import compile_pattern
from polymq.core.policies import Full, TopicPolicy
from polymq.errors import Refusal, RefusalCode

from .conftest import SECOND_NS, World
from .fakes import FakeStore
from .test_prepared_on_the_store import staged

if TYPE_CHECKING:
    from polymq.core.prepared import Named

HOUR = 3600


class Store(FakeStore):
    """What is written is durable."""

    def commit(self) -> None:
        super().commit()
        for log in self.logs.values():
            log.durable = log.end


@pytest.fixture
def single() -> World:
    world = World(1)
    world.store = Store()
    world.restart()
    return world


def prepare(world: World, part: str = "p", *bodies: bytes, sink: str = "q", topic: str = "t", request: int = 0) -> Named:
    world.session.prepare(sink, part, request, [staged(topic, list(bodies or (b"a", b"b")))])
    world.turn()
    return part, request + 1, len(bodies or (b"a", b"b")) * (request + 1)


def commit(world: World, *named: Named, batch: int = 0, sink: str = "q", once: bool = False) -> bool:
    for _ in range(20):
        if world.session.commit_prepared(sink, batch, named, once=once):
            return True
        world.turn()
    return False


def count(world: World, topic: str = "t") -> int:
    return sum(partition.end for partition in world.view(topic).partitions)


def test_a_request_that_is_repeated_changes_nothing(single: World) -> None:
    prepare(single)
    named = prepare(single)
    assert named == ("p", 1, 2)
    with pytest.raises(Refusal, match="not the one before 2"):
        prepare(single, request=2)
    named = prepare(single, request=1)
    assert commit(single, named)
    assert count(single) == 4


def test_who_may_not_publish_may_not_prepare_or_commit(single: World) -> None:
    named = prepare(single)
    principal = Principal("p", permissions=(Permission(frozenset({Action.PUBLISH}), compile_pattern("u"), ()),))
    stranger = single.broker.session(principal)
    with pytest.raises(Refusal) as refused:
        stranger.prepare("q", "x", 0, [staged("t", [b"a"])])
    assert refused.value.code is RefusalCode.FORBIDDEN
    with pytest.raises(Refusal):
        stranger.commit_prepared("q", 0, [named], once=False)
    assert count(single) == 0


def test_what_is_too_old_goes_and_what_was_aborted(single: World) -> None:
    aborted = prepare(single, "aborted")
    old = prepare(single, "old", sink="silent")
    first = prepare(single, "first")
    single.session.abort_prepared("q", ["aborted", "unknown"])
    single.session.abort_prepared("unknown", ["aborted"])
    single.wait(HOUR - 10)
    young = prepare(single, "young")
    single.wait(20)
    with pytest.raises(Refusal, match="not there"):
        commit(single, aborted)
    with pytest.raises(Refusal, match="nothing is prepared"):
        commit(single, old, sink="silent")
    # As long as tasks of a batch write, it is not too old, however long it takes.
    assert commit(single, first, young)
    assert single.broker.prepared.expired == 1
    assert single.broker.prepared.committed == 1


def test_only_the_next_batches_are_committed(single: World) -> None:
    assert commit(single, prepare(single), batch=7)
    for batch in (7, 3):
        assert single.session.commit_prepared("q", batch, [("unknown", 1, 1)], once=False)
    assert count(single) == 2
    assert commit(single, prepare(single, "x"), batch=8)
    assert count(single) == 4


def test_a_sink_that_is_used_once_is_forgotten_and_others_are_not(single: World) -> None:
    assert commit(single, prepare(single, sink="once"), sink="once", once=True)
    assert commit(single, prepare(single, sink="often"), sink="often")
    single.wait(HOUR + 10)
    assert [name for _namespace, name in single.broker.prepared.sinks] == ["often"]


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_restart_knows_everything(single: World, snapshot: bool) -> None:
    assert commit(single, prepare(single), batch=4)
    named = prepare(single, "x")
    prepare(single, "y", sink="once")
    single.session.abort_prepared("once", ["y"])
    if snapshot:
        single.broker.snapshot()
    before = dict(single.broker.prepared.sinks)
    single.restart()
    assert single.broker.prepared.sinks == before
    assert single.session.commit_prepared("q", 4, [], once=False)
    assert commit(single, named, batch=5)
    assert count(single) == 4
    # A sink that begins now uses one of the logs that are there.
    logs = len(single.store.logs)
    prepare(single, "z")
    assert len(single.store.logs) == logs


def test_another_batch_cannot_be_committed_meanwhile(single: World) -> None:
    first, second = prepare(single, "a"), prepare(single, "b")
    assert not single.session.commit_prepared("q", 0, [first], once=False)
    with pytest.raises(Refusal, match="batch 0 of q is being committed"):
        single.session.commit_prepared("q", 1, [second], once=False)
    with pytest.raises(Refusal, match="is being committed"):
        single.session.prepare("q", "a", 1, [staged("t", [b"a"])])
    single.session.abort_prepared("q", ["a"])
    assert commit(single, first)
    assert count(single) == 2


def test_a_topic_that_is_deleted_meanwhile_takes_nothing(single: World) -> None:
    named = prepare(single)
    assert not single.session.commit_prepared("q", 0, [named], once=False)
    single.session.delete_topic("t")
    single.session.ensure_topic("t")
    single.turn()
    assert commit(single, named)
    assert count(single) == 0


def test_a_topic_that_is_full_refuses_the_commit(single: World) -> None:
    named = prepare(single)
    single.session.create_group("t", "g")
    single.session.set_topic_policy("t", TopicPolicy(messages_max=1, full=Full.REJECT))
    with pytest.raises(Refusal) as refused:
        commit(single, named)
    assert refused.value.code is RefusalCode.TOPIC_FULL
    single.session.set_topic_policy("t", TopicPolicy())
    assert commit(single, named)


def test_no_room_is_said_and_gone_over(single: World) -> None:
    named = prepare(single)
    log = single.session.log("t", 0)
    log.journal.full = True  # type: ignore[attr-defined]
    single.session.commit_prepared("q", 0, [named], once=False)
    single.broker.tick()
    with pytest.raises(Refusal, match="committed in part"):
        single.session.commit_prepared("q", 0, [named], once=False)
    log.journal.full = False  # type: ignore[attr-defined]
    single.turn()
    assert commit(single, named)
    assert count(single) == 2


@pytest.mark.parametrize("partition", [-1, 0])
def test_a_log_that_fails_meanwhile_holds_up_its_sink_alone(single: World, partition: int) -> None:
    prepare(single, sink="other", topic="u")
    single.session.prepare("q", "p", 0, [staged("t", [b"a", b"b"], partition=partition)])
    single.turn()
    assert not single.session.commit_prepared("q", 0, [("p", 1, 2)], once=False)
    single.session.log("t", 0).failed = "damaged"  # type: ignore[misc]
    for _ in range(3):
        single.turn()
    with pytest.raises(Refusal, match="committed in part: damaged"):
        single.session.commit_prepared("q", 0, [("p", 1, 2)], once=False)
    assert commit(single, ("p", 1, 2), sink="other")
    # It goes on where it was after a restart.
    single.session.log("t", 0).failed = ""  # type: ignore[misc]
    single.restart()
    assert commit(single, ("p", 1, 2))
    assert count(single) == 2


@pytest.mark.parametrize("partition", [-1, 0])
def test_a_log_that_has_failed_refuses_the_commit(single: World, partition: int) -> None:
    single.session.prepare("q", "p", 0, [staged("t", [b"a"], partition=partition)])
    single.turn()
    single.session.log("t", 0).failed = "damaged"  # type: ignore[misc]
    with pytest.raises(Refusal) as refused:
        single.session.commit_prepared("q", 0, [("p", 1, 1)], once=False)
    assert refused.value.code is RefusalCode.STORE_FAILED
    single.session.log("t", 0).failed = ""  # type: ignore[misc]
    assert commit(single, ("p", 1, 1))


def test_partitions_that_are_added_meanwhile_take_nothing_away(single: World) -> None:
    single.session.prepare("q", "p", 0, [staged("t", [b"%d" % n]) for n in range(8)])
    single.turn()
    assert not single.session.commit_prepared("q", 0, [("p", 1, 8)], once=False)
    single.session.add_partitions("t", 4)
    assert commit(single, ("p", 1, 8))
    assert [partition.end for partition in single.view("t").partitions] == [8, 0, 0, 0, 0]


def test_small_batches_of_all_commits_together_are_bounded_in_a_turn(single: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PREPARED_MOVED_SIZE_BYTES_PER_TURN", 10_000)
    monkeypatch.setattr(limits, "PREPARED_MOVED_SIZE_BYTES_PER_FRAME", 1_000)
    for sink in "ab":
        single.session.prepare(sink, "p", 0, [staged("t", [b"%d" % n]) for n in range(25)])
    single.turn()
    for sink in "ab":
        assert not single.session.commit_prepared(sink, 0, [("p", 1, 25)], once=False)
    moved = [0]
    while moved[-1] < 50:
        single.broker.tick()
        single.store.commit()
        moved.append(count(single))
        assert len(moved) < 50
    assert max(after - before for before, after in itertools.pairwise(moved)) == 10


def test_sinks_of_nothing_are_forgotten_and_those_used_once_give_way_first(single: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PREPARED_SINKS_MAX", 2)
    prepare(single, sink="failed")
    single.session.abort_prepared("failed", ["p"])
    assert not single.broker.prepared.sinks
    assert commit(single, prepare(single, sink="stream"), sink="stream")
    assert commit(single, prepare(single, sink="job"), sink="job", once=True)
    prepare(single, sink="other")
    assert [name for _namespace, name in single.broker.prepared.sinks] == ["stream", "other"]
    assert (single.broker.prepared.size_bytes > 0, single.broker.prepared.frame_count) == (True, 1)
    single.session.abort_prepared("other", ["p"])
    assert (single.broker.prepared.size_bytes, single.broker.prepared.frame_count) == (0, 0)


@pytest.mark.parametrize(
    ("limit", "most"),
    [
        ("PREPARED_SINKS_MAX", 1),
        ("PREPARED_PARTS_PER_SINK_MAX", 1),
        ("PREPARED_FRAMES_PER_SINK_MAX", 1),
        ("PREPARED_FRAMES_MAX", 1),
        ("PREPARED_SIZE_BYTES_PER_SINK_MAX", 200),
        ("PREPARED_SIZE_BYTES_MAX", 200),
        ("PREPARED_LATER_RECORDS_MAX", 3),
    ],
)
def test_there_is_a_limit_to_everything(single: World, monkeypatch: pytest.MonkeyPatch, limit: str, most: int) -> None:
    monkeypatch.setattr(limits, limit, most)
    due_ns = single.clock.wall_ns() + SECOND_NS
    frame = staged("t", [b"a", b"b"], due_ns=due_ns)
    single.session.prepare("q", "p", 0, [frame])
    with pytest.raises(Refusal) as refused:
        single.session.prepare("other" if limit == "PREPARED_SINKS_MAX" else "q", "p2", 0, [frame, frame])
    assert refused.value.code is RefusalCode.LIMIT_REACHED


def test_the_oldest_sink_gives_way_after_a_day(single: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PREPARED_SINKS_MAX", 1)
    assert commit(single, prepare(single))
    with pytest.raises(Refusal):
        prepare(single, sink="other")
    single.wait(24 * HOUR + 1)
    prepare(single, sink="other")
    assert [name for _namespace, name in single.broker.prepared.sinks] == ["other"]


def test_what_is_for_later_waits(single: World) -> None:
    due_ns = single.clock.wall_ns() + 5 * SECOND_NS
    single.session.prepare("q", "p", 0, [staged("t", [b"a"], due_ns=due_ns), staged("t", [b"b"])])
    single.turn()
    assert commit(single, ("p", 1, 2))
    assert count(single) == 1
    assert len(single.session.scheduled("t") or ()) == 1
    single.wait(6)
    assert count(single) == 2


@pytest.mark.parametrize("name", ["", "x" * 256])
def test_names_have_a_size(single: World, name: str) -> None:
    for sink, part in ((name, "p"), ("q", name)):
        with pytest.raises(Refusal):
            single.session.prepare(sink, part, 0, [])
