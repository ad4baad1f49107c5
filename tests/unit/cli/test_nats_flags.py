"""nats-server's flags, alone and over a file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from polymq.cli.nats_flags import NATS_SERVER, NatsPlan, plan, table
from polymq.cli.nsq_flags import read_arguments
from polymq.config_values import TcpAddress
from polymq.errors import ConfigError
from polymq.server.nats_settings import NatsServerSettings, RouteUrl, TlsSettings
from tests.project.layout import ROOT

if TYPE_CHECKING:
    from pathlib import Path

ANY = "0.0.0.0"
# What `nats-server --help` of 2.15.2 lists; 2.9.10 has a part of it.
UPSTREAM = [
    "a",
    "addr",
    "net",
    "p",
    "port",
    "n",
    "name",
    "server_name",
    "P",
    "pid",
    "m",
    "http_port",
    "ms",
    "https_port",
    "c",
    "config",
    "t",
    "sl",
    "signal",
    "client_advertise",
    "ports_file_dir",
    "l",
    "log",
    "T",
    "logtime",
    "logtime_utc",
    "s",
    "syslog",
    "r",
    "remote_syslog",
    "D",
    "debug",
    "V",
    "trace",
    "VV",
    "DV",
    "DVV",
    "log_size_limit",
    "max_traced_msg_len",
    "js",
    "jetstream",
    "sd",
    "store_dir",
    "user",
    "pass",
    "auth",
    "tls",
    "tlscert",
    "tlskey",
    "tlsverify",
    "tlscacert",
    "routes",
    "cluster",
    "cluster_name",
    "no_advertise",
    "cluster_advertise",
    "connect_retries",
    "cluster_listen",
    "profile",
    "h",
    "help",
    "v",
    "version",
    "help_tls",
]


def planned(*arguments: str) -> NatsPlan:
    return plan(read_arguments(list(arguments), NATS_SERVER), environment={})


def settings(*arguments: str) -> NatsServerSettings:
    return planned(*arguments).settings


def problems(*arguments: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        planned(*arguments)
    return caught.value.problems


def test_every_flag_is_known() -> None:
    known = NATS_SERVER.by_flag()
    assert {name for name in UPSTREAM if name not in known} == {"h", "help"}
    assert set(known) <= set(UPSTREAM)


def test_without_flags_everything_is_as_with_nats_server() -> None:
    assert planned() == NatsPlan(NatsServerSettings())


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        ("-p 4333", "listen", TcpAddress(ANY, 4333)),
        ("--port=-1", "listen", TcpAddress(ANY, 0)),
        ("-port 0", "listen", TcpAddress(ANY, 4222)),
        ("-a 127.0.0.1", "listen", TcpAddress("127.0.0.1", 4222)),
        ("--addr h --net i", "listen", TcpAddress("i", 4222)),
        ("-m 8222", "http", TcpAddress(ANY, 8222)),
        ("-a h --http_port 8222", "http", TcpAddress("h", 8222)),
        ("-n n1", "server_name", "n1"),
        ("--server_name n1", "server_name", "n1"),
        ("--client_advertise h:1", "client_advertise", TcpAddress("h", 1)),
        ("-P /run/n.pid", "pid_file", "/run/n.pid"),
        ("--log n.log", "log_file", "n.log"),
        ("-D", "debug", True),
        ("-DV", "debug", True),
        ("-D=false", "debug", False),
        ("--tlscert c --tlskey k", "tls", TlsSettings("c", "k")),
        ("--tls --tlscert c --tlskey k --tlscacert a --tlsverify", "tls", TlsSettings("c", "k", "a", verify=True)),
        ("--tls=false --tlscert c", "tls", None),
    ],
)
def test_flags(arguments: str, field: str, value: object) -> None:
    assert getattr(settings(*arguments.split()), field) == value


def test_who_may_log_in() -> None:
    said = settings("--user", "u", "--pass", "p").authorization
    assert (said.user, said.password, said.token) == ("u", "p", "")
    assert settings("--auth", "t").authorization.token == "t"


def test_a_cluster() -> None:
    made = settings(
        "--cluster", "nats://u:p%40w@127.0.0.1:6222", "--cluster_name", "c1", "--routes", "nats-route://a:1, nats://b:2,nats://b:2", "--no_advertise",
        "--cluster_advertise", "me", "--connect_retries", "3",
    ).cluster  # fmt: skip
    assert made is not None
    assert (made.name, made.listen, made.advertise) == ("c1", TcpAddress("127.0.0.1", 6222), TcpAddress("me", 0))
    assert (made.user, made.password, made.no_advertise, made.connect_retries) == ("u", "p@w", True, 3)
    assert made.routes == (RouteUrl("a", 1), RouteUrl("b", 2))
    made = settings("--cluster_listen", "nats://h:-1").cluster
    assert made is not None
    assert (made.listen, made.user) == (TcpAddress("h", 0), "")


FILE = """
listen: 127.0.0.1:4333
http: localhost:8222
debug: true
server_name: from_file
authorization { user: file, password: file, timeout: 7 }
tls { cert_file: c, key_file: k }
cluster {
  name: c0, listen: 127.0.0.1:6222, routes: [nats://a:1], pool_size: -1, connect_retries: 9
  authorization { user: cu, password: cp, timeout: 8 }
}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "server.conf"
    path.write_text(FILE)
    return str(path)


def test_flags_win_over_the_file(file: str) -> None:
    first = settings("-c", file)
    assert (first.listen, first.http) == (TcpAddress("127.0.0.1", 4333), TcpAddress("localhost", 8222))
    second = settings(
        "-c", file, "-p", "1", "-m", "2", "-D=false", "-n", "n", "--auth", "t", "--tls=false", "--cluster", "nats://h:3", "--routes", ""
    )
    assert (second.listen, second.http, second.debug, second.server_name) == (
        TcpAddress("127.0.0.1", 1),
        TcpAddress("localhost", 2),
        False,
        "n",
    )
    assert (second.authorization.user, second.authorization.token, second.authorization.timeout_ns) == ("", "t", 7 * 10**9)
    assert second.tls is None
    assert first.cluster is not None
    assert second.cluster is not None
    assert (first.cluster.user, second.cluster.user) == ("cu", ""), "an address without a user takes the file's away"
    assert (second.cluster.listen, second.cluster.routes, second.cluster.connect_retries) == (TcpAddress("h", 3), (), 9)
    assert second.cluster.auth_timeout_ns == 8 * 10**9
    assert settings("--config", file, "--pass", "other").authorization.password == "other"
    third = settings("-c", file, "--cluster", "", "--user", "x")
    assert third.cluster is not None
    assert (third.cluster.listen, third.authorization.user) == (None, "x")


def test_only_looking_at_the_file(file: str) -> None:
    assert planned("-t", "-c", file).check_only
    assert not planned("-t=false", "-c", file).check_only
    assert problems("-t") == ("-t: there is no file to look at; name it by -c",)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("-p many", "-p: expected a whole number"),
        ("-p 70000", "-p: expected a port from 0 to 65535, or -1 for any"),
        ("-prt 1", "-prt: there is no such flag; did you mean 'port'?"),
        ("serve", "'serve' is not a flag; nats-server knows no such command"),
        ("-D maybe", "'maybe' is not a flag; nats-server knows no such command"),
        ("--no_advertise true", "'true' is not a flag; nats-server knows no such command: write -flag=value for switches as well"),
        ("-D=maybe", "-D: expected true or false"),
        ("-c", "-c: its value is missing"),
        (
            "-ms 8443",
            "-ms: polymq does not serve this (the monitoring pages are there over plain HTTP; see -m); leave it out to do without",
        ),
        ("-js", "-js: polymq does not serve this (it has no JetStream of its own)"),
        ("--store_dir x", "-sd: polymq does not serve this (it has no JetStream of its own)"),
        ("--profile 6060", "--profile: polymq does not serve this"),
        ("-s", "-s: polymq does not serve this (it writes its log to a file, or to standard error)"),
        ("--tls", "--tls: --tlscert and --tlskey are both needed"),
        ("--tlsverify --tlscert c", "--tls: --tlscert and --tlskey are both needed"),
        ("--pass p", "--pass: whose password is this? --user is missing"),
        ("--user u --auth t", "--user, --auth: a single user and a token exclude each other; keep one of them"),
        ("--routes nats://a:1", "--routes: this server must listen for others as well; add --cluster nats://HOST:PORT"),
        ("--cluster nats://h:1 --routes a:1", "--routes: expected nats-route://HOST:PORT"),
        ("--cluster h:1", "--cluster: expected nats://HOST:PORT, or nats://USER:PASSWORD@HOST:PORT"),
        ("--cluster nats://h", "--cluster: expected nats://HOST:PORT"),
        ("--cluster nats://u@h:1", "--cluster: expected nats://HOST:PORT"),
        ("--cluster nats://h:1/x", "--cluster: expected nats://HOST:PORT"),
        ("--connect_retries -1", "--connect_retries: expected a number from 0 on"),
        ("--client_advertise a:b:c", "--client_advertise: expected a port"),
        ("-c /nonexistent/server.conf", "/nonexistent/server.conf: there is no such file"),
    ],
)
def test_what_is_wrong(arguments: str, said: str) -> None:
    (problem,) = problems(*arguments.split())
    assert problem[: len(said)] == said


