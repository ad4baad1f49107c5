"""The matrix: whatever publishes, whatever consumes, with every field, over a kill of the broker.

A row is 10,000 messages of one protocol, read by all four at once while the broker is killed, and by Spark afterwards
(`matrix_run.py`). A cell compares what one reader was shown with the table (`matrix_table.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import urllib.request
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest

from polymq.testing.server import PolymqServer
from tests.interop.matrix_readers import AGAIN, LIVE, Reader
from tests.interop.matrix_run import BATCH, KILL_AT, LIVE_AHEAD_MAX, Row, play
from tests.interop.matrix_spark import read_by_spark, session
from tests.interop.matrix_table import PROTOCOLS, READERS, READS, Shown, expected, left_out, record_of
from tests.interop.matrix_traffic import COUNT, topic_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession

    from tests.interop.matrix_readers import Sighting

# Ten times what it takes on two cores without other work.
pytestmark = pytest.mark.timeout(600)
START_S = 60.0

# Units differ by a thousand at least; clocks of one machine do not.
CLOCK_NS = 5_000_000_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
# Who gives some messages back, and gets them a second time.
GIVING_BACK = ("nsq", "rocketmq")
EXAMPLES = 3


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Without what clients say of a broker that is gone: pynsq tells of every FIN that the kill has cut off."""
    levels = {name: logging.getLogger(name).level for name in ("nsq", "polymq", "tornado")}
    for name in levels:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


@pytest.fixture(scope="module", params=PROTOCOLS)
def row(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Row]:
    """The row of one publisher; its broker is there until its cells have been looked at."""
    with PolymqServer(tmp_path_factory.mktemp(f"matrix-{request.param}"), deadline_seconds=START_S) as server:
        with quietly():
            row = asyncio.run(play(request.param, server))
        yield row


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with session(tmp_path_factory.mktemp("warehouse")) as made:
        yield made


def judge(**found: list[str]) -> None:
    """Fail with a few of each kind of problem, and how many there are, if there are any."""
    lines = [f"{kind}: {len(problems)}, as\n    " + "\n    ".join(problems[:EXAMPLES]) for kind, problems in found.items() if problems]
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


def differences(row: Row, name: str, reader: Reader) -> list[str]:
    """Fields that are not what the table says."""
    found = [f"nobody has published {body!r}" for body in reader.invented]
    for each in reader.sightings:
        parcel = row.parcels[each.number]
        wanted = expected(row.publisher, name, parcel)
        if not is_shown(each.shown, wanted, passed_ns=each.at_ns - row.begun_ns[each.number]):
            found.append(f"{parcel.number} ({len(parcel.body)} bytes) is shown as\n        {each.shown}, not\n        {wanted}")
    return found


def is_shown(shown: Shown, wanted: Shown, *, passed_ns: int) -> bool:
    """Whether it is what is wanted; of a TTL there is what was not over, in whole seconds, when it came so long after it was sent."""
    if wanted.ttl_s:
        left_s = max(wanted.ttl_s - passed_ns / NS_PER_S - 1, 1)
        return left_s <= shown.ttl_s <= wanted.ttl_s and replace(shown, ttl_s=0) == replace(wanted, ttl_s=0)
    return shown == wanted


def times(row: Row, name: str, reader: Reader) -> list[str]:
    """What came before it was due, or with another time than that of the store."""
    found = []
    for each in reader.sightings:
        parcel, begun_ns = row.parcels[each.number], row.begun_ns[each.number]
        due_ns = begun_ns + parcel.delay_ms * NS_PER_MS
        if each.at_ns < due_ns:
            found.append(f"{each.number} came {(due_ns - each.at_ns) / 1e9:.3f} s early")
        if ("time" in READS[name]) != (each.time_ns is not None):
            found.append(f"{each.number} has the time {each.time_ns}")
        elif each.time_ns is not None and not due_ns - CLOCK_NS <= each.time_ns <= each.at_ns + CLOCK_NS:
            found.append(f"{each.number} was published at {begun_ns}, and has the time {each.time_ns}")
    return found


def attempts(row: Row, reader: Reader) -> list[str]:
    """Numbers of attempts that are not what the group has done."""
    before: dict[int, Sighting] = {}
    found = []
    for each in reader.sightings:
        first = before.setdefault(each.number, each)
        # Around the kill nobody knows how often a message was out.
        wanted = 1 if first is each else 2
        if each.number >= row.live_again_at and row.tries[each.number] == 1 and each.attempts != wanted:
            found.append(f"{each.number} came for the time {wanted} and says that it is {each.attempts}")
    return found


def repeats(row: Row, name: str, reader: Reader) -> list[str]:
    """What came more often than it may: once for each time that it was sent, and once more if it was out at the kill or was given back."""
    unsure = {each.number for each in reader.sightings[reader.safe_until : reader.back_at]}
    given_back = AGAIN if name in GIVING_BACK else frozenset()
    return [
        f"{number} came {count} times, and was sent {row.tries[number]} times"
        for number, count in reader.times.items()
        if count > row.tries[number] + (number in unsure) + (number in given_back)
    ]


