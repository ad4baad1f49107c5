from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from polymq.cli.main import app
from polymq.cli.nsq_flags import Plan, Program, read_arguments, usage
from polymq.cli.nsqd import EXAMPLES, NSQD, plan
from polymq.cli.nsqd_options import OPTIONS, Kind, Option
from polymq.config_values import TcpAddress, UnixAddress
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
    return plan(read_arguments(list(arguments), NSQD), environment=environment)


def problems(*arguments: str, **environment: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        made(*arguments, **environment)
    return list(caught.value.problems)


def test_everything_that_is_wrong_is_said_at_once(place: Path) -> None:
    file = place / "nsqd.cfg"
    file.write_text('msg_timeout = "x"\nmem_queue_sise = 1\n')
    found = problems("-bogus=1", "-max-msg-size=x", "-max-rdy-count=0", f"-config={file}", "-polymq-set=a.b", POLYMQ_STORE_DURABILITY="x")
    assert len(found) == 7
    assert "-bogus: there is no such flag" in found
    assert "-max-msg-size=x: expected a whole number" in found
    assert "-max-rdy-count=0: expected a whole number from 1 to 1000000" in found
    assert f"""{file}: msg_timeout = 'x': expected a time with its unit, such as "250ms" or "1h30m\"""" in found
    assert f"{file}: nsqd has no setting 'mem_queue_sise'; did you mean 'mem_queue_size'?" in found
    assert any("--polymq-set a.b" in problem for problem in found)
    assert any("POLYMQ_STORE_DURABILITY" in problem for problem in found)


# -- what comes of it --------------------------------------------------------------------------------------------------


def test_without_flags_it_listens_where_nsqd_does_and_nowhere_else() -> None:
    done = made()
    settings = done.settings
    assert (settings.nsq.tcp, settings.nsq.http) == (TcpAddress("0.0.0.0", 4150), TcpAddress("0.0.0.0", 4151))
    assert (settings.nsq.https, settings.nsq.lookup_tcp, settings.nsq.lookup_http, settings.server.http) == (None, None, None, None)
    assert str(settings.server.data) == "polymq-data"
    assert "no -data-path is given: the data is in polymq-data" in done.notes
    assert any("--polymq-set server.http" in note for note in done.notes)


def test_settings_reach_polymq() -> None:
    settings = made(
        "-tcp-address=127.0.0.1:5150",
        "-http-address=/run/http.sock",
        "-data-path=/var/lib/x",
        "-broadcast-address=me",
        "-log-level=FATAL",
        "-msg-timeout=90s",
        "-max-msg-size=1000",
        "-sync-timeout=500ms",
        "-max-output-buffer-timeout=1s",
    ).settings
    assert settings.nsq.tcp == TcpAddress("127.0.0.1", 5150)
    assert settings.nsq.http == UnixAddress("/run/http.sock")
    assert str(settings.server.data) == "/var/lib/x"
    assert (settings.server.advertise, settings.server.log_level) == ("me", "error")
    assert (settings.nsq.msg_timeout_ns, settings.nsq.max_msg_size_bytes) == (90 * SECOND_NS, 1000)
    assert settings.store.sync_interval_ns == SECOND_NS // 2
    assert settings.store.durability == "cache"


@pytest.mark.parametrize(
    ("flag", "field", "value"),
    [
        ("-msg-timeout=500ms", "msg_timeout_ns", SECOND_NS // 2),
        ("-msg-timeout=20m", "msg_timeout_ns", 1200 * SECOND_NS),  # more than a client may ask for
        ("-max-msg-timeout=48h", "max_msg_timeout_ns", 48 * 3600 * SECOND_NS),
        ("-max-msg-timeout=1s", "max_msg_timeout_ns", SECOND_NS),
        ("-max-msg-size=6291456", "max_msg_size_bytes", 6 << 20),  # more than a body may have
        ("-output-buffer-timeout=0", "output_buffer_timeout_ns", 0),
        ("-output-buffer-timeout=2h", "output_buffer_timeout_ns", 7200 * SECOND_NS),
        ("-min-output-buffer-timeout=0", "min_output_buffer_timeout_ns", 0),
        ("-max-heartbeat-interval=500ms", "max_heartbeat_interval_ns", SECOND_NS // 2),
        ("-max-req-timeout=9000h", "max_req_timeout_ns", 9000 * 3600 * SECOND_NS),
        ("-e2e-processing-latency-window-time=500ms", "e2e_processing_latency_window_time_ns", SECOND_NS // 2),
    ],
)
def test_numbers_that_nsqd_takes_are_taken(flag: str, field: str, value: int) -> None:
    assert getattr(made(flag).settings.nsq, field) == value


def test_a_text_may_have_commas_in_it(place: Path) -> None:
    urls = ("http://h/who?of=a,b", "h:1")
    assert made(*[f"-auth-http-address={url}" for url in urls]).settings.nsq.auth_http_addresses == urls
    (place / "nsqd.cfg").write_text(f"auth_http_addresses = {list(urls)}")
    assert made("-config=nsqd.cfg").settings.nsq.auth_http_addresses == urls
    (place / "nsqd.cfg").write_text('auth_http_addresses = "h:1,h:2"')
    assert made("-config=nsqd.cfg").settings.nsq.auth_http_addresses == ("h:1", "h:2")
    assert any("-enable-experiment=x -enable-experiment=y" in note for note in made("-enable-experiment=x", "-enable-experiment=y").notes)


def test_syncs_may_be_close_together() -> None:
    assert made("-sync-timeout=2ms").settings.store.sync_interval_ns == 2_000_000


@pytest.mark.parametrize("flag", ["-msg-timeout=0", "-sync-timeout=0", "-max-msg-size=8388609", "-min-output-buffer-timeout=31s"])
def test_numbers_that_make_no_sense_here_are_refused(flag: str) -> None:
    assert len(problems(flag)) == 1


def test_flags_win_over_the_file_and_that_over_polymqs_own_settings(place: Path) -> None:
    (place / "nsqd.cfg").write_text('msg_timeout = "70s"\nmax-msg-timeout = "20m"\nmax_rdy_count = 7\nid = 5\n')
    (place / "own.toml").write_text('[nsq]\nmsg_timeout = "80s"\nmax_rdy_count = 8\nmax_channel_consumers = 9\ntcp = "127.0.0.1:1"\n')
    (place / "polymq.toml").write_text("[nsq]\nmax_channel_consumers = 77\n")
    arguments = ["-config", "nsqd.cfg", "-msg-timeout=1m", "-msg-timeout=75s", "-polymq-config=own.toml"]
    settings = made(*arguments, POLYMQ_NSQ_MAX_CHANNEL_CONSUMERS="10", POLYMQ_SERVER_HTTP="127.0.0.1:2").settings
    nsq = settings.nsq
    assert (nsq.msg_timeout_ns, nsq.max_msg_timeout_ns, nsq.max_rdy_count) == (75 * SECOND_NS, 1200 * SECOND_NS, 7)
    assert (nsq.max_channel_consumers, nsq.tcp, settings.server.http) == (10, TcpAddress("127.0.0.1", 1), TcpAddress("127.0.0.1", 2))
    assert made("-polymq-set=nsq.max_rdy_count=3").settings.nsq.max_rdy_count == 3
    assert made().settings.nsq.max_channel_consumers == 0, "polymq.toml of the working folder is not read"


def test_a_file_that_cannot_be_read_is_a_problem(place: Path) -> None:
    assert "cannot be read" in problems("-config=nowhere.cfg")[0]
    (place / "bad.cfg").write_text("= 1")
    assert "cannot be read" in problems("-config=bad.cfg")[0]
    assert made("-config=").settings


def test_giving_nothing_is_as_with_nsqd() -> None:
    settings = made("-data-path=", "-http-address=", "-broadcast-address=", "-tls-min-version=").settings
    assert (str(settings.server.data), settings.nsq.http, settings.server.advertise) == ("polymq-data", None, "")


def test_what_has_no_meaning_is_accepted_and_said() -> None:
    notes = made("-mem-queue-size=0", "-sync-every=100", "-node-id=7", "-queue-scan-selection-count=20").notes
    assert notes[0].startswith("-node-id=7 has no meaning here: message ids are places in the log")
    assert notes[1].startswith("-mem-queue-size=0 has no meaning here: every message is in the log's files")
    assert notes[2].startswith("-sync-every=100 has no meaning here: 1 is fsync")
    assert not any("queue-scan" in note for note in notes), "nsqd's default needs no note"


def test_syncing_every_message_is_durability() -> None:
    assert made("-sync-every=1").settings.store.durability == "fsync"
    assert made("-sync-every=2500").settings.store.durability == "cache"


def test_what_is_not_served_is_refused_unless_it_changes_nothing() -> None:
    new = (Option("new-thing", Kind.TEXT, "", "nsq.new_thing"), Option("new-detail", Kind.TEXT, "x", "nsq.new_detail", alone=True))
    program = Program("nsqd", (*OPTIONS, *new), NSQD.defaults)

    def asked(*arguments: str) -> Plan:
        return plan(read_arguments(list(arguments), program), environment={}, program=program)

    with pytest.raises(ConfigError) as caught:
        asked("-new-thing=yes")
    assert caught.value.problems == (
        "-new-thing=yes: this version of polymq does not serve this, so it is refused; leave it out to do without",
    )
    assert asked("-new-thing=", "-new-detail=y").settings
    assert "not served by this version; refused when it is set" in usage(program, EXAMPLES)
    assert "not served by this version; means nothing by itself" in usage(program, EXAMPLES)


def test_ports_that_are_told_to_others_must_be_the_own() -> None:
    assert made("-broadcast-tcp-port=4150", "-http-address=:99", "-broadcast-http-port=99").settings


def test_https_needs_a_certificate() -> None:
    done = made("-https-address=0.0.0.0:4152")
    assert done.settings.nsq.https is None
    assert any("-https-address: nothing listens there" in note for note in done.notes)


@pytest.mark.parametrize("name", ["nsqd.dat", "t:c.diskqueue.000000.dat"])
def test_a_folder_of_nsqds_is_not_served_in_silence(place: Path, name: str) -> None:
    (place / "nsq").mkdir()
    (place / "nsq" / name).write_text("{}")
    assert problems("-data-path=nsq") == [
        "nsq has the data of an nsqd. Take it over first: polymq import nsqd nsq --data NEW, then -data-path=NEW"
    ]
    (place / "nsq" / "FORMAT").write_text("")
    assert made("-data-path=nsq").settings
    assert made().settings
    (place / name).write_text("{}")
    assert problems()[0].startswith(". has the data of an nsqd"), "nsqd's default is the working folder"
    assert made("-data-path=elsewhere").settings


# -- the command -------------------------------------------------------------------------------------------------------


def test_help_and_version_teach() -> None:
    for flag in ("-h", "--help", "-help"):
        done = CliRunner().invoke(app, ["nsqd", flag])
        assert done.exit_code == 0
        assert done.stdout == usage(NSQD, EXAMPLES) + "\n"
        assert all(f"  -{option.flag}" in done.stdout for option in OPTIONS)
    done = CliRunner().invoke(app, ["nsqd", "-version"])
    assert "in place of nsqd v1.3.0" in done.stdout


def test_it_serves_and_says_what_it_does_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Settings] = []

    def run(settings: Settings) -> int:
        served.append(settings)
        return 3

    monkeypatch.setattr("polymq.server.serve.run", run)
    monkeypatch.setattr(os, "environ", {})
    done = CliRunner().invoke(app, ["nsqd", "-tcp-address", "127.0.0.1:0", "--mem-queue-size=0"])
    assert done.exit_code == 3
    assert served[0].nsq.tcp == TcpAddress("127.0.0.1", 0)
    assert "polymq: --mem-queue-size" not in done.stderr
    assert "polymq: -mem-queue-size=0 has no meaning here" in done.stderr
