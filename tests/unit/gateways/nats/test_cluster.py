from __future__ import annotations

import logging

import pytest

from polymq.gateways.nats import cluster as cluster_module
from polymq.gateways.nats.cluster import route_url
from polymq.protocols.nats.info import parse_info
from tests.unit.gateways.nats.route_world import SECOND_NS, Server, Wanted, World, connect_line, info_line


@pytest.fixture
def world() -> World:
    return World()


def told_clients(server: Server) -> tuple[str, ...]:
    return server.house.info.connect_urls


# -- servers of ours with each other -------------------------------------------------------------------------------


def test_two_servers_serve_each_others_clients(world: World) -> None:
    a, b = world.server("A"), world.server("B")
    early = b.listener()
    early.listen(b"early")
    world.join(a, b)
    assert (a.routed(), b.routed()) == ({"B"}, {"A"})
    late = b.listener()
    late.listen(b"late.*")
    world.run()
    assert a.publish(b"early", b"1") == 0
    assert a.publish(b"late.x", b"2") == 0
    assert a.publish(b"other") == 1
    world.run()
    assert (early.bodies(), late.bodies()) == ([b"1"], [b"2"])


def test_a_group_over_three_servers_gets_each_message_once(world: World) -> None:
    servers = [world.server(name) for name in "ABC"]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        world.join(servers[one], servers[other])
    members = [server.listener() for server in servers]
    for number, member in enumerate(members):
        for _ in range(number + 1):
            member.listen(b"work", b"q")
    plain = servers[2].listener()
    plain.listen(b">")
    world.run()
    for number in range(600):
        servers[0].publish(b"work", b"%d" % number)
    world.run()
    assert sorted(body for member in members for body in member.bodies()) == sorted(b"%d" % number for number in range(600))
    assert len(plain.got) == 600
    shares = [len(member.got) / 600 for member in members]
    assert shares == pytest.approx([1 / 6, 2 / 6, 3 / 6], abs=0.08)


def test_two_servers_that_dial_each_other_have_one_route(world: World) -> None:
    a, b = world.server("A"), world.server("B")
    wanted = [Wanted(), Wanted()]
    world.join(a, b, wanted[0])
    one, other = world.join(b, a, wanted[1])
    assert one.closed == "Duplicate Route"
    assert other.closed is not None
    assert (len(a.cluster.connections), len(b.cluster.connections)) == (1, 1)
    # Who dialled in vain knows that there is a route, and is told when it ends.
    assert wanted[1].told == [("settled", "NA")]
    world.ends[0].end()
    world.run()
    assert wanted[0].told == [("settled", "NB"), ("lost", "closed", "")]
    assert wanted[1].told[1:] == [("lost", "closed", "")]


def test_two_servers_that_dial_each_other_at_once_have_at_most_one_route(world: World) -> None:
    a, b = world.server("A"), world.server("B")
    wanted = [Wanted(), Wanted()]
    world.dial(a, b, wanted[0])
    world.dial(b, a, wanted[1])
    world.run()
    assert len(a.cluster.routes) == len(b.cluster.routes) <= 1
    if not a.cluster.routes:
        assert [each.told[-1][0] for each in wanted] == ["lost", "lost"]


def test_a_server_that_dials_itself_dials_no_more(world: World) -> None:
    a = world.server("A")
    wanted = Wanted()
    world.join(a, a, wanted)
    assert wanted.told == [("abandoned",)]
    assert a.cluster.connections == {}


def test_a_mesh_closes_by_gossip(world: World) -> None:
    a, b, c = (world.server(name) for name in "ABC")
    world.join(b, a)
    world.join(c, a)
    (told,) = b.heard
    assert (told.server_id, told.ip, told.nonce, told.gossip_mode) == ("NC", "nats-route://10.0.0.C:6222/", "", 0)
    assert c.heard == []
    world.join(b, c, Wanted(explicit=False))
    assert [server.routed() for server in (a, b, c)] == [{"B", "C"}, {"A", "C"}, {"A", "B"}]
    # Word of servers that are known already goes round once more, and changes nothing.
    assert len(a.heard) == len(c.heard) == 0


# -- gossip ----------------------------------------------------------------------------------------------------------


def test_gossip_names_the_address_that_the_newcomer_was_seen_at(world: World) -> None:
    server = world.server()
    one = world.joined(server, "X")
    one.infos()
    world.joined(server, "Y", host="10.0.0.77", port=7222, nonce="abc", connect_urls=("10.0.0.77:4222",))
    (line,) = one.infos()
    assert line.endswith(b"}\r\n")
    info = parse_info(line[5:].strip())
    assert info is not None
    assert (info.server_id, info.ip, info.nonce) == ("NY", "nats-route://10.0.0.77:7222/", "")
    assert info.connect_urls == ("10.0.0.77:4222",)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"ip": "nats-route://far.example:9/"}, b"nats-route://far.example:9/"),
        ({"gossip_mode": 2}, b"nats-route://10.0.0.8:6222/"),
        ({"gossip_mode": 1}, None),
        ({"port": 0}, None),
    ],
)
def test_who_is_told_of(world: World, said: dict[str, object], expected: bytes | None) -> None:
    server = world.server()
    one = world.joined(server, "X")
    one.infos()
    world.joined(server, "Y", host="10.0.0.8", **said)
    lines = one.infos()
    assert len(lines) == (expected is not None)
    assert all(expected is not None and b'"ip":"%b"' % expected in line for line in lines)


