"""Members of a RocketMQ group come and go while messages flow: nothing is lost, and twice comes only what a change has touched.

The members are of Java's library, of ours, or mixed, at polymq and at a real broker. How many messages came twice is measured, for the
same with Java alone at a real broker (POLYMQ_INTEROP_CONTROLS=all) is what it may be compared with.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.interop.rocketmq_dialogue import send
from tests.interop.rocketmq_jobs import CLIENTS, Client, Consumer, Programs
from tests.interop.rocketmq_raw import BINARY
from tests.interop.rocketmq_servers import EVERY_CONTROL, POLYMQ, RocketmqServer, rocketmq_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

QUEUES = 8
RATE_PER_S = 100
# Between two changes: a rebalance takes part of it.
STEADY_S = 3.0
# A change is felt for so long at most: Java commits every second here, and hears of others at once.
FELT_S = 6.0
DRAIN_TIMEOUT_S = 60.0
BY_NAME = {client.name: client for client in CLIENTS}
GROUPS = [
    (POLYMQ, ("java-4.9-json", "java-5.3-binary")),
    (POLYMQ, ("java-4.9-json", "polymq")),
    (POLYMQ, ("go", "polymq")),
    ("rocketmq-4.9", ("java-4.9-json", "polymq")),
    *([("rocketmq-4.9", ("java-4.9-json", "java-4.9-binary"))] if EVERY_CONTROL else []),
]


class Sender(threading.Thread):
    """Sends numbers, one after the other, to all queues in turn, and knows which have been answered."""

    def __init__(self, server: RocketmqServer, topic: str) -> None:
        super().__init__(daemon=True)
        self.sent: list[str] = []
        self.failure = ""
        self._server = server
        self._topic = topic
        self._ended = threading.Event()

    def run(self) -> None:
        with self._server.broker() as connection:
            number = 0
            while not self._ended.wait(1 / RATE_PER_S):
                answer = connection.ask(310, send(self._topic, e=str(number % QUEUES)), str(number).encode(), serialize=BINARY)
                if answer.code:
                    self.failure = f"{answer.code} {answer.remark}"
                    return
                self.sent.append(str(number))
                number += 1

    def end(self) -> None:
        self._ended.set()
        self.join()
        assert not self.failure


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    with Programs(tmp_path_factory.mktemp("clients")) as running:
        yield running


def received(members: list[Consumer]) -> Counter[str]:
    return Counter(body for member in members for body in member.bodies)


def change(programs: Programs, server: RocketmqServer, clients: list[Client], sender: Sender, changes: list[float]) -> list[Consumer]:
    """Two join the first, and leave again in another order, with time between; then the last gets what is left."""
    topic, group = "Changing", "changing"

    def joins(client: Client) -> Consumer:
        changes.append(time.time())
        member = programs.push(client, server, topic, group)
        time.sleep(STEADY_S)
        return member

    def leaves(member: Consumer) -> None:
        changes.append(time.time())
        member.close()
        time.sleep(STEADY_S)

    members = [joins(clients[0]), joins(clients[1]), joins(clients[0])]
    before = [len(member.messages) for member in members]

    def gained() -> list[int]:
        return [len(member.messages) - count for member, count in zip(members, before, strict=True)]

    # Eight queues among three: 3, 3, 2. So each gets what comes to one queue meanwhile, and more.
    deadline = time.monotonic() + DRAIN_TIMEOUT_S
    while min(gained()) < STEADY_S * RATE_PER_S / QUEUES and time.monotonic() < deadline:
        time.sleep(0.1)
    assert min(gained()) >= STEADY_S * RATE_PER_S / QUEUES, gained()
    leaves(members[1])
    leaves(members[0])
    sender.end()
    return members


@pytest.mark.parametrize(("kind", "names"), GROUPS, ids=[f"{kind}-{'-and-'.join(names)}" for kind, names in GROUPS])
def test_nothing_is_lost_while_members_come_and_go(
    kind: str, names: tuple[str, str], programs: Programs, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    changes: list[float] = []
    with rocketmq_server(kind, tmp_path / "server") as server, programs.closing():
        server.make_topic("Changing", QUEUES)
        sender = Sender(server, "Changing")
        sender.start()
        members = change(programs, server, [BY_NAME[name] for name in names], sender, changes)
        deadline = time.monotonic() + DRAIN_TIMEOUT_S
        while (lost := set(sender.sent) - set(received(members))) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert not lost, sorted(lost, key=int)
        twice = {body for body, count in received(members).items() if count > 1}
        for member in members:
            for message in member.messages:
                if message["body"] in twice:
                    at = message["at"] / 1000
                    assert any(-1 <= at - each <= FELT_S for each in changes), f"{message['body']} came twice, and no change was near"
        record_property("twice", f"{kind}, {' and '.join(names)}: {len(twice)} of {len(sender.sent)}")
