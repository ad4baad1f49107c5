"""A minimal route peer that others wrote, and that has joined real servers (`nats/fake_route.py` of the conformance material), joins polymq.

It is asked to do all that it can: to listen to a subject and in a queue group, to answer questions, to publish plainly, with headers
and to a group, and to ask; at polymq alone, and where gossip makes polymq or a real server dial it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.conformance import material
from tests.interop.nats_clients import TIMEOUT_S, connected
from tests.interop.nats_servers import CLUSTER_NAME, NATS_KINDS, POLYMQ, NatsOptions, NatsServer, free_port, nats_cluster

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NEW, OLD = NATS_KINDS
DELAY_S = 1.5
DURATION_S = 1.0


class FakePeer:
    """The peer's process; it ends by itself, and then says what it has seen."""

    def __init__(self, target: NatsServer, folder: Path, *more: str) -> None:
        program = material("nats/fake_route.py")
        self._log = (folder / "fake.log").open("w")
        where = ["--connect", f"127.0.0.1:{target.route_port}", "--listen", f"127.0.0.1:{free_port()}", "--cluster", CLUSTER_NAME]
        times = ["--delay", str(DELAY_S), "--duration", str(DURATION_S), "--quiet-sys"]
        command = [sys.executable, str(program), *where, *times, *more]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log, text=True)

    def result(self) -> dict[str, Any]:
        """What it has seen."""
        said, _ = self._process.communicate(timeout=TIMEOUT_S + DELAY_S + DURATION_S)
        self._log.close()
        assert self._process.returncode == 0
        found: dict[str, Any] = json.loads(said)
        return found

    def __enter__(self) -> FakePeer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()


def await_peer(members: Sequence[NatsServer], count: int) -> None:
    """Wait until each member has so many routes to others."""
    deadline = time.monotonic() + TIMEOUT_S
    while any(len(member.routed_to()) < count for member in members):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("kinds", [(NEW,), (POLYMQ,), (POLYMQ, NEW), (OLD, POLYMQ), (POLYMQ, POLYMQ)], ids="+".join)
@pytest.mark.parametrize("secret", [False, True], ids=["open", "with a secret"])
def test_it_joins(kinds: tuple[str, ...], secret: bool, tmp_path: Path) -> None:
    """It dials the first; the others dial it, or it them. Every client hears it, and it hears every client."""
    options = NatsOptions(route_user="route:r0ute") if secret else NatsOptions()
    known = ["--user", "route", "--password", "r0ute"] if secret else []
    asks = ["--sub", "fake.>", "--qsub", "work crew 2", "--serve", "echo.svc", "--pub", "plain 1", "--pub-hdr", "plain 2"]
    asks += ["--request", "ask 4"]
    if len(kinds) == 1:  # it sends a message for a group to every server, which would pass it on to each other
        asks += ["--pub-q", "plain 3 hands"]

    async def play(members: list[NatsServer], peer: FakePeer) -> dict[str, Any]:
        answered = 0
        async with connected(members[-1]) as one, connected(members[-1]) as other:
            plain = await one.subscribed("plain")
            hands = await one.subscribed("plain", queue="hands")

            async def answer(message: Any) -> None:
                nonlocal answered
                answered += 1
                await message.respond(b"yes " + message.data)

            await one.client.subscribe("ask", cb=answer)
            await one.client.flush()
            await asyncio.to_thread(await_peer, members, len(members))
            deadline = time.monotonic() + TIMEOUT_S
            while True:
                try:
                    found = await other.client.request("echo.svc", b"hello", timeout=TIMEOUT_S)
                    break
                except Exception:
                    assert time.monotonic() < deadline
                    await asyncio.sleep(0.02)
            assert found.data == b"echo:hello"
            await other.client.publish("fake.a", b"5", headers={"Key": "value"})
            await other.published("work", b"6")
            wanted = [(b"1", None), (b"2", "1"), *([(b"3", None)] if len(kinds) == 1 else [])]
            got = [await plain.next_msg(timeout=TIMEOUT_S) for _ in wanted]
            assert sorted((each.data, (each.headers or {}).get("X-Fake")) for each in got) == wanted
            if len(kinds) == 1:
                assert (await hands.next_msg(timeout=TIMEOUT_S)).data == b"3"
            result = await asyncio.to_thread(peer.result)
            assert (plain.pending_msgs, hands.pending_msgs, answered) == (0, 0, 1)
            return result

    with nats_cluster(kinds, tmp_path, options) as members, FakePeer(members[0], tmp_path, *asks, *known) as peer:
        result = asyncio.run(play(members, peer))
        assert result["nroutes"] == len(members)
        # A newer server that dials tries that as well, and says when it cannot be.
        assert [each for each in result["errs"] if "Not possible to have a dedicated route" not in each] == []
        assert sorted({each["server_name"] for each in result["infos"]}) == [member.name for member in members]
        assert result["replies"] == ["yes 4"]
        got = [tuple(each[:1] + each[2:3] + each[4:]) for each in result["got"] if not each[2].startswith("_INBOX.")]
        assert [each for each in got if each[1] == "work"] == [("RMSG", "work", ["crew"], "6")]
        (fake,) = [each for each in got if each[1] == "fake.a"]
        assert (fake[0], fake[2], fake[3].endswith("5")) == ("HMSG", [], True)
        assert [each[3] for each in got if each[1] == "echo.svc"][-1] == "hello"