def missing(reader: Reader) -> list[str]:
    return [f"{number} is missing" for number in range(COUNT) if number not in reader.times]


def gaps(row: Row, reader: Reader) -> list[str]:
    """What a live subscription has not heard though it was owed: it may miss one piece of each partition, the one around the kill.

    That begins behind what was acknowledged before, and ends before what was sent when it was back.
    """
    found = [f"{number} is missing" for number in (*sorted(row.owed), *range(row.live_again_at, COUNT)) if number not in reader.times]
    for order in row.orders:
        at = [place for place, number in enumerate(order) if number not in reader.times]
        for place in range(at[0], at[-1]) if at else ():
            # What was sent twice may have been heard from the process that was killed, or the other time.
            if order[place] in reader.times and row.tries[order[place]] == 1:
                found.append(f"{order[place]} was heard between messages that were not")
    return found


def small(heard: Iterable[int]) -> tuple[Row, Reader]:
    """A row whose live subscription has heard these; it was owed the first 4,000, and was back at 5,000."""
    live = Reader(cast("PolymqServer", None), "t", {})
    live.times.update(dict.fromkeys(heard, 1))
    row = Row("nsq", [], tries=[1] * COUNT, orders=[list(range(COUNT))])
    row.owed, row.live_again_at = frozenset(range(4_000)), 5_000
    return row, live


@pytest.mark.parametrize(
    ("heard", "wrong"),
    [
        (range(COUNT), 0),
        ((*range(4_000), *range(5_000, COUNT)), 0),
        ((*range(4_321), *range(4_322, COUNT)), 0),
        # One that hears its first message and nothing more until it is back.
        ((0, *range(5_000, COUNT)), 3_999),
        ((*range(4_000), *range(5_001, COUNT)), 1),
        # Two pieces, with a message in between.
        ((*range(4_100), 4_200, *range(4_300, COUNT)), 1),
    ],
)
def test_a_live_subscription_may_miss_one_piece_around_the_kill(heard: Iterable[int], wrong: int) -> None:
    assert len(gaps(*small(heard))) == wrong


@pytest.mark.parametrize(
    ("shown_s", "passed_s", "is_right"),
    [
        (3_600, 0, True),
        (3_599, 0.2, True),
        (3_590, 10, True),
        (3_589, 10, True),
        (3_588, 10, False),
        (3_601, 0, False),
        (1, 2, False),
        (0, 4_000, False),
    ],
)
def test_a_ttl_that_is_shown_is_what_is_left(shown_s: int, passed_s: float, is_right: bool) -> None:
    wanted = Shown("k", ttl_s=3_600)
    assert is_shown(Shown("k", ttl_s=shown_s), wanted, passed_ns=round(passed_s * NS_PER_S)) == is_right
    assert not is_shown(Shown("other", ttl_s=shown_s), wanted, passed_ns=round(passed_s * NS_PER_S))


def test_the_kill_was_on_the_way(row: Row) -> None:
    assert BATCH_LEFT < row.killed_at < COUNT - BATCH_LEFT
    # What the live subscription may have missed is bounded.
    assert len(row.owed) > KILL_AT - BATCH_LEFT
    assert row.live_again_at <= row.killed_at + LIVE_AHEAD_MAX + BATCH <= min(AGAIN)
    for name, reader in row.readers.items():
        assert reader.back_at > 0, name
        assert reader.back_at < reader.seen_count, name


BATCH_LEFT = 1_000


@pytest.mark.parametrize("reader", READERS)
def test_cell(row: Row, reader: str, request: pytest.FixtureRequest) -> None:
    if reader == "spark":
        numbers = {each.body: each.number for each in row.parcels}
        server = row.readers[LIVE].server
        seen = read_by_spark(request.getfixturevalue("spark"), server, topic_of(row.publisher), numbers)
    else:
        seen = row.readers[reader]
    judge(
        fields=differences(row, reader, seen),
        times=times(row, reader, seen),
        repeats=repeats(row, reader, seen),
        missing=gaps(row, seen) if reader == LIVE else missing(seen),
        attempts=attempts(row, seen) if "attempts" in READS[reader] else [],
    )


@pytest.mark.parametrize("reader", ["nats", "rocketmq"])
def test_what_is_left_out_is_counted(row: Row, reader: str) -> None:
    """Of what the broker has delivered since it was started again."""
    records = [record_of(row.publisher, each) for each in row.parcels[row.live_again_at :]]
    is_left_out = row.publisher != reader and any(left_out(reader, *header) for record in records for header in record.headers)
    with urllib.request.urlopen(f"http://{row.readers[reader].server.http}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    name = f'polymq_conversion_dropped_total{{protocol="{reader}",what="header"}} '
    (count,) = (float(line.removeprefix(name)) for line in lines if line.startswith(name))
    assert (count > 0) == is_left_out


def test_what_a_live_subscription_missed_is_in_the_log(row: Row) -> None:
    """NATS' clients read all of it again, by requests."""
    assert row.log is not None
    judge(fields=differences(row, "nats", row.log), missing=missing(row.log), repeats=repeats(row, "nats", row.log))
