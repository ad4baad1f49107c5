"""`polymq nats-server`: nats-server's flags and file, as a process of polymq's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from polymq.cli import nats_signal
from polymq.cli.main import app
from polymq.cli.nats_flags import NATS_SERVER, usage
from polymq.cli.nats_server import EXAMPLES, NatsServerPlan, plan
from polymq.cli.nsq_flags import read_arguments
from polymq.config_values import TcpAddress
from polymq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from polymq.config_sections import Settings
    from polymq.server.nats_settings import NatsServerSettings


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(*arguments: str, **environment: str) -> NatsServerPlan:
    return plan(read_arguments(list(arguments), NATS_SERVER), environment=environment)


def test_without_flags_there_are_natss_ports_and_no_others() -> None:
    done = made()
    settings = done.settings
    assert done.nats.settings.listen == TcpAddress("0.0.0.0", 4222)
    assert (settings.nsq.tcp, settings.nsq.http, settings.nsq.lookup_tcp, settings.nsq.lookup_http) == (None,) * 4
    assert (settings.server.http, str(settings.server.data), settings.server.log_level) == (None, "polymq-data", "info")
    assert [note.partition(";")[0] for note in done.notes] == ["the data is in polymq-data"]


def test_flags_file_and_polymqs_own(place: Path) -> None:
    (place / "s.conf").write_text("port: 4333\nserver_name: file\nsyslog: false\n")
    done = made("-c", "s.conf", "-n", "flag", "-D", "-T", "--polymq-set", "server.data=kept", "--polymq-set", "nsq.tcp=127.0.0.1:4150")
    assert (done.nats.settings.listen.port, done.nats.settings.server_name) == (4333, "flag")
    assert (str(done.settings.server.data), done.settings.nsq.tcp) == ("kept", TcpAddress("127.0.0.1", 4150))
    assert done.settings.server.log_level == "debug"
    assert done.notes == []
    assert made("-V", "--polymq-set=server.data=x").notes == ["-V has no meaning here: what passes is not written to the log"]
    assert made(POLYMQ_SERVER_DATA="there").notes == []


def test_what_is_wrong_is_said_at_once(place: Path) -> None:
    (place / "s.conf").write_text("prot: 4333\n")
    with pytest.raises(ConfigError) as caught:
        made("-c", "s.conf", "--cluster_nmae=x", "--polymq-set=x", "-js", POLYMQ_STORE_DURABILITY="x")
    found = caught.value.problems
    assert len(found) == 5
    assert any("did you mean 'cluster_name'" in each for each in found)
    assert any("s.conf:1: prot: nats-server has no such key" in each for each in found)


def test_help_and_version_teach() -> None:
    for flag in ("-h", "--help", "--help_tls"):
        assert CliRunner().invoke(app, ["nats-server", flag]).stdout == usage(EXAMPLES) + "\n"
    for flag in ("-v", "--version"):
        assert "in place of nats-server v2." in CliRunner().invoke(app, ["nats-server", flag]).stdout


def test_the_help_names_every_flag_and_what_it_is_for() -> None:
    text = usage(EXAMPLES)
    for name in NATS_SERVER.by_flag():
        assert f"-{name}" in text
    assert "\n      \n" not in text, "a flag without an explanation"


def run_with(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[list[NatsServerSettings | None], int, str]:
    served: list[NatsServerSettings | None] = []

    def run(settings: Settings, *, nats: NatsServerSettings | None = None, reread: Callable[[], NatsServerSettings]) -> int:
        served.append(nats)
        assert reread() == nats
        return 3

    monkeypatch.setattr("polymq.server.serve.run", run)
    result = CliRunner().invoke(app, ["nats-server", *arguments])
    return served, result.exit_code, result.stderr


def test_it_serves_with_what_it_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    served, status, said = run_with(monkeypatch, "-p", "4333", "-P", "pid")
    assert status == 3
    assert served[0] is not None
    assert (served[0].listen.port, served[0].pid_file) == (4333, "pid")
    assert said.startswith("polymq: the data is in polymq-data")


def test_a_file_can_be_looked_at(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "s.conf").write_text("port: 4333\n")
    served, status, said = run_with(monkeypatch, "-t", "-c", "s.conf")
    assert (served, status) == ([], 0)
    assert said.endswith("polymq: configuration file s.conf is valid\n")


def test_the_files_that_it_names_are_looked_at_as_well(place: Path) -> None:
    (place / "s.conf").write_text('port: 4333\ntls {\n  cert_file: "no.pem"\n  key_file: "s.conf"\n}\n')
    result = CliRunner().invoke(app, ["nats-server", "-t", "-c", "s.conf"])
    assert "is valid" not in result.stderr
    assert isinstance(result.exception, ConfigError)
    one, other = result.exception.problems
    assert one.startswith("s.conf:3: tls.cert_file: no.pem cannot be read: No such file or directory")
    assert other.startswith("s.conf:4: tls.key_file: there is no private key in s.conf")


def test_a_running_server_can_be_told_something(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    monkeypatch.setattr(nats_signal, "send", sent.append)
    for arguments in (("--signal", "reload=42"), ("-sl", "stop"), ("--signal=ldm",)):
        assert run_with(monkeypatch, *arguments)[:2] == ([], 0)
    assert sent == ["reload=42", "stop", "ldm"]
