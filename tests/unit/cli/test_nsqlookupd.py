from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from polymq.cli.main import app
from polymq.cli.nsq_flags import Plan, read_arguments, usage
from polymq.cli.nsqlookupd import EXAMPLES, NSQLOOKUPD, plan
from polymq.config_values import TcpAddress
from polymq.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from polymq.config_sections import Settings

SECOND_NS = 10**9


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(*arguments: str, **environment: str) -> Plan:
    return plan(read_arguments(list(arguments), NSQLOOKUPD), environment=environment)


def test_without_flags_there_is_the_lookup_role_and_nothing_else() -> None:
    settings = made().settings
    assert settings.nsq.lookup_tcp == TcpAddress("0.0.0.0", 4160)
    assert settings.nsq.lookup_http == TcpAddress("0.0.0.0", 4161)
    assert (settings.nsq.tcp, settings.nsq.http, settings.nsq.https, settings.server.http) == (None, None, None, None)
    assert {"nsq.lookup_tcp", "nsq.lookup_http"} <= set(settings.origins), "asked for, so a port that is taken is an error"


def test_flags_and_file_reach_polymq(place: Path) -> None:
    (place / "lookup.cfg").write_text('tcp_address = "127.0.0.1:1"\ninactive_producer_timeout = 60000\ntombstone_lifetime = "30s"\n')
    settings = made("-config=lookup.cfg", "-tcp-address", "127.0.0.1:2", "-broadcast-address=me", "-log-level=WARN").settings
    assert (settings.nsq.lookup_tcp, settings.server.advertise, settings.server.log_level) == (TcpAddress("127.0.0.1", 2), "me", "warning")
    assert settings.nsq.lookup_inactive_producer_timeout_ns == 60 * SECOND_NS
    assert settings.nsq.lookup_tombstone_lifetime_ns == 30 * SECOND_NS
    assert made("-log-prefix=x").notes == ["-log-prefix=x has no meaning here: log lines name the part of polymq that writes them"]


def test_what_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        made("-tcp-adress=x", "-tombstone-lifetime=1", "--polymq-set=x")
    assert len(caught.value.problems) == 3
    assert caught.value.problems[0] == "-tcp-adress: there is no such flag; did you mean 'tcp-address'?"


def test_help_and_version_teach() -> None:
    assert CliRunner().invoke(app, ["nsqlookupd", "-h"]).stdout == usage(NSQLOOKUPD, EXAMPLES) + "\n"
    assert "in place of nsqlookupd v1.3.0" in CliRunner().invoke(app, ["nsqlookupd", "--version"]).stdout


@pytest.mark.parametrize("given", [True, False])
def test_it_keeps_nothing_unless_told_to(place: Path, monkeypatch: pytest.MonkeyPatch, given: bool) -> None:
    served: list[Path] = []

    def run(settings: Settings) -> int:
        assert given or settings.server.data.is_dir()
        served.append(settings.server.data)
        return 3

    monkeypatch.setattr("polymq.server.serve.run", run)
    arguments = ["--polymq-set=server.data=kept"] if given else []
    assert CliRunner().invoke(app, ["nsqlookupd", "-tcp-address=127.0.0.1:0", *arguments]).exit_code == 3
    assert not served[0].exists()
    assert (str(served[0]) == "kept") is given
