"""Kinds of values, and blocks by a table of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.config_values import TcpAddress
from polymq.server.nats_values import (
    DEFAULT,
    Foreign,
    Key,
    Report,
    address,
    advertised,
    choice,
    count,
    duration,
    name_without_spaces,
    parse_host_port,
    read_block,
    seconds,
    some_text,
    switch,
    text,
    texts,
)
from tests.unit.protocols.nats.conf_writer import read

if TYPE_CHECKING:
    from collections.abc import Callable

SECOND = 10**9


def taken(read_as: Callable[..., object], written: str) -> tuple[object, list[str]]:
    """Read one value; gives what was noted as well."""
    report = Report()
    found = read_as(read(f"k: {written}\n").root.entries["k"], "k", report)
    assert report.problems == []
    return found, report.notes


@pytest.mark.parametrize(
    ("read_as", "written", "value"),
    [
        (text, "word", "word"),
        (text, '""', ""),
        (some_text, "word", "word"),
        (name_without_spaces, "n1", "n1"),
        (switch, "on", True),
        (switch, "No", False),
        (choice("a", "b"), "B", "b"),
        (count(1, 10), "10", 10),
        (count(1, 10, zero=DEFAULT), "0", DEFAULT),
        (count(1, 10, negative="many"), "-5", "many"),
        (count(1, 1 << 30), "1MB", 1 << 20),
        (duration(), '"2m"', 120 * SECOND),
        (duration(), "1m30s", 90 * SECOND),
        (duration(zero=DEFAULT), '"0"', DEFAULT),
        (seconds, "2", 2 * SECOND),
        (seconds, "0.5", SECOND // 2),
        (seconds, "1500ms", SECOND * 3 // 2),
        (seconds, "0", DEFAULT),
        (texts, "a", ("a",)),
        (texts, "[a, b]", ("a", "b")),
        (texts, "[]", ()),
        (address, "4222", ("", 4222)),
        (address, "-1", ("", -1)),
        (address, "localhost:4222", ("localhost", 4222)),
        (address, ":4222", ("", 4222)),
        (address, "127.0.0.1:-1", ("127.0.0.1", -1)),
        (address, '"[::1]:4222"', ("::1", 4222)),
        (advertised, "host", TcpAddress("host", 0)),
        (advertised, "host:80", TcpAddress("host", 80)),
        (advertised, "host:-1", TcpAddress("host", 0)),
        (advertised, '"[::1]"', TcpAddress("::1", 0)),
        (advertised, '"[::1]:80"', TcpAddress("::1", 80)),
        (advertised, '""', DEFAULT),
    ],
)
def test_values(read_as: Callable[..., object], written: str, value: object) -> None:
    assert taken(read_as, written) == (value, [])


@pytest.mark.parametrize(
    ("read_as", "written", "said"),
    [
        (text, "123", "expected text, not a number; put it in quotes"),
        (text, "yes", "expected text, not yes (which is true); put it in quotes"),
        (text, "2024-01-01T00:00:00Z", "expected text, not a date; put it in quotes"),
        (text, "[a]", "expected text, not a list"),
        (text, "{}", "expected text, not a block"),
        (some_text, '""', "expected text, not nothing"),
        (name_without_spaces, '"a b"', "expected a name without blanks"),
        (switch, '"true"', "expected true or false, not text in quotes; take them off"),
        (switch, "maybe", "expected true or false, not text"),
        (switch, "1", "expected true or false, not a number"),
        (choice("a", "b"), "c", "expected one of a, b"),
        (count(1, 10), '"5"', "expected a whole number, not text; take the quotes off"),
        (count(1, 10), "1.5", "expected a whole number, not a number"),
        (count(1, 10), "yes", "expected a whole number, not yes (which is true)"),
        (count(1, 10), "0", "expected a number from 1 to 10"),
        (count(1, 10), "-1", "expected a number from 1 to 10"),
        (count(1, 10), "11", "expected a number from 1 to 10"),
        (duration(), "2m", '2m without quotes is the number 2000000; write "2m", or seconds without a unit'),
        (duration(), "1.5", 'expected a time with its unit, such as "250ms" or "1h30m", not a number'),
        (duration(), "yes", 'expected a time with its unit, such as "250ms" or "1h30m", not yes (which is true)'),
        (duration(), '"2 m"', 'expected a time with its unit, such as "250ms" or "1h30m"'),
        (duration(), '"2d"', 'expected a time with its unit, such as "250ms" or "1h30m"'),
        (duration(), '"-2s"', "expected a time from 0s to 3650d"),
        (duration(30 * SECOND), '"29s"', "expected a time from 30s to 3650d"),
        (duration(), '"87601h"', "expected a time from 0s to 3650d"),
        (seconds, "-1", "expected a time of at most 3650d"),
        (seconds, "1m", '1m without quotes is the number 1000000; write "1m"'),
        (seconds, "99999999999999999999999.0", 'expected a time with its unit, such as "250ms" or "1h30m", not a number'),
        (texts, "5", "expected a list, [ … ], not a number"),
        (texts, "[a, 5]", "expected text, not a number; put it in quotes"),
        (address, "65536", "expected a number from -1 to 65535"),
        (address, "host", 'expected a port, "HOST:PORT" or "[IPV6]:PORT"'),
        (address, "host:65536", 'expected a port, "HOST:PORT" or "[IPV6]:PORT"'),
        (address, "host:-2", 'expected a port, "HOST:PORT" or "[IPV6]:PORT"'),
        (address, "host:--1", 'expected a port, "HOST:PORT" or "[IPV6]:PORT"'),
        (address, "host:", 'expected a port, "HOST:PORT" or "[IPV6]:PORT"'),
        (address, '"::1:4222"', 'expected a port, "HOST:PORT" or "[IPV6]:PORT": an IPv6 address goes in brackets'),
        (address, '"a b:4222"', 'expected a port, "HOST:PORT" or "[IPV6]:PORT"'),
        (address, "nats://host:4222", 'expected a port, "HOST:PORT" or "[IPV6]:PORT": an IPv6'),
        (advertised, '":80"', "expected HOST or HOST:PORT"),
        (advertised, '"a:b:c"', 'expected a port, "HOST:PORT"'),
    ],
)
def test_what_was_expected(read_as: Callable[..., object], written: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        taken(read_as, written)
    assert str(caught.value)[: len(said)] == said


def test_what_is_noted() -> None:
    assert taken(duration(), "20") == (20 * SECOND, ['test.conf:1: k: taken for seconds; write "20s"'])
    assert taken(seconds, "61") == (61 * SECOND, ["test.conf:1: k: 61s is long for this; was another unit meant?"])


@given(st.text(max_size=20) | st.text("[]:-0123456789a.", max_size=20))
def test_addresses_never_fail_otherwise(written: str) -> None:
    try:
        host, port = parse_host_port(written)
    except ValueError as error:
        assert "expected a port" in str(error)
    else:
        assert -1 <= port <= 65535
        assert not set(host) & set("[]/@")


KEYS = {"one": Key("one", text), "uno": Key("one", text), "two": Key("two", count(1, 9, zero=DEFAULT))}
FOREIGN = {"not_here": Foreign("no reason", (False, "")), "idle": Foreign("something else", (0,), refused=False)}


def block(written: str, name: str = "") -> tuple[dict[str, object], Report]:
    report = Report()
    document = read(written)
    found, _ = read_block(document.root, KEYS, FOREIGN, name, report)
    return found, report


def test_a_block_by_its_table() -> None:
    found, report = block("ONE: a\nTwo: 0\nnot_here: off\nidle: 0\n")
    assert (found, report.problems, report.notes) == ({"one": "a"}, [], [])


def test_a_key_that_is_only_a_variable_is_none() -> None:
    found, report = block("mine: a\none: $mine\nyours: b\n")
    assert found == {"one": "a"}
    assert report.problems == ["test.conf:3: yours: nats-server has no such key"]


@pytest.mark.parametrize(
    ("written", "name", "said"),
    [
        ("onne: a", "", "test.conf:1: onne: nats-server has no such key; did you mean 'one'?"),
        ("onne: a", "block", "test.conf:1: block.onne: nats-server has no such key; did you mean 'one'?"),
        ("one: 1", "a.b", "test.conf:1: a.b.one: expected text, not a number; put it in quotes"),
        ("one: a\n\nUno: b", "", "test.conf:3: Uno: this is said in line 1 as well; keep one of the two"),
        ("not_here: on", "", "test.conf:1: not_here: polymq does not serve this (no reason); take it out to do without"),
        ("not_here: 0", "", "test.conf:1: not_here: polymq does not serve this (no reason); take it out to do without"),
    ],
)
def test_what_is_wrong_with_a_block(written: str, name: str, said: str) -> None:
    _, report = block(written, name)
    assert report.problems == [said]
    assert report.broken == {name.partition(".")[0] or said.split(": ")[1]}


def test_what_has_no_meaning_is_noted() -> None:
    _, report = block("idle: 1")
    assert (report.problems, report.notes) == ([], ["test.conf:1: idle: has no meaning here: something else"])


def test_a_gap_is_no_second_problem() -> None:
    found, report = block("one: $none\ntwo: 2")
    assert (found, report.problems, report.broken) == ({"two": 2}, [], {"one"})


def test_a_zero_is_not_false() -> None:
    _, report = block("not_here: 0\nidle: no\n")
    assert len(report.problems) == len(report.notes) == 1
