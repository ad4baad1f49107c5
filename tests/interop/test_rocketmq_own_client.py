"""Our own RocketMQ client in company: in one group with Java's, and with a broker that goes away.

What it does alone is in test_rocketmq_clients.py, where it is one client among the others.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.rocketmq_jobs import JAVA, OWN, Client, Consumer, Programs
from tests.interop.rocketmq_servers import EVERY_CONTROL, POLYMQ, SERVING_KINDS, RocketmqServer, rocketmq_server
from tests.interop.servers import ROOT
from tests.interop.test_client_docs import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NUMBERS = itertools.count()
JAVAS = (JAVA[0], JAVA[-1])
PATIENCE_S = 60.0
# The goal; about half of that is what is needed.
IDLE_KIB_MAX = 100 * 1000
KINDS = [kind for kind in SERVING_KINDS if kind in os.environ.get("POLYMQ_INTEROP_SERVERS", ",".join(SERVING_KINDS)).split(",")]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    with Programs(tmp_path_factory.mktemp("clients")) as running:
        yield running


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketmqServer]:
    with rocketmq_server(request.param, tmp_path_factory.mktemp(request.param)) as started:
        yield started


@pytest.fixture(autouse=True)
def everybody_leaves(programs: Programs) -> Iterator[None]:
    with programs.closing():
        yield


@pytest.fixture
def topic(server: RocketmqServer) -> str:
    name = f"Own-{os.getpid()}-{next(NUMBERS)}"
    server.make_topic(name)
    return name


def until(condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def queues(*members: Consumer) -> list[int]:
    """What all of them read, with what several read as often as they do."""
    return sorted(number for each in members for number in each.do("queues"))


def bodies(*members: Consumer) -> list[str]:
    return [body for each in members for body in each.bodies]


@pytest.mark.parametrize("java", JAVAS, ids=[each.name for each in JAVAS])
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
def test_a_mixed_group_divides_the_queues(server: RocketmqServer, java: Client, orderly: bool, programs: Programs, topic: str) -> None:
    group = f"group-{topic}"
    producer = programs.producer(OWN, server)
    members = [programs.push(client, server, topic, group, orderly=orderly) for client in (java, OWN)]
    # A queue whose lock is still somebody else's is taken a round later, so shares may be 1 and 3 for a while.
    assert until(lambda: sorted(len(each.do("queues")) for each in members) == [2, 2] and queues(*members) == [0, 1, 2, 3])
    shares = [each.do("queues") for each in members]
    sent = [f"first {number}" for number in range(100)]
    producer.send(topic, [{"body": body} for body in sent])
    assert until(lambda: len(bodies(*members)) >= 100)
    assert sorted(bodies(*members)) == sorted(sent)
    for member, share in zip(members, shares, strict=True):
        assert {each["queue"] for each in member.messages} == set(share)
    members[0].close()
    assert until(lambda: queues(members[1]) == [0, 1, 2, 3])
    producer.send(topic, [{"body": f"second {number}"} for number in range(100)])
    assert until(lambda: len(set(bodies(*members))) == 200)


@pytest.mark.parametrize("java", JAVAS[:1], ids=[each.name for each in JAVAS[:1]])
def test_nothing_is_lost_while_members_come_and_go(server: RocketmqServer, java: Client, programs: Programs, topic: str) -> None:
    group = f"group-{topic}"
    producer = programs.producer(java, server)
    members = [programs.push(OWN, server, topic, group)]
    sent: list[str] = []

    def send(count: int) -> None:
        more = [f"message {len(sent) + number}" for number in range(count)]
        producer.send(topic, [{"body": body} for body in more])
        sent.extend(more)

    for client in (java, OWN, java):
        send(50)
        members.append(programs.push(client, server, topic, group))
        send(50)
        time.sleep(1)
    for each in members[:3]:
        send(50)
        each.close()
        send(50)
    assert until(lambda: set(bodies(*members)) == set(sent))
    # What somebody had in hand when its queue went to somebody else is handled twice, and no more than that.
    assert len(bodies(*members)) - len(sent) < len(sent) / 4


@pytest.mark.parametrize("server", [POLYMQ], indirect=True)
def test_a_killed_broker_is_found_again(server: RocketmqServer, programs: Programs, topic: str) -> None:
    producer = programs.producer(OWN, server)
    consumer = programs.push(OWN, server, topic, f"group-{topic}")
    orderly = programs.push(OWN, server, topic, f"ordered-{topic}", orderly=True)
    producer.send(topic, [{"body": f"before {number}"} for number in range(20)])
    for each in (consumer, orderly):
        each.wait(20)
    server.kill()
    server.start()
    producer.send(topic, [{"body": f"after {number}"} for number in range(20)])
    expected = {f"{when} {number}" for when in ("before", "after") for number in range(20)}
    for each in (consumer, orderly):
        assert until(lambda each=each: set(each.bodies) == expected)  # type: ignore[misc]


def test_an_idle_broker_is_small(tmp_path: Path) -> None:
    with rocketmq_server(POLYMQ, tmp_path / "server") as started:
        started.make_topic("Idle")
        assert started.process is not None
        status = Path(f"/proc/{started.process.pid}/status").read_text()
    assert int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) < IDLE_KIB_MAX


PAGE = ROOT / "docs" / "CLIENTS_PYTHON.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text().partition("\n# RocketMQ\n")[2], re.DOTALL)
DEPARTED = ["BA9 departed 1", "DL1149 departed 1", "UA2 boards 1", "UA2 departed 1"]
BODIES = [each.removesuffix(" 1") for each in DEPARTED] + ["AA7 landed", "LH4 landed", "KL6 landed"]


# The examples end when there is nothing for a moment; a real 5.3 shows what it has taken too late for that now and then, a real 4.9 on
# a busy machine.
@pytest.mark.parametrize("server", [POLYMQ, "rocketmq-4.9"] if EVERY_CONTROL else [POLYMQ], indirect=True)
def test_the_examples_of_the_documents(server: RocketmqServer) -> None:
    server.make_topic("flights")
    send, consume, ask, script = EXAMPLES
    names = {"127.0.0.1:9876": server.name_server}
    assert run(send, names, 1) == ["sent to queue True"]
    assert run(consume, names, 4) == DEPARTED
    assert run(ask, names, 8) == sorted([*BODIES, "no more"])
    assert run(script, names, 9) == sorted([*BODIES, "IB3 landed", "no more"])
