"""Prometheus' formats, read back by Prometheus' own parsers."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open_metrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from polymq import limits
from polymq.admin.metrics import OPEN_METRICS, TEXT, choose, render
from polymq.core.settings import CoreSettings
from polymq.core.statistics import Family, Kind, Registry, Sample

from .door_world import DoorWorld

if TYPE_CHECKING:
    from collections.abc import Iterable

READERS: dict[str, Any] = {TEXT: read_text, OPEN_METRICS: read_open_metrics}
FORMS = sorted(READERS)


def registry(*families: Family) -> Registry:
    made = Registry()
    for family in families:
        made.register(family)
    return made


def read(families: Iterable[Family], form: str) -> dict[str, Any]:
    text = b"".join(render(families, form)).decode("utf-8")
    return {family.name: family for family in READERS[form](text)}


def pairs(family: Any) -> list[tuple[str, dict[str, str], float]]:
    return [(sample.name, dict(sample.labels), sample.value) for sample in family.samples]


@pytest.fixture
def world() -> DoorWorld:
    world = DoorWorld()
    world.publish("t", b"abc", b"de")
    world.consume("t", "g", 1)
    world.turn()
    return world


def test_text_is_what_a_scrape_without_wishes_gets(world: DoorWorld) -> None:
    answer = world.get("/metrics")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    lines = answer.text.splitlines()
    assert "# TYPE polymq_topic_messages_total counter" in lines
    assert "# HELP polymq_topic_messages_total Messages published since the start." in lines
    assert 'polymq_topic_messages_total{namespace="",topic="t"} 2' in lines
    assert 'polymq_group_leased_messages{namespace="",topic="t",group="g"} 1' in lines
    assert "polymq_topics 1" in lines
    assert "polymq_metrics_left_out_samples 0" in lines


def test_open_metrics_for_who_asks(world: DoorWorld) -> None:
    wire = world.wire("/metrics")
    wire = type(wire)(world.router, world.door, world.clock)
    wire.send(b"GET /metrics HTTP/1.1\r\nHost: h\r\nAccept: application/openmetrics-text;version=1.0.0\r\n\r\n")
    wire.drain()
    assert b"\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n" in wire.output
    assert b"# TYPE polymq_topic_messages counter\n" in wire.output
    assert b'\npolymq_topic_messages_total{namespace="",topic="t"} 2\n' in wire.output
    assert b"# EOF\n" in wire.output


@pytest.mark.parametrize("form", FORMS)
def test_the_core_keeps_to_the_conventions(world: DoorWorld, form: str) -> None:
    world.settings = CoreSettings(latency_quantiles=(0.99,))
    world.restart()
    world.consume("t", "g", 1)
    found = read(world.broker.statistics, form)
    assert "polymq_group_latency_seconds" in found
    for family in world.broker.statistics:
        assert family.name.endswith("_total") is (family.kind is Kind.COUNTER), family.name
        parsed = found[family.name.removesuffix("_total")]
        assert parsed.type == family.kind.value
        assert parsed.documentation == family.help
        assert len(parsed.samples) == len(list(family.collect()))


PROMETHEUS = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("text/html", TEXT),
        (PROMETHEUS, OPEN_METRICS),
        ("application/openmetrics-text", OPEN_METRICS),
        ("application/openmetrics-text; version=0.0.1", OPEN_METRICS),
        ("application/openmetrics-text; version=2.0.0, text/plain;q=0.1", TEXT),
        ("application/openmetrics-text;q=0, text/plain", TEXT),
        ("application/openmetrics-text;q=nonsense", TEXT),
        ("application/openmetrics-text;q=nan", TEXT),
        ("application/openmetrics-text;q=7", TEXT),
        ("Text/Plain;q=0.9, Application/OpenMetrics-Text;q=0.9", TEXT),
    ],
)
def test_the_format_follows_accept(accept: str, form: str) -> None:
    assert choose(accept) == form


@given(st.text())
def test_any_accept_is_answered(accept: str) -> None:
    assert choose(accept) in READERS


@pytest.mark.parametrize("form", FORMS)
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\x85\x0b\x0c\x1c\x1d\x1e\u2028\u2029")))
def test_labels_and_help_come_back(form: str, text: str) -> None:
    family = Family("a_total", Kind.COUNTER, "help", lambda: [Sample({"topic": text, "other": 'a"b\\n\nc'}, 3)])
    assert pairs(read(registry(family), form)["a"]) == [("a_total", {"topic": text, "other": 'a"b\\n\nc'}, 3)]


@pytest.mark.parametrize("form", FORMS)
def test_help_is_escaped(form: str) -> None:
    family = Family("a", Kind.GAUGE, 'one\\two\nthree "four"', lambda: [Sample({}, 1)])
    assert read(registry(family), form)["a"].documentation == 'one\\two\nthree "four"'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1 << 52, "4503599627370496"),
        (0.25, "0.25"),
        (True, "1"),
        (float("nan"), "NaN"),
        (float("inf"), "+Inf"),
        (-float("inf"), "-Inf"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    family = Family("a", Kind.GAUGE, "help", lambda: [Sample({}, value)])
    assert f"\na {text}\n".encode() in b"".join(render(registry(family), TEXT))


def many(name: str, count: int, labels: tuple[str, ...] = ("topic",)) -> Family:
    return Family(name, Kind.GAUGE, "help", lambda: (Sample(dict.fromkeys(labels, f"t{number}"), 2) for number in range(count)))


@pytest.mark.parametrize("form", FORMS)
def test_what_is_above_the_limit_is_added_up(form: str) -> None:
    most = limits.METRICS_SAMPLES_PER_FAMILY_MAX
    families = registry(many("a", most), many("b", most + 10), many("c", most + 5, ("topic", "quantile")))
    found = read(families, form)
    assert len(found["a"].samples) == most
    assert pairs(found["b"])[-2:] == [("b", {"topic": f"t{most - 1}"}, 2), ("b", {"topic": ""}, 20)]
    assert len(found["c"].samples) == most, "quantiles have no sum"
    assert pairs(found["polymq_metrics_left_out_samples"]) == [("polymq_metrics_left_out_samples", {}, 15)]


def test_it_is_made_in_pieces() -> None:
    pieces = list(render(registry(many("a", 100_000)), TEXT))
    assert max(len(piece) for piece in pieces) < 40_000
    # Adding up without writing makes pauses as well.
    assert max(len(list(group)) for is_pause, group in groupby(pieces, key=lambda piece: not piece) if is_pause) == 196


def test_topics_may_come_and_go_while_it_is_made(world: DoorWorld) -> None:
    for number in range(300):
        world.session.create_topic(f"topic-{number:03}")
        world.session.create_group(f"topic-{number:03}", "g")
    pieces = render(world.broker.statistics, TEXT)
    text = next(pieces)
    for number in range(0, 300, 2):
        world.session.delete_topic(f"topic-{number:03}")
        world.session.create_topic(f"new-{number:03}")
    text += b"".join(pieces)
    assert b'polymq_group_timeouts_total{namespace="",topic="topic-299",group="g"} 0\n' in text
