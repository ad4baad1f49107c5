"""`polymq serve` turns flags, --set, environment and file into settings and hands them to the server."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from polymq.cli.main import app
from polymq.config_values import TcpAddress, UnixAddress
from polymq.errors import ConfigError

if TYPE_CHECKING:
    from polymq.config_sections import Settings

# The interface that tools rely on.
FLAGS = (
    *("--data", "--nsq", "--nsq-http", "--nsq-https", "--nsq-lookup", "--nsq-lookup-http", "--nats", "--nats-http", "--nats-cluster"),
    *(
        "--nats-cluster-name",
        "--rocketmq-namesrv",
        "--rocketmq",
        "--rocketmq-vip",
        "--rocketmq-host",
        "--rocketmq-register",
        "--phpmq",
        "--phpmq-tls",
        "--phpmq-unix",
        "--phpmq-maintenance",
        "--http",
        "--advertise",
    ),
)


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Stand in for the server: collect what it is asked to run with."""
    found: list[Settings] = []
    server = ModuleType("polymq.server.serve")

    def run(settings: Settings) -> int:
        found.append(settings)
        return 0

    server.run = run  # type: ignore[attr-defined]  # a module made for this test
    monkeypatch.setitem(sys.modules, "polymq.server.serve", server)
    monkeypatch.setattr("polymq.server.serve", server, raising=False)
    return found


def test_the_flags_that_tools_rely_on_exist(served: list[Settings]) -> None:
    values = {"--data": "d", "--nats-cluster-name": "c", "--advertise": "h", "--rocketmq-host": "h"}
    arguments = [part for number, flag in enumerate(FLAGS, 5000) for part in (flag, values.get(flag, f"127.0.0.1:{number}"))]
    done = CliRunner().invoke(app, ["serve", *arguments])
    assert done.exit_code == 0, done.output
    (settings,) = served
    assert settings.server.data == Path("d")
    assert settings.server.advertise == "h"
    assert settings.nsq.tcp == TcpAddress("127.0.0.1", 5001)
    assert set(settings.origins.values()) == {"flag"}
    assert len(settings.origins) == len(FLAGS)


def test_there_is_nothing_to_say_of_what_is_served(served: list[Settings]) -> None:
    done = CliRunner().invoke(app, ["serve", "--rocketmq", "127.0.0.1:10911", "--phpmq", "127.0.0.1:9100"])
    assert done.exit_code == 0
    assert done.stderr == ""
    assert len(served) == 1


def test_any_setting_can_be_given(served: list[Settings], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYMQ_NSQ_MAX_RDY_COUNT", "9")
    done = CliRunner().invoke(app, ["serve", "--set", "store.durability=fsync", "--set", "nsq.tcp=unix:/a=b", "--nsq-http", "off"])
    assert done.exit_code == 0, done.output
    (settings,) = served
    assert (settings.store.durability, settings.nsq.tcp, settings.nsq.http, settings.nsq.max_rdy_count) == (
        "fsync",
        UnixAddress("/a=b"),
        None,
        9,
    )


def test_a_file_can_be_named(served: list[Settings], tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text('[nsq]\nhttp = "off"\n')
    assert CliRunner().invoke(app, ["serve", "--config", str(path)]).exit_code == 0
    assert served[0].nsq.http is None


def test_all_that_is_wrong_is_reported_at_once(served: list[Settings]) -> None:
    done = CliRunner().invoke(app, ["serve", "--set", "store.durabilty=fsync", "--set", "x", "--nsq", "4150"])
    assert isinstance(done.exception, ConfigError)
    assert done.exception.problems == (
        "--set store.durabilty=fsync: there is no setting 'store.durabilty'; did you mean 'store.durability'?",
        "--set x: write --set SECTION.KEY=VALUE, for example --set store.durability=fsync",
        "--nsq = '4150': expected HOST:PORT, [IPV6]:PORT, unix:PATH or off",
    )
    assert served == []


def test_a_flag_wins_over_set(served: list[Settings]) -> None:
    CliRunner().invoke(app, ["serve", "--set", "nsq.tcp=h:1", "--nsq", "h:2"])
    assert served[0].nsq.tcp == TcpAddress("h", 2)
