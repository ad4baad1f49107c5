from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from polymq import limits
from polymq.config_sections import ServerSettings, Settings
from polymq.core.access import ANONYMOUS
from polymq.errors import ConfigError, StoreFull
from polymq.server.node import Node
from polymq.server.nsqd_folder import NsqdFolder
from polymq.server.takeover import QueueSummary, TakenTopic, Target, Writer, take_over
from polymq.wire.records import read_messages
from tests.unit.protocols.nsq.queues import Stored, record

from .nsqd_folders import TIME_NS, message, write_metadata, write_queue

if TYPE_CHECKING:
    from pathlib import Path

    from polymq.core.group import Delivery
    from polymq.core.session import Session

M = [message(number) for number in range(100)]
SECOND_NS = 10**9


@dataclass
class Inbox:
    """A consumer that takes everything."""

    got: list[tuple[bytes, int, int]] = field(default_factory=list)

    def take(self, delivery: Delivery) -> None:
        piece = delivery.slice
        messages = read_messages(piece.view, piece.position, piece.batch_left, piece.base_time_ns, piece.count, piece.end)
        self.got += [(each.body, each.time_ns, delivery.attempts) for each in messages]

    def closed(self, reason: str) -> None:
        raise AssertionError(reason)


@dataclass
class Result:
    told: list[TakenTopic]
    problems: list[str]
    notes: list[str]
    progress: int


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "nsq"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(server=ServerSettings(data=tmp_path / "data"))


def bring(source: Path, settings: Settings) -> Result:
    before = {path: path.read_bytes() for path in source.iterdir()}
    told: list[TakenTopic] = []
    steps: list[int] = []
    folder = NsqdFolder(source)
    try:
        target = Target(settings)
        try:
            take_over(folder, target, told.append, steps.append)
        finally:
            target.close()
    finally:
        folder.close()
    assert {path: path.read_bytes() for path in source.iterdir()} == before, "the source stays as it is"
    assert sorted(path.name for path in settings.server.data.iterdir()) == ["FORMAT", "LOCK", "journal", "partitions"]
    return Result(told, [str(problem) for problem in folder.problems], folder.notes, sum(steps))


def drain(node: Node, session: Session, topic: str, group: str) -> list[tuple[bytes, int, int]]:
    inbox = Inbox()
    subscription = session.subscribe(topic, group, listener=inbox, lease_ns=60 * SECOND_NS)
    session.credit(subscription, 10_000)
    for _ in range(60):
        node.broker.tick()
        node.store.commit()
        node._worker.drain()  # what is read from the disk is there then
        node.store.poll()
        for delivery in node.broker.dispatch():
            delivery.subscription.listener.take(delivery)  # type: ignore[attr-defined]
    session.unsubscribe(subscription)
    return inbox.got


def delivered(settings: Settings, *queues: str) -> list[list[tuple[bytes, int, int]]]:
    """What new consumers of these channels get, one after the other, from a broker on the imported folder."""
    node = Node(settings)
    session = node.broker.session(ANONYMOUS)
    try:
        return [drain(node, session, *queue.split(":")) for queue in queues]
    finally:
        node.close()


def expected(messages: list[Stored]) -> list[tuple[bytes, int, int]]:
    return [(each.body, each.time_ns, each.attempts + 1) for each in messages]


