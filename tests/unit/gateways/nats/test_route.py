from __future__ import annotations

import logging
from typing import Any

import pytest

from polymq.gateways.contract import HANDSHAKE_TIMEOUT
from polymq.gateways.effects import Ask, Upgrade
from polymq.gateways.login import PasswordCheck
from polymq.gateways.nats import cluster as cluster_module
from polymq.protocols.nats.info import parse_info
from tests.unit.gateways.nats.route_world import SECOND_NS, Wanted, World, connect_line, info_line

JOINED = (connect_line(), info_line())


@pytest.fixture
def world() -> World:
    return World()


# -- the beginning -------------------------------------------------------------------------------------------------


def test_who_dials_says_connect_and_info_at_once(world: World) -> None:
    server = world.server()
    stranger = world.stranger(server, wanted=Wanted(user="u", password="p"))
    lines = stranger.end.take().splitlines(keepends=True)
    assert lines[0] == (
        b'CONNECT {"echo":true,"verbose":false,"pedantic":false,"user":"u","pass":"p","tls_required":false,"headers":true,'
        b'"name":"NA","cluster":"c1"}\r\n'
    )
    assert lines[1].startswith(b'INFO {"server_id":"NA","server_name":"A","version":"2.12.0","proto":2,')
    assert lines[1].endswith(b"} \r\n")
    assert len(lines) == 2
    # What nobody may say who wants plain RS+ and RMSG, on one connection.
    assert not any(word in lines[1] for word in (b"lnoc", b"route_pool", b"compression", b"jetstream", b"nonce"))


def test_who_is_dialled_says_info_at_once(world: World) -> None:
    stranger = world.stranger(world.server(user="u", password="p"))
    (line,) = stranger.infos()
    info = parse_info(line[5:].strip())
    assert info is not None
    assert (info.server_id, info.port, info.headers, info.auth_required, info.cluster) == ("NA", 6222, True, True, "c1")


def test_it_is_a_route_once_the_other_has_said_info(world: World) -> None:
    server = world.server()
    server.listener().listen(b"foo")
    stranger = world.stranger(server)
    stranger.send(connect_line())
    assert server.cluster.routes == {}
    assert stranger.heard() == b""
    stranger.send(info_line())
    assert list(server.cluster.routes) == ["NX"]
    assert stranger.heard() == b"RS+ $G foo\r\n"


def test_whoever_is_dialled_need_not_say_connect(world: World) -> None:
    server = world.server()
    wanted = Wanted()
    stranger = world.stranger(server, wanted=wanted)
    stranger.send(info_line(), b"RS+ $G foo\r\n")
    assert wanted.told == [("settled", "NX")]
    server.publish(b"foo", b"1")
    assert stranger.heard() == b"RMSG $G foo 1\r\n1\r\n"


@pytest.mark.parametrize("first", [b"PING\r\n", info_line(), b"RS+ $G foo\r\n", b"RMSG $G foo 0\r\n\r\n"])
def test_connect_comes_first(world: World, first: bytes) -> None:
    stranger = world.stranger(world.server())
    stranger.send(first)
    assert stranger.heard() == b"-ERR 'Authorization Violation'\r\n"
    assert stranger.closed == "Authentication Failure"


@pytest.mark.parametrize(
    ("connect", "error", "reason"),
    [
        (b'CONNECT {"lang":"go","cluster":"c1"}\r\n', b"attempted to connect to route port", "Incorrect Port"),
        (b'CONNECT {"gateway":"G1","cluster":"c1"}\r\n', b'Rejecting connection from gateway "G1" on the Route port', "Wrong Gateway"),
        (connect_line(cluster="c2"), b'Rejecting connection, cluster name "c2" does not match "c1"', "Cluster Name Conflict"),
        (connect_line(cluster=""), b'Rejecting connection, cluster name "" does not match "c1"', "Cluster Name Conflict"),
        (b'CONNECT {"account":"A","cluster":"c1"}\r\n', b"Authorization Violation", "Authentication Failure"),
        (b'CONNECT {"new_account":true,"cluster":"c1"}\r\n', b"Authorization Violation", "Authentication Failure"),
        (b"CONNECT {\r\n", b"", "Protocol Violation"),
    ],
)
def test_what_a_connect_may_not_say(world: World, connect: bytes, error: bytes, reason: str) -> None:
    stranger = world.stranger(world.server())
    stranger.send(connect)
    assert stranger.heard() == (b"-ERR '%b'\r\n" % error if error else b"")
    assert stranger.closed == reason


