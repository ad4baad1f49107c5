"""The short reading of `polymq serve` and typer's are the same; what the short one does not know is left to typer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from polymq import config
from polymq.cli import serve
from polymq.cli.main import app
from polymq.cli.serving import parse_pairs, read_line, read_settings
from polymq.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

LINES = [
    "",
    "--data d --nsq 127.0.0.1:4150 --nsq-http=off",
    "--nsq off --nsq h:2 --http unix:/a=b",
    "--config x.toml --set store.durability=fsync --set nsq.tcp=unix:/a=b --advertise here",
    "--set=a=b --config=x --config=y --rocketmq-namesrv :9876 --nats-capture orders.>,audit.*",
]


@pytest.mark.parametrize("line", LINES)
def test_both_read_the_same(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    found: list[Any] = []

    def run(path: Path | None, pairs: list[str], flags: dict[str, str | None]) -> int:
        found.append((path, pairs, {name: value for name, value in flags.items() if value is not None}))
        return 0

    monkeypatch.setattr(serve, "run_broker", run)
    done = CliRunner().invoke(app, ["serve", *line.split()])
    assert done.exit_code == 0, done.output
    assert found == [read_line(line.split())]


def test_every_flag_is_read() -> None:
    flags = {each.flag: name for name, each in config.all_settings().items() if each.flag}
    assert len(flags) > 20
    line = read_line([part for number, flag in enumerate(flags) for part in (flag, f"v{number}")])
    assert line == (None, [], {name: f"v{number}" for number, name in enumerate(flags.values())})


@pytest.mark.parametrize(
    "line", ["--help", "-h", "--nsq", "--nsq=", "--nsq -1", "--nsq --data d", "x", "-- x", "--ns off", "--set", "-d x"]
)
def test_what_is_no_plain_setting_is_left_to_typer(line: str) -> None:
    assert read_line(line.split(" ")) is None


def test_wrong_pairs_alone_are_enough_to_refuse() -> None:
    with pytest.raises(ConfigError, match="write --set"):
        read_settings(None, ["x"], {})
    assert parse_pairs(["nsq.tcp=a=b"], config.all_settings()) == ({"nsq.tcp": "a=b"}, [])