def test_names_have_no_blanks() -> None:
    assert problems("-n", "a b") == ("-n: expected a name without blanks",)
    assert problems("--cluster_name", "a b") == ("--cluster_name: expected a name without blanks",)


def test_a_list_of_users_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text("authorization { users: [{ user: a, password: b }] }")
    (problem,) = problems("-c", str(path), "--user", "u")
    assert re.fullmatch(r"--user: the list of users in the file \(.*server.conf:1\) excludes a single user and a token", problem)


def test_what_is_wrong_with_the_file_is_told_as_well(tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text("prot: 1\nmax_payload: 9MB")
    found = problems("-c", str(path), "-p", "x", "-js")
    assert [problem.partition(": ")[0].rpartition("/")[2] for problem in found] == ["-p", "server.conf:1", "server.conf:2", "-js"]


def test_what_has_no_meaning_is_noted() -> None:
    notes = settings("-V", "-T=false", "--max_traced_msg_len", "5").notes
    assert notes == (
        "-V has no meaning here: what passes is not written to the log",
        "-T has no meaning here: every line of the log has its time",
        "--max_traced_msg_len has no meaning here: what passes is not written to the log",
    )
    assert settings("-V=false", "-T", "--log_size_limit", "0", "-s=false").notes == ()


def test_secrets_are_not_shown() -> None:
    for arguments in (
        "--cluster nats://u:planted@h:x",
        "--cluster nats://h:1 --routes nats://u:planted@a:x",
        "--user u --pass planted --auth planted",
        "--pass planted",
    ):
        assert "planted" not in "".join(problems(*arguments.split()))
    assert "planted" not in repr(planned("--user", "u", "--pass", "planted", "--cluster", "nats://u:planted@h:1"))


def test_the_table_of_the_documents_is_the_one_that_is_followed() -> None:
    assert table() in ROOT.joinpath("docs", "FROM_NATS_SERVER.md").read_text(encoding="utf-8"), (
        "python -c 'from polymq.cli.nats_flags import table; print(table())' writes it again"
    )
