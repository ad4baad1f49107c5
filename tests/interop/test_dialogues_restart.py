"""What a server still has after it was stopped and started again: beside nsqd 1.3.0, which is the least that polymq keeps.

After an orderly stop both have everything; polymq's deferred messages stay deferred as well. After `kill -9` nsqd has the names that
it had written down, and polymq all that it ever confirmed.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tests.interop.dialogue import Stage, dpub, mpub, pub
from tests.interop.lookup import Server, started
from tests.interop.servers import KINDS, command, free_ports

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LATER_MS = 600_000
COUNTS = ("depth", "in_flight_count", "deferred_count", "paused")


def prepared(kind: str, folder: Path) -> Server:
    """A server that can be started again where it was."""
    ports = free_ports(3)
    (folder / kind).mkdir()
    tcp, web, _ = (f"127.0.0.1:{port}" for port in ports)
    return Server(kind, folder, command(kind, folder / kind, ports, 60_000), tcp, web)


def side_by_side(play: Callable[[Server, Stage], None], folder: Path) -> tuple[list[str], list[str]]:
    """Play a story on both; their transcripts."""

    # One after the other: each looks for ports that nobody has.
    servers = {kind: prepared(kind, folder) for kind in KINDS}

    def one(kind: str) -> list[str]:
        server = servers[kind]
        stage = Stage(server.running)
        with started(server):
            play(server, stage)
            stage.end()
        return stage.lines

    with ThreadPoolExecutor(len(KINDS)) as pool:
        nsqd, polymq = pool.map(one, KINDS)
    return nsqd, polymq


def restart(server: Server, how: str) -> None:
    server.stop() if how == "stop" else server.kill()
    server.start()


def overview(stage: Stage, title: str) -> None:
    """Write down what there is."""
    topics: list[dict[str, Any]] = json.loads(stage.server.request("GET", "/stats?format=json&include_mem=false")[1])["topics"]
    stage.note(title)
    for topic in topics:
        stage.note(f"  {topic['topic_name']}: depth {topic['depth']}, paused {topic['paused']}")
        for channel in topic["channels"]:
            stage.note(f"    {channel['channel_name']}: {', '.join(f'{name} {channel[name]}' for name in COUNTS)}")


def drain(stage: Stage, topic: str, channel: str, count: int) -> None:
    """Receive so many and no more; write them down, sorted."""
    client = stage.connect(f"{topic}/{channel}")
    client.subscribe(topic, channel, 100)
    client.hear("gives", quiet_s=1.0)
    head, _, heard = stage.lines.pop().partition(" -> ")
    found = sorted(heard.split(" | ")[:-1])
    stage.note(f"{head} -> {found}")
    assert len(found) == count, found
    client.close()


def full_house(stage: Stage) -> None:
    """Make one of everything."""
    client = stage.connect()
    client.subscribe("full", "c", 3)
    stage.ask("POST", "/channel/create?topic=full&channel=other")
    stage.ask("POST", "/channel/create?topic=full&channel=stopped")
    stage.ask("POST", "/channel/pause?topic=full&channel=stopped")
    publisher = stage.connect("publisher")
    publisher.ok(mpub("full", *(b"%d" % number for number in range(10))))
    first = client.take(3)
    client.send(b"FIN " + first[0] + b"\n", b"REQ " + first[1] + b" 0\n")
    client.take(2)
    stage.wait(lambda: stage.server.channel("full", "other")["depth"] == 10)
    stage.ask("POST", "/topic/create?topic=paused")
    stage.ask("POST", "/channel/create?topic=paused&channel=c")
    stage.ask("POST", "/topic/pause?topic=paused")
    for topic in ("paused", "no-channel", "fleeting#ephemeral"):
        publisher.ok(pub(topic, topic.encode()))
    stage.ask("POST", "/channel/create?topic=empty&channel=c")
    stage.ask("POST", "/topic/create?topic=empty")
    stage.ask("POST", "/channel/create?topic=empty&channel=c")
    stage.ask("POST", "/channel/create?topic=empty&channel=passing%23ephemeral")


def test_an_orderly_stop(tmp_path: Path) -> None:
    def play(server: Server, stage: Stage) -> None:
        full_house(stage)
        overview(stage, "before")
        restart(server, "stop")
        overview(stage, "after")
        drain(stage, "full", "c", 9)
        drain(stage, "full", "other", 10)
        drain(stage, "full", "stopped", 0)
        drain(stage, "paused", "c", 0)
        drain(stage, "no-channel", "new", 1)
        stage.ask("POST", "/channel/unpause?topic=full&channel=stopped")
        stage.ask("POST", "/topic/unpause?topic=paused")
        drain(stage, "full", "stopped", 10)
        drain(stage, "paused", "c", 1)

    nsqd, polymq = side_by_side(play, tmp_path)
    assert polymq == nsqd


def test_what_is_deferred_over_a_stop(tmp_path: Path) -> None:
    """nsqd gives it out at once; polymq when it is due."""

    def play(server: Server, stage: Stage) -> None:
        client = stage.connect()
        client.subscribe("later", "c", 1)
        client.ok(pub("later", b"given back"))
        (given,) = client.take()
        client.send(b"REQ " + given + b" %d\n" % LATER_MS)
        client.ok(dpub("later", LATER_MS, b"deferred"))
        stage.wait(lambda: stage.server.channel("later", "c")["deferred_count"] == 2)
        restart(server, "stop")
        overview(stage, "after")
        drain(stage, "later", "c", 2 if stage.server.kind == "nsqd" else 0)

    nsqd, polymq = side_by_side(play, tmp_path)
    assert nsqd[-2:] == [
        "    c: depth 2, in_flight_count 0, deferred_count 0, paused False",
        "later/c: gives -> [\"MSG attempts=1 'deferred'\", \"MSG attempts=2 'given back'\"]",
    ]
    assert polymq[-2:] == ["    c: depth 0, in_flight_count 0, deferred_count 2, paused False", "later/c: gives -> []"]


def test_a_kill(tmp_path: Path) -> None:
    """nsqd has lost what was in its memory; polymq has all that it confirmed."""

    def play(server: Server, stage: Stage) -> None:
        full_house(stage)
        server.kill()
        server.start()
        overview(stage, "after")

    _, polymq = side_by_side(play, tmp_path)

    def stopped(server: Server, stage: Stage) -> None:
        full_house(stage)
        restart(server, "stop")
        overview(stage, "after")

    (tmp_path / "stopped").mkdir()
    nsqd, _ = side_by_side(stopped, tmp_path / "stopped")
    assert polymq == nsqd