@pytest.mark.parametrize(
    ("info", "error", "reason"),
    [
        (info_line(cluster="c2"), b"", "Cluster Name Conflict"),
        (info_line("A"), b"", "Duplicate Route"),
        (info_line(server_name="A"), b"", "Duplicate Server Name"),
        (b"INFO {\r\n", b"", "Protocol Violation"),
        (info_line(route_account="A1"), b'Unable to lookup account "A1": account missing', "Protocol Violation"),
        (
            info_line(route_account="$SYS"),
            b'Not possible to have a dedicated route for account "$SYS" between those servers',
            "Protocol Violation",
        ),
        (info_line(compression="zip"), b'unsupported route compression mode "zip"', "Protocol Violation"),
    ],
)
def test_what_an_info_may_not_say(world: World, info: bytes, error: bytes, reason: str) -> None:
    server = world.server()
    stranger = world.stranger(server)
    stranger.send(connect_line(), info)
    assert stranger.heard() == (b"-ERR '%b'\r\n" % error if error else b"")
    assert stranger.closed == reason
    assert server.cluster.routes == {}
    assert server.cluster.connections == {}


def test_what_an_info_may_leave_out(world: World) -> None:
    server = world.server()
    stranger = world.stranger(server)
    stranger.send(connect_line("NY"), b'INFO {"cluster":""}\r\n', b"PING\r\n")
    assert stranger.heard() == b"PONG\r\n"
    assert list(server.cluster.routes) == ["NY"]


def test_an_id_has_to_be_said_somewhere(world: World) -> None:
    stranger = world.stranger(world.server())
    stranger.send(connect_line(""), b"INFO {}\r\n")
    assert stranger.closed == "Protocol Violation"


@pytest.mark.parametrize(
    ("user", "password", "good"), [("u", "p", True), ("u", "q", False), ("v", "p", False), ("", "", False), ("ü", "p", False)]
)
def test_who_dials_has_to_know_the_password(world: World, user: str, password: str, good: bool) -> None:
    stranger = world.stranger(world.server(user="u", password="p"))
    stranger.send(connect_line(user=user, password=password))
    assert stranger.closed == (None if good else "Authentication Failure")
    assert stranger.heard() == (b"" if good else b"-ERR 'Authorization Violation'\r\n")


