"""Commands are found in the table and by entry points, and imported only when they are named."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint

import pytest
import typer
from typer.testing import CliRunner

from polymq.cli import commands
from polymq.cli.main import app
from polymq.errors import ConfigError

brought = typer.Typer()
not_a_command = "text"


@brought.command()
def replay(topic: str) -> None:
    """Play a topic again."""
    print(f"replaying {topic}")


@pytest.fixture
def entry_points(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    found: list[EntryPoint] = []
    monkeypatch.setattr("importlib.metadata.entry_points", lambda *, group: found if group == "polymq.commands" else [])
    return found


def add(entry_points: list[EntryPoint], name: str, attribute: str) -> None:
    sys.modules["planted_commands"] = sys.modules[__name__]
    entry_points.append(EntryPoint(name, f"planted_commands:{attribute}", commands.GROUP))


@pytest.mark.parametrize("name", commands.OWN)
def test_each_command_teaches_by_example(name: str) -> None:
    done = CliRunner().invoke(app, [name, "--help"])
    assert done.exit_code == 0
    assert "Examples" in done.output
    assert f"polymq {name}" in done.output


def test_help_lists_own_commands_first_and_then_those_of_others(entry_points: list[EntryPoint]) -> None:
    add(entry_points, "replay", "brought")
    output = CliRunner().invoke(app, ["--help"]).output
    positions = [output.index(f"│ {name} ") for name in (*commands.OWN, "replay")]
    assert positions == sorted(positions)
    assert "Play a topic again." in output


def test_a_command_of_an_optional_part_runs(entry_points: list[EntryPoint]) -> None:
    add(entry_points, "replay", "brought")
    assert CliRunner().invoke(app, ["replay", "orders"]).output == "replaying orders\n"


def test_nobody_can_take_the_name_of_an_own_command(entry_points: list[EntryPoint]) -> None:
    add(entry_points, "serve", "brought")
    assert commands.brought_by_others() == {}


@pytest.mark.parametrize(("attribute", "says"), [("absent", "cannot be imported"), ("not_a_command", r"must be a typer\.Typer, not str")])
def test_a_broken_entry_point_is_explained(entry_points: list[EntryPoint], attribute: str, says: str) -> None:
    add(entry_points, "broken", attribute)
    done = CliRunner().invoke(app, ["broken"])
    assert isinstance(done.exception, ConfigError)
    with pytest.raises(ConfigError, match=says):
        raise done.exception


def test_an_unknown_command_is_a_usage_error(entry_points: list[EntryPoint]) -> None:
    done = CliRunner().invoke(app, ["sevre"])
    assert done.exit_code == 2
    assert "did you mean 'serve'?" in done.output
    assert "polymq --help lists them" in CliRunner().invoke(app, ["quit"]).output
