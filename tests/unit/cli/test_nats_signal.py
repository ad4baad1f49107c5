from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from polymq.cli import nats_signal
from polymq.cli.nats_signal import send, servers
from polymq.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: found.append((pid, number)))
    return found


@pytest.mark.parametrize(
    ("command", "number"),
    [
        ("reload", signal.SIGHUP),
        ("reopen", signal.SIGUSR1),
        ("ldm", signal.SIGUSR2),
        ("quit", signal.SIGINT),
        ("stop", signal.SIGTERM),
        ("term", signal.SIGTERM),
    ],
)
def test_a_command_is_a_signal(sent: list[tuple[int, int]], command: str, number: int, tmp_path: Path) -> None:
    (tmp_path / "pid").write_text("43\n")
    assert send(f"{command}=42") == 42
    assert send(f"{command}={tmp_path / 'pid'}") == 43
    assert sent == [(42, number), (43, number)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("restart=1", "expected one of reload, reopen"),
        ("reload=nothing", "'nothing' is neither a process id nor a file that has one"),
        ("reload=0", "'0' is neither"),
        ("reload=-1", "'-1' is neither"),
    ],
)
def test_what_cannot_be_sent(sent: list[tuple[int, int]], text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        send(text)
    assert problem in caught.value.problems[0]
    assert sent == []


def test_a_process_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(_pid: int, _number: int) -> None:
        raise ProcessLookupError(3, "No such process")

    monkeypatch.setattr(os, "kill", kill)
    with pytest.raises(ConfigError, match="process 42: No such process"):
        send("reload=42")


def test_servers_are_found_by_how_they_were_started(tmp_path: Path) -> None:
    for pid, line in {
        "10": "/usr/bin/polymq\0nats-server\0-c\0f\0",
        "11": "python\0-m\0polymq.cli\0nats-server\0",
        "12": "python3\0/usr/bin/polymq\0nats-server\0",
        "20": "nats-server\0-c\0polymq\0",
        "21": "vi\0nats-server\0",
        "22": "polymq\0serve\0",
        "23": "",
        str(os.getpid()): "polymq\0nats-server\0--signal\0reload\0",
        "self": "polymq\0nats-server\0",
    }.items():
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cmdline").write_text(line)
    (tmp_path / "30").mkdir()
    assert servers(tmp_path) == [10, 11, 12]


@pytest.mark.parametrize(("found", "problem"), [([], "no polymq nats-server is running"), ([1, 2], "several servers are running: 1, 2")])
def test_without_a_process_there_must_be_one(
    sent: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch, found: list[int], problem: str
) -> None:
    monkeypatch.setattr(nats_signal, "servers", lambda _: found)
    with pytest.raises(ConfigError, match=problem):
        send("reload")
    monkeypatch.setattr(nats_signal, "servers", lambda _: [7])
    assert send("reload") == 7
    assert sent == [(7, signal.SIGHUP)]