def test_who_says_nothing_has_so_much_time(world: World) -> None:
    server = world.server(user="u", password="p", auth_timeout_ns=SECOND_NS // 2)
    stranger, good = world.stranger(server), world.stranger(server)
    good.send(connect_line(user="u", password="p"))
    world.pass_time(SECOND_NS // 2)
    assert stranger.heard() == b"-ERR 'Authentication Timeout'\r\n"
    assert stranger.closed == "Authentication Timeout"
    assert good.closed is None


def test_tls_comes_before_everything(world: World) -> None:
    layer: Any = object()
    stranger = world.stranger(world.server(make_tls=lambda: layer))
    assert stranger.end.effects == [Upgrade(layer)]
    stranger.end.call("upgraded")
    (line,) = stranger.infos()
    assert b'"tls_required":true,"tls_verify":true' in line
    dialled = world.stranger(world.servers[0], wanted=Wanted())
    said = dialled.end.take()
    assert b'"tls_required":true' in said
    dialled.end.call("upgraded")
    assert dialled.end.take() == b""


@pytest.mark.parametrize("reason", [HANDSHAKE_TIMEOUT, "wrong"])
def test_tls_that_fails(world: World, reason: str) -> None:
    stranger = world.stranger(world.server(make_tls=lambda: object()))
    stranger.end.call("upgrade_failed", reason)
    assert stranger.end.take() == b""


def test_connections_that_say_nothing_are_few(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that has been silent for longest makes way, so that they keep no server out; those that are routes do not count."""
    monkeypatch.setattr(cluster_module, "ROUTES_WAITING_MAX", 2)
    server = world.server()
    good = world.joined(server)
    silent = [world.stranger(server) for _ in range(4)]
    world.run()
    assert [stranger.closed for stranger in silent] == ["Maximum Connections Exceeded"] * 2 + [None, None]
    assert silent[0].end.at_once
    late = world.joined(server, "LATE")
    assert [stranger.closed for stranger in (good, late)] == [None, None]
    silent[3].end.end()
    world.stranger(server)
    world.run()
    assert silent[2].closed == "Maximum Connections Exceeded"
    assert set(server.cluster.routes) == {"NX", "NLATE"}


# -- lines that are wrong, and lines that mean nothing ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "said", "reason"),
    [
        (b"XYZ\r\n", b"Unknown Protocol Operation", "Protocol Violation"),
        (b"\r\n", b"Unknown Protocol Operation", "Protocol Violation"),
        (b" PING\r\n", b"Unknown Protocol Operation", "Protocol Violation"),
        (b"MSG foo 1 5\r\nhello\r\n", b"Unknown Protocol Operation", "Protocol Violation"),
        (b"RMSG $G foo 5\r\nhelloXX\r\n", b"Unknown Protocol Operation", "Protocol Violation"),
        (b"RS+ $G " + b"a" * 70_000 + b"\r\n", b"maximum control line exceeded", "Maximum Control Line Exceeded"),
        (b"RS+ $G\r\n", b"", "Protocol Violation"),
        (b"RS+ $G foo q\r\n", b"", "Protocol Violation"),
        (b"RS+ $G foo q 1 2\r\n", b"", "Protocol Violation"),
        (b"RS- $G\r\n", b"", "Protocol Violation"),
        (b"RS- $G foo q 1\r\n", b"", "Protocol Violation"),
        (b"LS+ $G foo\r\n", b"", "Protocol Violation"),
        (b"RMSG $G foo xx\r\n", b"", "Protocol Violation"),
        (b"RMSG $G 5\r\n", b"", "Protocol Violation"),
        (b"RMSG $G foo a b 5\r\nhello\r\n", b"", "Protocol Violation"),
        (b"HMSG $G foo 9 5\r\nhello\r\n", b"", "Protocol Violation"),
        (b"-ERR 'x'\r\n", b"", "Parse Error"),
    ],
)
def test_a_line_that_ends_a_route(world: World, line: bytes, said: bytes, reason: str) -> None:
    server = world.server()
    stranger = world.joined(server)
    stranger.send(line)
    assert stranger.heard() == (b"-ERR '%b'\r\n" % said if said else b"")
    assert stranger.closed == reason
    assert server.cluster.routes == {}


@pytest.mark.parametrize(
    "line",
    [
        b"RS+ $G foo..bar\r\n",  # nats-server says 'Invalid Subscription', and hangs up on hearing it
        b"RS+ $G a.>.b\r\n",
        b"RS+ NONE foo\r\n",
        b"RS- NONE foo\r\n",
        b"RS- $G nothing\r\n",
        b"RS+ $G foo q xx\r\n",
        b"RS+ $G foo q 0\r\n",
        b"RMSG NONE foo 5\r\nhello\r\n",
        b"RMSG $SYS foo 5\r\nhello\r\n",
        b"RMSG $G foo + r 5\r\nhello\r\n",
        b"SUB foo 1\r\n",
        b"PUB foo 5\r\nhello\r\n",
        b"A+ $G\r\nA- $G\r\n",
        b"LMSG leaf $G foo 0 5\r\nhello\r\n",
        b"+OK\r\n",
        connect_line(),
        b'INFO {"server_id":"NG","gateway":"G"}\r\n',
        b'INFO {"server_id":"NZ"}\r\n',
        info_line(compression="s2_fast"),
    ],
)
def test_a_line_that_means_nothing(world: World, line: bytes) -> None:
    server = world.server()
    stranger = world.joined(server)
    stranger.send(line, b"PING\r\n")
    assert stranger.heard() == b"PONG\r\n"
    assert stranger.closed is None
    assert server.publish(b"foo") == 1


def test_who_wants_an_answer_to_everything_gets_it(world: World) -> None:
    stranger = world.stranger(world.server())
    stranger.send(connect_line(verbose=True), info_line(), b"RS+ $G foo\r\nRS- $G foo\r\n", b"RMSG $G foo 0\r\n\r\nRMSG $G foo 0\r\n\r\n")
    assert stranger.heard() == b"+OK\r\n" * 4


def test_an_error_on_a_route_that_never_was_is_no_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    stranger = world.stranger(world.server())
    stranger.send(connect_line(), b"-ERR 'Not possible to have a dedicated route'\r\n")
    assert caplog.records == []
    assert stranger.closed == "Parse Error"
    world.joined(world.servers[0]).send(b"-ERR 'x'\r\n")
    assert len(caplog.records) == 1


def test_a_request_for_an_account_of_its_own_is_answered(world: World) -> None:
    stranger = world.joined(world.server())
    stranger.infos()
    stranger.send(info_line(route_acc_add_reqid="r1", route_account="A1"))
    (line,) = stranger.infos()
    assert b'"route_acc_add_reqid":"r1"' in line
    assert b"route_account" not in line


# -- time and the end ------------------------------------------------------------------------------------------------


def test_a_route_is_pinged_whatever_it_says(world: World) -> None:
    stranger = world.joined(world.server())
    world.pass_time(SECOND_NS)
    stranger.send(b"PONG\r\n")
    world.pass_time(2 * SECOND_NS)
    stranger.send(b"PONG\r\nPING\r\n")
    assert stranger.heard() == b"PING\r\nPING\r\nPONG\r\n"


def test_a_route_that_does_not_answer_is_given_up(world: World) -> None:
    server = world.server()
    stranger = world.joined(server)
    world.pass_time(5 * SECOND_NS)
    assert stranger.heard() == b"PING\r\nPING\r\n-ERR 'Stale Connection'\r\n"
    assert stranger.closed == "Stale Connection"
    assert server.cluster.routes == {}


def test_the_end_takes_interest_away_and_tells_who_dialled(world: World) -> None:
    server = world.server()
    wanted = Wanted()
    stranger = world.stranger(server, wanted=wanted)
    stranger.send(info_line(), b"RS+ $G foo\r\n")
    route = server.cluster.routes["NX"]
    assert (route.dialled, route.explicit, route.subscription_count) == (True, True, 1)
    stranger.end.end()
    assert server.publish(b"foo") == 1
    assert wanted.told == [("settled", "NX"), ("lost", "closed", "")]
    server.live.tick()
    assert server.live.space().interest.count == 0


@pytest.mark.parametrize("line", [b"-ERR 'no'\r\n", info_line(cluster="c2")])
def test_who_dialled_is_told_of_a_refusal(world: World, line: bytes) -> None:
    wanted = Wanted()
    stranger = world.stranger(world.server(), wanted=wanted)
    stranger.send(line)
    ((word, _, refused),) = wanted.told
    assert (word, refused) == ("lost", "refused")


def test_a_server_that_stops_says_nothing(world: World) -> None:
    server = world.server()
    stranger = world.joined(server)
    stranger.end.call("stopping")
    assert stranger.end.take().count(b"-ERR") == 0
    assert server.cluster.stopping
    assert stranger.closed == "Server Shutdown"


def test_messages_are_counted(world: World) -> None:
    server = world.server()
    stranger = world.joined(server)
    stranger.send(b"RS+ $G foo\r\n", b"RMSG $G foo 5\r\nhello\r\n")
    server.publish(b"foo", b"12")
    route = server.cluster.routes["NX"]
    assert (route.in_message_count, route.in_size_bytes, route.out_message_count) == (1, 5, 1)
    assert route.out_size_bytes == len(b"RMSG $G foo 2\r\n12\r\n")


@pytest.mark.parametrize(("answer", "reason"), [(True, None), (False, "Authentication Failure"), (None, "Authentication Failure")])
def test_a_hashed_password_is_looked_at_elsewhere(world: World, answer: object, reason: str | None) -> None:
    server = world.server(user="u", password="$2a$04$hash")
    stranger = world.stranger(server)
    stranger.send(connect_line(user="u", password="p") + info_line())
    (ask,) = [effect for effect in stranger.end.effects if isinstance(effect, Ask)]
    assert ask.request == PasswordCheck(b"p", b"$2a$04$hash")
    assert server.cluster.routes == {}
    stranger.end.answer(answer)
    assert stranger.closed == reason
    assert list(server.cluster.routes) == (["NX"] if answer else [])
    other = world.stranger(server)
    other.send(connect_line(user="v", password="p"))
    assert other.closed == "Authentication Failure"
