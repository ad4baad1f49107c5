"""One of three options says what is read."""

from __future__ import annotations

import pytest

from polymq.errors import ConfigError
from polymq.spark.log.offsets import Place
from polymq.spark.log.options import Options


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "nothing says what to read: give exactly one of subscribe, subscribePattern, assign"),
        ({"subscribePattern": "a("}, "no regular expression"),
        ({"subscribePattern": ""}, "must not be empty"),
        ({"assign": "[]"}, "assign must be"),
        ({"assign": '{"a": []}'}, "assign must be"),
        ({"assign": '{"a": [true]}'}, "assign must be"),
        ({"assign": '{"a": 0}'}, "assign must be"),
    ],
)
def test_one_of_three_says_what_to_read(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Options.parse({"server": "h:1"} | given, streaming=True)
    assert words in str(caught.value)


def test_a_pattern_is_of_whole_names() -> None:
    found = Options.parse({"server": "h:1", "subscribePattern": "ord.*"}, streaming=True).subscription
    assert [found.matches(name) for name in ("orders", "reorders", "ord", "or")] == [True, False, True, False]


def test_partitions_are_assigned_by_index_or_by_node() -> None:
    found = Options.parse({"servers": "h:1", "assign": '{"a": [0, "n/2"], "b": ["1"]}'}, streaming=True).subscription
    places = [Place("a", 0, "m"), Place("a", 2, "n"), Place("a", 2, "m"), Place("b", 1), Place("b", 0)]
    assert [found.takes(place) for place in places] == [True, True, False, True, False]
    assert found.topics == ("a", "b")


def test_what_is_read_is_said_for_people() -> None:
    given = {"subscribe": "b,a", "subscribePattern": "a.*", "assign": '{"a": [1, 0]}'}
    shown = [str(Options.parse({"server": "h:1", name: text}, streaming=True).subscription) for name, text in given.items()]
    assert shown == ["subscribe=b,a", "subscribePattern=a.*", "assign=a/0,a/1"]
