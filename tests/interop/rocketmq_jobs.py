"""The jobs that our programs over RocketMQ's client libraries do, and the programs themselves: `peers/rocketmq*`, `peers/ali-ons`, `clients/`.

A program lives as long as the tests and does jobs beside one another. A job is a line of standard input, a JSON object with an `id`; its
answer is a line of standard output, `{"id": …, "result": …}` or `{"id": …, "error": …}`:

    producer   name, group, server               starts one; `server` is the nameserver's HOST:PORT
    send       name, topic, mode, messages       sync, async, oneway, ordered, batch; what each send returned: status, id, queue, offset, offset_id
    push       name, group, server, topic, expression, model, orderly, from, failures, level, reconsume_max, instance
                                                 starts a consumer that is handed messages. Each message fails until it was reconsumed (orderly:
                                                 handed out) `failures` times; comes again after the delay level `level`, 0: as the broker likes
    lite       name, group, server, topic, expression, assign
                                                 starts a consumer that asks for messages
    query      name, topic, key                  of a producer: messages by key
    view       name, topic, message_id           of a producer: one message by either of its ids
    offsets    name, topic, timestamp            of a producer: per queue min, max, earliest (a time) and at (the offset of the timestamp)
    queues     name                              of a consumer: which queues it has
    close      name

A message to send has body, and may have tags, keys, delay (a level), shard (ordered), size (it is filled up), flag, properties. What a
consumer gets is a line of its own: event "message", name, body, size, topic, tags, keys, message_id, queue, offset, reconsumed, properties, at.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.interop.rocketmq_servers import JAVA_PEERS, PEERS, RocketmqServer, java_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = ["CLIENTS", "JAVA", "OWN", "Client", "Consumer", "JobError", "Producer", "Programs"]

JOB_TIMEOUT_S: Final = 60.0
# Java's consumers look at the nameserver every 30 s, and at each other every 20 s if they are not told to do so more often.
PATIENCE_S: Final = 45.0
REBALANCE_MS: Final = 4000
HERE: Final = Path(__file__).parent
SENDING: Final = {"sync", "async", "oneway", "ordered", "batch", "tags", "delay", "large"}
CONSUMING: Final = {"push", "orderly", "broadcast", "lite", "assign", "retry", "dead"}
# And that messages have ids of their own.
EVERYTHING: Final = frozenset({*SENDING, *CONSUMING, "query", "offsets", "unique"})

_numbers = itertools.count()


class JobError(Exception):
    """What the library said, in its words."""


@dataclass(frozen=True, slots=True)
class Client:
    """A client library: how it is run, and which of the jobs it can do."""

    name: str
    program: str
    # Which library of the program, if it has several.
    world: str = ""
    can: frozenset[str] = EVERYTHING


JAVA: Final = tuple(
    Client(f"java-{version}-{header}", "java", f"{version}-{header}") for version in ("4.9", "5.3") for header in ("json", "binary")
)
GO: Final = Client("go", "go", can=EVERYTHING - {"query", "offsets", "assign"})
# No one-way sends and no batches, nothing orderly, and its messages have no ids of their own: one that comes again has another.
NODE: Final = Client("ali-ons", "ali-ons", can=frozenset(["sync", "tags", "delay", "push", "broadcast", "retry", "dead"]))
# Its large messages are smaller than that, broadcasts begin at the end, and 16 times is what it tries.
PYPI: Final = Client(
    "pypi-rocketmq", "pypi", can=frozenset(["sync", "oneway", "ordered", "tags", "delay", "push", "orderly", "retry", "unique"])
)
OWN: Final = Client("polymq", "own", can=EVERYTHING - {"query", "offsets"})
CLIENTS: Final = (*JAVA, GO, NODE, PYPI, OWN)


def java_program(folder: Path) -> list[str]:
    worlds = []
    for client in JAVA:
        version, header = client.world.split("-")
        jars = f"{JAVA_PEERS / f'peer-{version}'}{os.pathsep}{JAVA_PEERS / f'client-{version}'}"
        worlds.append(f"{client.world}={'ROCKETMQ' if header == 'binary' else 'JSON'}={jars}")
    return [*java_command(folder, ["worlds"], options=[f"-Drocketmq.client.rebalance.waitInterval={REBALANCE_MS}"]), "Worlds", *worlds]


PROGRAMS: Final[dict[str, Callable[[Path], list[str]]]] = {
    "java": java_program,
    "go": lambda _: [str(PEERS / "bin" / "rocketmq-go-client")],
    "ali-ons": lambda _: ["node", str(PEERS / "ali-ons" / "client.js")],
    "pypi": lambda _: [sys.executable, str(HERE / "clients" / "rocketmq_pypi.py")],
    "own": lambda _: [sys.executable, str(HERE / "clients" / "rocketmq_own.py")],
}


class Program:
    """A program that runs, what it answers, and what it gets."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        with self.log.open("ab") as errors:
            self.process = subprocess.Popen(
                PROGRAMS[name](folder),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=folder,
                env=os.environ | {"HOME": str(folder)},
            )
        self._said = threading.Condition()
        self._answers: dict[int, dict[str, Any]] = {}
        self._events: dict[str, list[dict[str, Any]]] = {}
        self._ended = False
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found = json.loads(line)
            with self._said:
                if "event" in found:
                    self._events.setdefault(found["name"], []).append(found)
                else:
                    self._answers[found["id"]] = found
                self._said.notify_all()
        with self._said:
            self._ended = True
            self._said.notify_all()

    def events(self, name: str) -> list[dict[str, Any]]:
        """What a consumer has got so far."""
        with self._said:
            return list(self._events.get(name, []))

    def wait_for(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something is so; it is looked at whenever the program says anything."""
        deadline = time.monotonic() + timeout_s
        with self._said:
            while not condition():
                left = deadline - time.monotonic()
                if left <= 0 or self._ended:
                    return condition()
                self._said.wait(min(left, 0.5))
        return True

    def begin(self, world: str, job: Mapping[str, Any]) -> int:
        """Give it a job; the number is for `result`."""
        number = next(_numbers)
        line = json.dumps({"id": number, **job})
        assert self.process.stdin is not None
        with self._said:
            self.process.stdin.write(f"{world} {line}\n".encode() if world else f"{line}\n".encode())
            self.process.stdin.flush()
        return number

    def result(self, number: int, timeout_s: float = JOB_TIMEOUT_S) -> Any:
        """Wait for what came of a job. Raises JobError with the library's words."""
        if not self.wait_for(lambda: number in self._answers, timeout_s):
            pytest.fail(f"{self.name} did not answer: {self.log.read_text(errors='replace')[-2000:]}")
        answer = self._answers.pop(number)
        if "error" in answer:
            raise JobError(answer["error"])
        return answer["result"]

    def end(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._listener.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@dataclass(slots=True)
class Member:
    """A producer or a consumer of a client library."""

    client: Client
    program: Program
    name: str

    def do(self, what: str, **job: Any) -> Any:
        """Do a job in its name."""
        return self.program.result(self.program.begin(self.client.world, {"do": what, "name": self.name, **job}))

    def close(self) -> None:
        self.do("close")


class Producer(Member):
    """One that sends."""

    def send(self, topic: str, messages: Iterable[Mapping[str, Any]], mode: str = "sync") -> list[dict[str, Any]]:
        """What each send returned."""
        found: list[dict[str, Any]] = self.do("send", topic=topic, mode=mode, messages=list(messages))
        return found


class Consumer(Member):
    """One that gets messages."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        """All so far."""
        return self.program.events(self.name)

    @property
    def bodies(self) -> list[str]:
        return [each["body"] for each in self.messages]

    def wait(self, count: int, timeout_s: float = PATIENCE_S) -> list[dict[str, Any]]:
        """Wait until it has got so many."""
        self.program.wait_for(lambda: len(self.messages) >= count, timeout_s)
        found = self.messages
        assert len(found) >= count, f"{self.client.name}: {len(found)} of {count} messages after {timeout_s:.0f} s: {self.bodies}"
        return found

    def wait_until(self, condition: Callable[[list[dict[str, Any]]], bool], timeout_s: float = PATIENCE_S) -> list[dict[str, Any]]:
        """Wait until what it has got is enough."""
        self.program.wait_for(lambda: condition(self.messages), timeout_s)
        return self.messages


@dataclass(slots=True)
class Programs:
    """The programs that run, each started when it is first needed; leaving the context ends them."""

    folder: Path
    running: dict[str, Program] = field(default_factory=dict)
    _members: list[Member] = field(default_factory=list)

    def __enter__(self) -> Programs:
        return self

    def __exit__(self, *_: object) -> None:
        for program in self.running.values():
            program.end()

    def of(self, client: Client) -> Program:
        """The program of a client library."""
        program = self.running.get(client.program)
        if program is None or program.process.poll() is not None:
            folder = self.folder / client.program
            folder.mkdir(exist_ok=True)
            program = self.running[client.program] = Program(client.program, folder)
        return program

    def producer(self, client: Client, server: RocketmqServer, group: str = "interop-producers") -> Producer:
        """Start a producer."""
        member = Producer(client, self.of(client), f"p{next(_numbers)}")
        member.do("producer", server=server.name_server, group=group)
        self._members.append(member)
        return member

    def push(
        self,
        client: Client,
        server: RocketmqServer,
        topic: str,
        group: str,
        *,
        expression: str = "*",
        model: str = "clustering",
        orderly: bool = False,
        first: bool = True,
        failures: int = 0,
        level: int = 1,
        reconsume_max: int = 16,
        instance: str | None = None,
    ) -> Consumer:
        """Start a consumer that is handed messages."""
        member = Consumer(client, self.of(client), f"c{next(_numbers)}")
        job = {"server": server.name_server, "topic": topic, "group": group, "expression": expression, "model": model, "orderly": orderly}
        job |= {"from": "first" if first else "last", "failures": failures, "level": level, "reconsume_max": reconsume_max}
        if instance is not None:
            job["instance"] = instance
        member.do("push", **job)
        self._members.append(member)
        return member

    def lite(
        self, client: Client, server: RocketmqServer, topic: str, group: str, *, expression: str = "*", assign: bool = False
    ) -> Consumer:
        """Start a consumer that asks for messages."""
        member = Consumer(client, self.of(client), f"c{next(_numbers)}")
        member.do("lite", server=server.name_server, topic=topic, group=group, expression=expression, assign=assign)
        self._members.append(member)
        return member

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """Close whoever was started within."""
        begun = len(self._members)
        try:
            yield
        finally:
            members, self._members[begun:] = self._members[begun:], []
            numbers = [(each.program, each.program.begin(each.client.world, {"do": "close", "name": each.name})) for each in members]
            for program, number in numbers:
                program.result(number)