def test_every_channel_gets_what_it_had_with_times_and_attempts(source: Path, settings: Settings) -> None:
    write_metadata(source, {"t": ["a", "b", "empty"], "u": ["a"]})
    a = [message(5, 2), *M[6:20], message(21, 65535)]
    b = [M[1], M[3], M[6], *M[10:30]]
    b[-1] = message(29, 1)
    write_queue(source, "t:a", [M[0], *a[:7]], a[7:], read=1)
    write_queue(source, "t:b", b)
    write_queue(source, "u:a", M[:3])
    result = bring(source, settings)
    assert (result.problems, result.notes) == ([], [])
    first, second = result.told
    assert first.queues == [
        QueueSummary("t", "", False, 0, 0, 0),
        QueueSummary("t", "a", False, 16, 2, 0),
        QueueSummary("t", "b", False, 23, 1, 0),
        QueueSummary("t", "empty", False, 0, 0, 0),
    ]
    assert (first.messages, second.messages, first.contradictions) == (27, 3, 0)
    got_a, got_b, got_empty, got_u = delivered(settings, "t:a", "t:b", "t:empty", "u:a")
    assert got_a == [(body, time_ns, min(attempts, limits.ATTEMPTS_MAX)) for body, time_ns, attempts in expected(a)]
    assert got_b == expected(b)
    assert got_empty == []
    assert got_u == expected(M[:3])


def test_the_topics_own_queue_is_for_every_channel_behind_theirs(source: Path, settings: Settings) -> None:
    write_metadata(source, {"t": ["a", "b"]})
    write_queue(source, "t", [*M[50:60], M[2]])
    write_queue(source, "t:a", M[:5])
    result = bring(source, settings)
    assert result.told[0].queues[0] == QueueSummary("t", "", False, 10, 0, 0)
    got_a, got_b = delivered(settings, "t:a", "t:b")
    assert got_a == expected([*M[:5], *M[50:60]]), "what a killed nsqd had copied already comes once"
    assert sorted(got_b) == sorted(expected([M[2], *M[50:60]]))


def test_what_a_paused_topic_keeps_is_kept(source: Path, settings: Settings) -> None:
    write_metadata(source, {"t": ["a"]}, paused=("t",))
    write_queue(source, "t", M[50:60])
    write_queue(source, "t:a", M[:5])
    bring(source, settings)
    assert delivered(settings, "t:a") == [expected(M[:5])]
    node = Node(settings)
    session = node.broker.session(ANONYMOUS)
    view = session.topic("t")
    assert view is not None
    assert view.paused
    session.pause_topic("t", paused=False)
    assert [body for body, _, _ in drain(node, session, "t", "a")][-10:] == [each.body for each in M[50:60]]
    node.close()


def test_a_topic_without_channels_keeps_everything_for_the_first(source: Path, settings: Settings) -> None:
    write_metadata(source, {"lone": [], "quiet": []}, paused=("quiet",))
    write_queue(source, "lone", M[:7], M[7:9])
    write_queue(source, "quiet", M[:2])
    bring(source, settings)
    assert delivered(settings, "lone:first", "lone:second", "quiet:first") == [expected(M[:9]), [], []]


def test_paused_channels_stay_paused(source: Path, settings: Settings) -> None:
    write_metadata(source, {"t": ["a"]}, paused=("t:a",))
    write_queue(source, "t:a", M[:5])
    bring(source, settings)
    node = Node(settings)
    session = node.broker.session(ANONYMOUS)
    assert drain(node, session, "t", "a") == []
    view = session.topic("t")
    assert view is not None
    assert (view.groups[0].paused, view.groups[0].depth) == (True, 5)
    session.pause_group("t", "a", paused=False)
    assert drain(node, session, "t", "a") == expected(M[:5])
    node.close()


