"""The monitoring pages, asked as functions; beside nats-server's own they are in tests/interop/test_nats_monitoring.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from polymq.gateways.contract import Peer
from polymq.gateways.nats.house import House
from polymq.protocols.nats.info import Permissions, ServerInfo
from polymq.protocols.nats.settings import NatsSettings
from tests.unit.gateways.nats.harness import PLAIN, SECOND_NS
from tests.unit.gateways.nats.watched import Watched

if TYPE_CHECKING:
    from collections.abc import Collection


@pytest.fixture
def world() -> Watched:
    return Watched()


def test_varz_counts_those_who_are_here_and_those_who_are_gone(world: Watched) -> None:
    one, other = world.connect(PLAIN + b"SUB a 1\r\n"), world.connect(PLAIN)
    other.send(b"PUB a 3\r\nabc\r\n" * 2)
    other.hang_up()
    world.wait(61)
    varz = world.document("/varz")
    wanted = {
        "connections": 1,
        "total_connections": 2,
        "in_msgs": 2,
        "in_bytes": 6,
        "out_msgs": 2,
        "out_bytes": 6,
        "in_client_msgs": 2,
        "subscriptions": 1,
        "slow_consumers": 0,
        "uptime": "1m1s",
        "cpu": 12.3,
        "mem": 1 << 20,
        "http_port": 8222,
        "http_req_stats": {"/varz": 1},
        "auth_timeout": 2,
    }
    assert {name: varz[name] for name in wanted} == wanted
    assert "auth_required" not in varz
    assert "connect_urls" not in varz
    assert one.client.id in world.house.clients


def test_varz_says_what_the_settings_are_by_now() -> None:
    world = Watched(NatsSettings(auth_timeout_ns=500_000_000, tls_timeout_ns=7 * SECOND_NS))
    varz = world.document("/varz")
    assert (varz["auth_timeout"], varz["tls_timeout"], varz["config_load_time"]) == (0.5, 7, varz["start"])
    world.house.settings = NatsSettings()
    world.house.reloaded_at_ns = world.monitored.started_at_ns + SECOND_NS
    varz = world.document("/varz")
    assert (varz["auth_timeout"], varz["tls_timeout"]) == (2, 2)
    assert varz["config_load_time"] > varz["start"]


def test_varz_says_what_holds(world: Watched) -> None:
    world.tell(auth_required=True, connect_urls=("192.0.2.1:4222",))
    varz = world.document("/varz")
    assert (varz["auth_required"], varz["connect_urls"]) == (True, ["192.0.2.1:4222"])
    assert "max_subscriptions" not in varz
    assert Watched(NatsSettings(subscriptions_max=7)).document("/varz")["max_subscriptions"] == 7


def test_slow_and_stale_are_counted() -> None:
    world = Watched(NatsSettings(pending_size_bytes_max=1000, ping_interval_ns=SECOND_NS))
    slow, publisher = world.connect(PLAIN + b"SUB a 1\r\n"), world.connect(PLAIN)
    slow.stream.room = 0
    for _ in range(2):
        publisher.send(b"PUB a 800\r\n" + b"x" * 800 + b"\r\n")
    world.wait(5)
    varz = world.document("/varz")
    assert (varz["slow_consumers"], varz["stale_connections"], varz["stalled_clients"]) == (1, 1, 1)
    assert varz["slow_consumer_stats"] == {"clients": 1, "routes": 0, "gateways": 0, "leafs": 0}
    reasons = [row["reason"] for row in world.document("/connz?state=closed")["connections"]]
    assert reasons == ["Slow Consumer (Pending Bytes)", "Stale Connection"]
    assert world.document("/connz?state=closed&cid=2")["connections"][0]["stalls"] == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/connz?limit=x", "Error decoding int for 'limit': strconv.Atoi: parsing \"x\": invalid syntax"),
        (
            "/connz?offset=99999999999999999999",
            "Error decoding int for 'offset': strconv.Atoi: parsing \"99999999999999999999\": value out of range",
        ),
        ("/connz?offset=" + "9" * 100, f"Error decoding int for 'offset': strconv.Atoi: parsing \"{'9' * 100}\": value out of range"),
        ("/connz?cid=-1", "Error decoding uint64 for 'cid': strconv.ParseUint: parsing \"-1\": invalid syntax"),
        ("/connz?auth=maybe", "Error decoding boolean for 'auth': strconv.ParseBool: parsing \"maybe\": invalid syntax"),
        ("/connz?state=odd", "Error decoding state for odd"),
        ("/connz?sort=odd", "invalid sorting option: odd"),
        ("/connz?filter_subject=a", "filter_subject is not served by polymq: leave it out, or ask with acc, user or cid"),
        ("/connz?sort=stop", "sort by stop only valid on closed connections"),
        ("/subsz?test=a.*", "invalid test subject, must be valid publish subject: a.*"),
        ("/routez?subs=odd", "Error decoding boolean for 'subs': strconv.ParseBool: parsing \"odd\": invalid syntax"),
        ("/healthz?js-enabled=odd", "Error decoding boolean for 'js-enabled': strconv.ParseBool: parsing \"odd\": invalid syntax"),
    ],
)
def test_nonsense_is_told(world: Watched, path: str, text: str) -> None:
    answer = world.ask(path)
    assert (answer.status, answer.body) == (400, text.encode())


def test_health(world: Watched) -> None:
    assert world.body("/healthz") == b'{"status":"ok"}'
    world.problems = ["the disk is full", "and broken"]
    answer = world.ask("/healthz")
    assert (answer.status, answer.body) == (503, b'{"status":"unavailable","error":"the disk is full; and broken"}')


def test_no_script_is_called(world: Watched) -> None:
    answer = world.ask("/healthz?callback=<script>")
    assert (dict(answer.headers)["Content-Type"], answer.body) == ("application/json", b'{"status":"ok"}')


def test_the_first_page_and_pages_that_are_not_there(world: Watched) -> None:
    world.tell(server_name="<me>")
    assert b"&lt;me&gt;" in world.body("/")
    assert b"href=./varz" in world.body("/").replace(b'"', b"")
    answer = world.ask("/jsz")
    assert (answer.status, answer.body) == (404, b"404 page not found\n")
    assert world.ask("/varz", "DELETE").status == 405
    assert world.ask("/varz", "POST").status == 200


# -- routes ---------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Route:
    id: int = 7
    peer: Peer = Peer("192.0.2.2", 6222)  # noqa: RUF009  # frozen
    info: ServerInfo = ServerInfo("NOTHER", "other", permissions_import=Permissions(("a.>",)))  # noqa: RUF009  # frozen
    connected_at_ns: int = 1_700_000_000_000_000_000
    heard_at_ns: int = 1_700_000_000_500_000_000
    in_message_count: int = 1
    in_size_bytes: int = 2
    out_message_count: int = 3
    out_size_bytes: int = 4
    dialled: bool = True
    explicit: bool = False
    rtt_ns: int = 1_618_654
    subscription_count: int = 5


def test_routes_are_listed_and_counted(world: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    def routes(_: House) -> Collection[Route]:
        return [Route(), Route(id=8)]

    assert world.document("/routez")["routes"] == []
    monkeypatch.setattr(House, "routes", routes)
    world.clock.now_ns += 3 * SECOND_NS
    document = world.document("/routez")
    assert document["num_routes"] == 2
    assert list(document["routes"][0].items()) == [
        ("rid", 7),
        ("remote_id", "NOTHER"),
        ("remote_name", "other"),
        ("did_solicit", True),
        ("is_configured", False),
        ("ip", "192.0.2.2"),
        ("port", 6222),
        ("start", "2023-11-14T22:13:20Z"),
        ("last_activity", "2023-11-14T22:13:20.5Z"),
        ("rtt", "1.618654ms"),
        ("uptime", "3s"),
        ("idle", "2s"),
        ("import", {"allow": ["a.>"]}),
        ("pending_size", 0),
        ("in_msgs", 1),
        ("out_msgs", 3),
        ("in_bytes", 2),
        ("out_bytes", 4),
        ("subscriptions", 5),
    ]
    varz = world.document("/varz")
    assert (varz["routes"], varz["remotes"], varz["in_msgs"], varz["in_client_msgs"]) == (2, 1, 2, 0)
