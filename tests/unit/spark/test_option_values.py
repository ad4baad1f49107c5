"""Reading options: what each kind takes, and what is said of anything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq.errors import ConfigError
from polymq.spark.option_values import OptionReader

if TYPE_CHECKING:
    from pathlib import Path

KNOWN = {
    "secret": "s",
    "secretFile": "f",
    "secretEnv": "e",
    "mode": "m",
    "count": "c",
    "subscribe": "t",
    "startingOffsets": "where to start",
}


def reader(**given: str) -> OptionReader:
    return OptionReader(given, KNOWN)


def test_a_secret_comes_from_an_option_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("from a file\n")
    monkeypatch.setenv("A_SECRET", "from the environment")
    given = [reader(secret="shown"), reader(secretFile=str(tmp_path / "secret")), reader(SecretEnv="A_SECRET"), reader()]
    assert [each.secret("secret") for each in given] == ["shown", "from a file", "from the environment", ""]
    assert [each.problems for each in given] == [[]] * 4


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"secretFile": "/nowhere/at/all"}, "secretFile '/nowhere/at/all' cannot be read: No such file or directory"),
        ({"secretEnv": "NO_SUCH_VARIABLE"}, "secretEnv 'NO_SUCH_VARIABLE' cannot be read: nothing there that is text"),
        ({"secret": "hidden\x01thing"}, "secret must be printable ASCII"),
        ({"secret": "a", "secretEnv": "B"}, "secret and secretEnv exclude each other"),
    ],
)
def test_what_is_wrong_with_a_secret_is_said_without_it(given: dict[str, str], problem: str) -> None:
    asked = reader(**given)
    asked.secret("secret")
    assert asked.problems == [problem]
    with pytest.raises(ConfigError, match="secret"):
        asked.finish()


def test_choices_and_numbers_have_bounds() -> None:
    asked = reader(mode="SIDEWAYS", count="\u0663")
    assert (asked.choice("mode", "up", ("up", "down")), asked.whole("count", 7, 1, 9)) == ("up", 7)
    assert asked.problems == ["mode must be one of up, down, not 'sideways'", "count must be a whole number from 1 to 9, not '\u0663'"]
    assert reader(mode=" Down ").choice("mode", "up", ("up", "down")) == "down"


def test_any_topic_may_be_in_offsets_where_none_is_named_before() -> None:
    text = '{"a": {"0": 5, "1": -2}}'
    asked = reader(startingOffsets=text)
    assert asked.bound("startingOffsets", "earliest", topics=None) == {"a": {0: 5, 1: -2}}
    assert asked.problems == []
    asked.bound("startingOffsets", "earliest", topics=("b",), is_end=True)
    assert asked.problems == ["startingOffsets speaks of a, which subscribe does not name", "startingOffsets cannot be earliest (-2)"]