def test_damage_costs_what_is_damaged_and_is_named(source: Path, settings: Settings) -> None:
    write_metadata(source, {"t": ["a"]})
    write_queue(source, "t:a", M[:10], M[10:20])
    path, other = source / "t:a.diskqueue.000000.dat", source / "t:a.diskqueue.000001.dat"
    size = len(record(M[0]))
    data = bytearray(path.read_bytes())
    data[4 * size : 4 * size + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(data)
    tail = bytearray(other.read_bytes())
    cut = len(b"".join(map(record, M[10:19])))
    tail[cut] = 1
    other.write_bytes(tail)
    result = bring(source, settings)
    assert result.problems == [
        f"{path} at byte {4 * size}: no sound record begins here; the {size} bytes up to byte {5 * size}, where there is one, are left out",
        f"{other} at byte {cut}: no sound record begins here; the {len(tail) - cut} bytes up to the end of the file are left out",
    ]
    kept = [*M[:4], *M[5:19]]
    assert delivered(settings, "t:a") == [expected(kept)]
    assert result.progress == len(data) + len(tail) + sum(len(each.body) for each in kept)


def test_a_message_larger_than_any_may_be_is_left_out_alone(source: Path, settings: Settings) -> None:
    write_metadata(source, {"t": ["a"]})
    large = Stored(77, TIME_NS, bytes(limits.MESSAGE_SIZE_BYTES_MAX + 1))
    just = Stored(78, TIME_NS, bytes(limits.MESSAGE_SIZE_BYTES_MAX))
    write_queue(source, "t:a", [M[1], large, just, M[2]])
    result = bring(source, settings)
    assert len(result.problems) == 1
    assert "is larger than the 8388608 that one may have; left out" in result.problems[0]
    assert delivered(settings, "t:a") == [expected([M[1], just, M[2]])]


def test_many_messages_go_in_batches(source: Path, settings: Settings) -> None:
    write_metadata(source, {"t": ["a", "b"]})
    many = [Stored(number, TIME_NS + number, b"%d" % number * (number % 50)) for number in range(20_000)]
    write_queue(source, "t:a", many[:9000], many[9000:])
    write_queue(source, "t:b", many[1::2])
    bring(source, settings)
    got_a, got_b = delivered(settings, "t:a", "t:b")
    assert got_a == expected(many)[:10_000], "as many as the consumer takes"
    assert got_b == expected(many[1::2])


@pytest.mark.parametrize("left", ["importing", "importing and more"])
def test_what_an_interrupted_import_has_left_is_removed(source: Path, settings: Settings, left: str) -> None:
    write_metadata(source, {"t": ["a"]})
    write_queue(source, "t:a", M[:5])
    data = settings.server.data
    (data / "importing" / "journal").mkdir(parents=True)
    if left != "importing":
        (data / "partitions" / "0000000").mkdir(parents=True)
        (data / "journal").mkdir(parents=True)
    bring(source, settings)
    assert delivered(settings, "t:a") == [expected(M[:5])]
    with pytest.raises(ConfigError, match="is the data folder of a polymq already"):
        bring(source, settings)


def test_a_failure_leaves_nothing_and_the_next_try_goes_through(source: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    write_metadata(source, {"t": ["a"], "u": ["a"]})
    write_queue(source, "t:a", M[:5])
    write_queue(source, "u:a", M[:5])
    write = Writer.write

    def failing(writer: Writer) -> None:
        if writer._taken.entry.name == "u":
            raise StoreFull("no room")
        write(writer)

    monkeypatch.setattr(Writer, "write", failing)
    with pytest.raises(StoreFull):
        bring(source, settings)
    assert [path.name for path in settings.server.data.iterdir()] == ["LOCK"]
    monkeypatch.undo()
    bring(source, settings)
    assert delivered(settings, "t:a", "u:a") == [expected(M[:5])] * 2


@pytest.mark.parametrize(
    ("content", "said"), [("FORMAT", "data folder of a polymq already"), ("else", "is not empty"), ("journal", "is not empty")]
)
def test_the_target_must_be_fresh(settings: Settings, content: str, said: str) -> None:
    settings.server.data.mkdir()
    (settings.server.data / content).mkdir()
    with pytest.raises(ConfigError, match=said):
        Target(settings)
    (settings.server.data / content).rmdir()
    Target(settings).close()


def test_a_target_in_use_is_refused(settings: Settings) -> None:
    target = Target(settings)
    with pytest.raises(ConfigError, match="in use by another process"):
        Target(settings)
    target.close()
    Target(settings).close()


def test_a_target_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be used"):
        Target(Settings(server=ServerSettings(data=tmp_path / "file")))
