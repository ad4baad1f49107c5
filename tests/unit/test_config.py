"""Defaults, file, environment and flags are merged in this order, and all problems are reported at once."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

from polymq import config
from polymq.config_sections import Settings
from polymq.config_values import TcpAddress, UnixAddress
from polymq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def problems(
    path: Path | None = None, *, environment: Mapping[str, str] | None = None, flags: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        config.load(path, environment=environment or {}, flags=flags or {})
    return caught.value.problems


def write(folder: Path, text: str, name: str = "polymq.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults_are_the_standard_ports_of_the_loopback_interface(folder: Path) -> None:
    settings = config.load(environment={}, flags={})
    assert settings == Settings()
    assert settings.nsq.tcp == TcpAddress("127.0.0.1", 4150)
    assert settings.nsq.http == TcpAddress("127.0.0.1", 4151)
    assert settings.server.http == TcpAddress("127.0.0.1", 4171)


def test_the_later_source_wins(folder: Path) -> None:
    write(folder, '[nsq]\ntcp = "a:1"\nhttp = "a:2"\nmax_rdy_count = 7\n[server]\nhttp = "a:3"\n')
    settings = config.load(environment={"POLYMQ_NSQ_HTTP": "b:2", "POLYMQ_SERVER_HTTP": "b:3"}, flags={"server.http": "c:3"})
    assert (settings.nsq.tcp, settings.nsq.http, settings.server.http) == (TcpAddress("a", 1), TcpAddress("b", 2), TcpAddress("c", 3))
    assert settings.nsq.max_rdy_count == 7
    assert settings.origins == {
        "nsq.tcp": "polymq.toml",
        "nsq.http": "environment",
        "server.http": "flag",
        "nsq.max_rdy_count": "polymq.toml",
    }


def test_a_named_file_replaces_the_usual_one(folder: Path) -> None:
    write(folder, '[nsq]\ntcp = "a:1"\n')
    other = write(folder, '[nsq]\nhttp = "unix:/x"\n', "other.toml")
    settings = config.load(other, environment={}, flags={})
    assert settings.nsq.tcp == TcpAddress("127.0.0.1", 4150)
    assert settings.nsq.http == UnixAddress("/x")


def test_nsqd_spellings_with_hyphens_are_understood(folder: Path) -> None:
    write(folder, '[nsq]\nmax-msg-size = 1024\n"msg-timeout" = "1m0s"\n')
    assert config.load(environment={}, flags={}).nsq.max_msg_size_bytes == 1024


def test_everything_wrong_is_reported_at_once(folder: Path) -> None:
    path = write(folder, '[nsqq]\nx = 1\n[nsq]\ntpc = "a:1"\nmax_rdy_count = "many"\nhtp = 1\n[server]\nmax_rdy_count = 3\n')
    found = problems(path, environment={"POLYMQ_NSQ_TPC": "a:1", "POLYMQ_STORE_DURABILITY": "never"}, flags={"nsq.http": "4151"})
    assert found == (
        f"{path}: there is no section [nsqq]; did you mean 'nsq'?",
        f"{path}: [nsq] has no setting 'tpc'; did you mean 'tcp'?",
        f"{path}: [nsq] has no setting 'htp'; did you mean 'http'?",
        f"{path}: [server] has no setting 'max_rdy_count' (nsq.max_rdy_count exists)",
        "environment: POLYMQ_NSQ_TPC is not a setting; did you mean 'POLYMQ_NSQ_TCP'?",
        f"{path}: nsq.max_rdy_count = 'many': expected a whole number from 1 to 1000000",
        "POLYMQ_STORE_DURABILITY = 'never': expected one of cache, fsync",
        "--nsq-http = '4151': expected HOST:PORT, [IPV6]:PORT, unix:PATH or off",
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[nsq", "not valid TOML"),
        ("nsq = 5", "nsq is a section: write [nsq] on a line of its own"),
        ("[nsq]\nmsg_timeout = 60", 'such as "250ms"'),
        (
            '[nsq]\nmin_output_buffer_timeout = "31s"',
            "nsq.min_output_buffer_timeout (31s) is more than nsq.max_output_buffer_timeout (30s)",
        ),
        ('[nsq]\ntcp = "h:1"\nhttp = "h:1"', "nsq.http and nsq.tcp both want h:1"),
        ('[nsq]\ntcp = "unix:a"\nhttp = "unix:a"', "nsq.http and nsq.tcp both want unix:a"),
        ('[server]\ndata = "polymq.toml"', "server.data: polymq.toml is a file"),
    ],
)
def test_problems_of_a_file(folder: Path, text: str, says: str) -> None:
    (problem,) = problems(write(folder, text))
    assert says in problem


def test_a_file_that_cannot_be_read(folder: Path) -> None:
    assert problems(folder / "absent.toml") == (f"{folder / 'absent.toml'}: there is no such file",)
    (problem,) = problems(folder)
    assert "cannot be read" in problem
    folder.joinpath("latin.toml").write_bytes(b"# \xe4\n")
    (problem,) = problems(folder / "latin.toml")
    assert "cannot be read" in problem


def test_two_listeners_may_both_let_the_system_choose(folder: Path) -> None:
    config.load(environment={}, flags={"nsq.tcp": "h:0", "nsq.http": "h:0"})


def test_variables_of_others_are_left_alone(folder: Path) -> None:
    environment = {"POLYMQ_PURE": "1", "POLYMQ_BUILD": "fast", "POLYMQ_SIM_SEEDS": "3", "PATH": "/bin", "NSQ_TCP": "x"}
    assert config.load(environment=environment, flags={}) == Settings()


def test_everything_that_can_be_set_is_served(folder: Path) -> None:
    write(folder, '[phpmq]\nmaintenance = "h:9101"\n')
    settings = config.load(environment={}, flags={"phpmq.tcp": "h:9100", "rocketmq.vip": "h:10909", "nsq.https": "h:4152"})
    assert settings.phpmq.tcp == TcpAddress("h", 9100)
    assert config.notices(settings) == config.notices(Settings()) == []


def test_the_example_shows_every_setting_at_its_default(folder: Path) -> None:
    path = write(folder, config.example())
    settings = config.load(path, environment={}, flags={})
    assert settings.origins == dict.fromkeys(config.all_settings(), str(path))
    assert {section: getattr(settings, section) for section in tomllib.loads(config.example())} == {
        section: getattr(Settings(), section) for section in ("server", "store", "access", "nsq", "nats", "rocketmq", "phpmq")
    }
    assert config.notices(settings) == []