def test_who_was_dialled_because_of_gossip_is_not_told_of_again_if_so_asked(world: World) -> None:
    server = world.server()
    one = world.joined(server, "X")
    one.infos()
    for number, mode in enumerate((1, 0)):
        dialled = world.stranger(server, wanted=Wanted(explicit=False, gossip_mode=mode))
        (line,) = dialled.infos()
        assert (b'"gossip_mode":1' in line) == (mode == 1)
        dialled.send(info_line(f"Y{number}"))
        assert len(one.infos()) == (mode == 0)


def test_what_is_heard_of_others(world: World) -> None:
    server = world.server()
    stranger = world.joined(server, "X")
    stranger.send(info_line("G", ip="nats-route://10.0.0.5:6222/", gateway="G"))
    assert server.heard == []
    for name, ip in (("Z", "nats-route://10.0.0.5:6222/"), ("A", "nats-route://10.0.0.1:6222/"), ("X", "x"), ("W", "")):
        stranger.send(info_line(name, ip=ip))
    assert [info.server_id for info in server.heard] == ["NZ"]
    world.joined(server, "Z")
    stranger.send(info_line("Z", ip="nats-route://10.0.0.5:6222/"))
    assert len(server.heard) == 1


@pytest.mark.parametrize(("host", "url"), [("h", "nats-route://h:1/"), ("::1", "nats-route://[::1]:1/")])
def test_a_url_has_brackets_where_they_belong(host: str, url: str) -> None:
    assert route_url(host, 1) == url


def test_an_advertised_address_is_told_as_such(world: World) -> None:
    (line,) = world.stranger(world.server(port=7, advertised=True)).infos()
    assert b'"ip":"nats-route://0.0.0.0:7/"' in line
    (line,) = world.stranger(world.server("B")).infos()
    assert b'"ip"' not in line


# -- the same server twice -------------------------------------------------------------------------------------------


def test_a_second_connection_of_a_server_that_answers_is_closed(world: World) -> None:
    server = world.server()
    first = world.joined(server)
    first.heard()
    second = world.stranger(server)
    second.send(connect_line(), info_line())
    assert (first.closed, second.closed) == (None, "Duplicate Route")
    # It is asked whether it is there, for the other one may know better.
    assert first.heard() == b"PING\r\n"
    world.stranger(server).send(connect_line(), info_line())
    assert first.heard() == b""


def test_a_new_connection_replaces_a_dead_route(world: World) -> None:
    server = world.server()
    wanted = Wanted()
    first = world.stranger(server, wanted=wanted)
    first.send(info_line(), b"RS+ $G foo\r\n")
    world.stranger(server).send(connect_line(), info_line())
    world.pass_time(2 * SECOND_NS)
    first.heard()
    other = world.joined(server, "Y")
    other.infos()
    second = world.stranger(server)
    second.send(connect_line(), info_line(), b"RS+ $G foo\r\n")
    # It is no news to the others.
    assert other.infos() == []
    assert (first.closed, second.closed) == ("Stale Connection", None)
    assert first.end.at_once
    server.publish(b"foo", b"1")
    assert (first.heard(), second.heard()) == (b"", b"RMSG $G foo 1\r\n1\r\n")
    # Who dialled the first one is told when the second one ends.
    assert wanted.told == [("settled", "NX"), ("settled", "NX")]
    second.end.end()
    assert wanted.told[2:] == [("lost", "closed", "")]


def test_a_route_that_says_something_is_not_dead(world: World) -> None:
    server = world.server()
    first = world.joined(server)
    world.stranger(server).send(connect_line(), info_line())
    world.pass_time(SECOND_NS * 3 // 2)
    first.send(b"RS+ $G foo\r\n")
    world.pass_time(SECOND_NS)
    second = world.stranger(server)
    second.send(connect_line(), info_line())
    assert (first.closed, second.closed) == (None, "Duplicate Route")


def test_there_are_not_more_servers_than_the_limit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "ROUTES_MAX", 2)
    server = world.server()
    for name in "XY":
        world.joined(server, name)
    third = world.stranger(server)
    third.send(connect_line("NZ"), info_line("Z"))
    assert third.closed == "Maximum Connections Exceeded"


# -- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "theirs", "dynamic", "outcome"),
    [
        ("mmm", "zzz", True, True),
        ("mmm", "aaa", True, False),
        ("mmm", "aaa", False, True),
        ("mmm", "mmm", True, True),
        ("mmm", "", True, False),
    ],
)
def test_a_name_that_was_made_up_gives_way(world: World, own: str, theirs: str, dynamic: bool, outcome: bool) -> None:
    server = world.server(cluster=own, dynamic=True)
    stranger = world.stranger(server)
    stranger.send(connect_line(cluster=theirs, cluster_dynamic=dynamic))
    assert (stranger.closed is None) is outcome
    assert server.cluster.name == (theirs if outcome else own)
    assert server.house.info.cluster == server.cluster.name
    if outcome and theirs != own:
        assert server.cluster.dynamic is dynamic


def test_a_new_name_drops_the_other_routes(world: World) -> None:
    server = world.server(cluster="aaa", dynamic=True)
    wanted = Wanted()
    old = world.stranger(server, wanted=wanted)
    old.send(info_line(cluster="aaa", cluster_dynamic=True))
    new = world.stranger(server)
    new.send(connect_line("NY", cluster="zzz"), info_line("Y", cluster="zzz"))
    assert (old.closed, new.closed) == ("Cluster Name Conflict", None)
    assert wanted.told[-1][0] == "lost"
    # From here on the name is as good as configured.
    third = world.stranger(server)
    third.send(connect_line("NZ", cluster="zzzz"))
    assert third.closed == "Cluster Name Conflict"


def test_two_made_up_names_become_one(world: World) -> None:
    a, b = world.server("A", cluster="aaa", dynamic=True), world.server("B", cluster="bbb", dynamic=True)
    for _ in range(3):
        if not a.cluster.routes:
            world.join(b, a)
    assert a.cluster.name == b.cluster.name == "bbb"
    assert (a.routed(), b.routed()) == ({"B"}, {"A"})


# -- clients ---------------------------------------------------------------------------------------------------------


def test_clients_are_told_of_the_others(world: World) -> None:
    server = world.server(connect_urls=("10.0.0.1:4222",))
    assert told_clients(server) == ()
    stranger = world.joined(server, connect_urls=("10.0.0.9:4222", "[::9]:4222"))
    assert told_clients(server) == ("10.0.0.1:4222", "10.0.0.9:4222", "[::9]:4222")
    stranger.send(info_line(connect_urls=("10.0.0.9:5222",)))
    assert told_clients(server) == ("10.0.0.1:4222", "10.0.0.9:5222")
    # It is about to go.
    stranger.send(info_line(connect_urls=("10.0.0.9:5222",), ldm=True))
    assert told_clients(server) == ()
    other = world.joined(server, "Y", connect_urls=("10.0.0.2:4222",))
    assert told_clients(server) == ("10.0.0.1:4222", "10.0.0.2:4222")
    other.end.end()
    assert told_clients(server) == ()


def test_the_others_are_told_where_clients_find_us(world: World) -> None:
    (line,) = world.stranger(world.server(connect_urls=("10.0.0.1:4222",))).infos()
    assert b'"connect_urls":["10.0.0.1:4222"]' in line


def test_clients_may_be_told_nothing(world: World) -> None:
    server = world.server(tells_clients=False)
    world.joined(server, connect_urls=("10.0.0.9:4222",))
    assert told_clients(server) == ()


def test_what_clients_cannot_read_is_not_told_and_said_so(world: World, caplog: pytest.LogCaptureFixture) -> None:
    server = world.server(connect_urls=("a:1",))
    liar = world.joined(server, "LIAR", connect_urls=tuple("h" * 900 + f"{number}:4222" for number in range(60)))
    assert told_clients(server) == ("a:1",)
    (record,) = caplog.records
    assert ": 60 of its addresses for clients are not passed on to them: they are none, too long, or too many" in record.getMessage()
    world.joined(server, "Y", connect_urls=("y:1", "[::1"))
    assert told_clients(server) == ("a:1", "y:1")
    for number in range(100):
        liar.send(info_line(server_id="NLIAR", server_name="LIAR", connect_urls=tuple(f"{number}.{each}:1" for each in range(100))))
    assert len(told_clients(server)) == 2 + 64
    assert len(caplog.records) < 10


def test_the_others_are_told_when_this_server_is_about_to_go(world: World) -> None:
    a, b = world.server("A", connect_urls=("a:1",)), world.server("B", connect_urls=("b:1",))
    world.join(a, b)
    assert told_clients(a) == ("a:1", "b:1")
    b.cluster.lame_duck()
    world.run()
    assert told_clients(a) == ()
    assert a.routed() == {"B"}


def test_what_happens_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    server = world.server()
    world.joined(server).end.end()
    assert [record.message for record in caplog.records] == [
        "NATS route to X (NX) at 10.0.0.9:40000",
        "NATS route to X (NX) has ended: closed",
    ]


@pytest.mark.parametrize("overdue", [False, True])
def test_a_route_that_takes_nothing_is_a_slow_consumer(world: World, caplog: pytest.LogCaptureFixture, overdue: bool) -> None:
    server = world.server()
    stranger = world.joined(server)
    (route,) = server.cluster.routes.values()
    route.overdue = overdue
    stranger.end.end()
    assert server.house.departed.slow_route_count == overdue
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == (
        ["NATS route to X (NX) has ended: Slow Consumer (Write Deadline)"] if overdue else []
    )
