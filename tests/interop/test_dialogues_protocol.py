"""The TCP protocol, word by word as nsqd 1.3.0, beyond what the given probes ask: what several connections see of each other, what
statistics count, and commands in any order.
"""

from __future__ import annotations

import contextlib
import random
import re
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.dialogue import Case, Cases, Dialogue, Playing, Stage, Transcripts, dpub, identify, judge, mpub, played, pub
from tests.interop.servers import KINDS, NSQD, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CASES = Cases()
case = CASES.case
SEEDS = 24
STEPS = 24
COUNTS = ("depth", "in_flight_count", "deferred_count", "message_count", "requeue_count", "timeout_count")


@pytest.fixture(scope="module")
def transcripts(tmp_path_factory: pytest.TempPathFactory) -> Transcripts:
    @contextlib.contextmanager
    def playing() -> Iterator[Playing]:
        with contextlib.ExitStack() as stack:
            servers = {kind: stack.enter_context(running(kind, tmp_path_factory.mktemp(kind))) for kind in KINDS}
            yield {"": servers}, {}

    return played(CASES, playing)


@pytest.mark.parametrize("each", CASES.all, ids=lambda each: each.name)
def test_both_say_the_same(each: Case, transcripts: Transcripts) -> None:
    judge(each, transcripts)


def counted(stage: Stage, topic: str, channel: str = "c") -> None:
    """Write down what is counted of a channel."""
    found = stage.server.channel(topic, channel)
    stage.note(f"{topic}/{channel}: {', '.join(f'{name} {found[name]}' for name in COUNTS)}")


@case()
def one_id_in_every_channel(stage: Stage) -> None:
    first, second, publisher = stage.connect("first"), stage.connect("second"), stage.connect("publisher")
    first.subscribe("channels", "a", 1)
    second.subscribe("channels", "b", 1)
    publisher.ok(pub("channels", b"same"))
    first.hear("")
    second.hear("")
    stage.note(f"the same id: {first.ids == second.ids}")


@case()
def what_is_deferred_is_counted(stage: Stage) -> None:
    client = stage.connect()
    client.subscribe("deferred")
    client.ok(dpub("deferred", 60_000))
    stage.wait(lambda: stage.server.channel("deferred", "c")["deferred_count"] == 1)
    counted(stage, "deferred")
    client.say("one more than an hour", dpub("deferred", 3_600_100))


@case()
def a_fatal_error_is_the_last_frame(stage: Stage) -> None:
    client = stage.connect()
    client.say("ASDF", pub("fatal"), b"ASDF\n", pub("fatal"))
    stage.note(str(stage.server.topic("fatal")["message_count"]))


@case()
def an_error_that_nobody_reads(stage: Stage) -> None:
    client = stage.connect()
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.send(b"ASDF\n")
    client.close()
    stage.connect("another").say("is not disturbed", pub("reset"))


@case()
def ids_that_are_none(stage: Stage) -> None:
    for number, words in enumerate(
        (b"FIN \n", b"FIN\n", b"FIN  x\n", b"TOUCH \n", b"REQ  0\n", b"REQ\n", b"FIN 0123456789ABCDEF\n", b"FIN ................\n")
    ):
        client = stage.connect()
        client.subscribe(f"ids{number}")
        client.say(repr(words), words, b"NOP\n")


@case()
def sampling(stage: Stage) -> None:
    client = stage.connect()
    client.settings(sample_rate=42)
    client.ok(mpub("sampled", *(b"%d" % number for number in range(2000))))
    client.subscribe("sampled", "c", 2500)
    stage.wait(lambda: stage.server.channel("sampled", "c")["depth"] == 0)
    found = stage.server.channel("sampled", "c")
    stage.note(
        f"about 43 of 100: {760 <= found['in_flight_count'] <= 960}; counted {found['message_count']}, given back {found['requeue_count']}"
    )


@case()
def two_consumers_of_one_channel(stage: Stage) -> None:
    first, second, publisher = stage.connect("first"), stage.connect("second"), stage.connect("publisher")
    first.subscribe("shared", "c", 1)
    second.subscribe("shared", "c", 1)
    publisher.ok(mpub("shared", b"1", b"2", b"3"))
    mine = first.take()
    theirs = second.take()
    for word in (b"FIN", b"TOUCH"):
        first.say(word.decode(), word + b" " + theirs[0] + b"\n")
    first.say("REQ", b"REQ " + theirs[0] + b" 0\n")
    second.say("FIN", b"FIN " + mine[0] + b"\n")
    counted(stage, "shared")
    first.say("RDY 0, FIN", b"RDY 0\n", b"FIN " + mine[0] + b"\n")
    second.say("FIN", b"FIN " + theirs[0] + b"\n")
    counted(stage, "shared")


@case()
def names_of_clients(stage: Stage) -> None:
    known: list[dict[str, Any]] = [{}, {"client_id": None}, {"client_id": "a", "hostname": "b", "user_agent": "c/1"}, {"short_id": "s"}]
    for number, fields in enumerate(known):
        client = stage.connect()
        client.send(b"IDENTIFY\n" + struct.pack(">i", 2) + b"{}") if not fields else client.settings(**fields)
        client.send(f"SUB names{number} c\n".encode())
        client.hear("SUB")
        (shown,) = stage.server.channel(f"names{number}", "c")["clients"]
        stage.note(str({name: value for name, value in shown.items() if name not in {"connect_ts", "remote_address"}}))


@case()
def states_and_counts_of_a_client(stage: Stage) -> None:
    client = stage.connect()
    client.settings()
    client.subscribe("states", "c", 2)
    stage.wait(lambda: stage.server.channel("states", "c")["clients"][0]["ready_count"] == 2)

    def shown() -> None:
        (found,) = stage.server.channel("states", "c")["clients"]
        stage.note(
            str([found[name] for name in ("state", "ready_count", "in_flight_count", "message_count", "finish_count", "requeue_count")])
        )

    shown()
    client.ok(mpub("states", b"1", b"2", b"3"))
    ids = client.take(2)
    shown()
    client.say("FIN, REQ", b"FIN " + ids[0] + b"\n", b"REQ " + ids[1] + b" 60000\n")
    shown()
    client.say("CLS", b"CLS\n")
    shown()
    counted(stage, "states")


class Player:
    """One connection that does anything that comes to mind, from a seed."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.chance = random.Random(seed)
        self.stage = stage
        self.seed = seed
        self.client: Dialogue = stage.connect()
        self.subscribed = False
        # What was out when an error ended a connection is left to chance, so the next one has topics of its own.
        self.life = 0

    def step(self, number: int) -> None:
        """One command, or a few at once; what came of it, sorted, because answers and messages overtake each other."""
        if self.client.closed:
            self.client, self.subscribed, self.life = self.stage.connect(), False, self.life + 1
        words = self.command()
        # RDY goes alone: what nsqd does between it and a FIN beside it is left to chance.
        for _ in range(self.chance.choice((0, 0, 0, 1, 2)) if b"RDY" not in words else 0):
            words += self.command(also_ready=False)
        self.client.send(words)
        self.client.hear(f"{number} {words[:40]!r}", quiet_s=0.3)
        head, _, heard = self.stage.lines.pop().partition(" -> ")
        shown = " ".join("<ID>" if len(word) == 16 else word for word in head.split(" "))
        frames = sorted(heard.split(" | "))
        if self.client.closed:
            # A message may or may not slip out beside the error that ends the connection.
            frames = [frame for frame in frames if not frame.startswith("MSG")]
        self.stage.note(f"{shown.partition(' ')[0]} {len(words)} -> {' | '.join(frames)}")

    def command(self, *, also_ready: bool = True) -> bytes:
        chance, topic = self.chance, f"any{self.seed}{'ab'[self.chance.random() < 0.5]}{self.life}"
        # As many numbers are drawn whatever has been heard, so that both servers hear the same words for as long as they agree.
        ids, place, foreign = self.client.ids, chance.random(), chance.random() < 0.1
        held = b"0123456789abcdef" if foreign or not ids else ids[int(place * len(ids))]
        plain: tuple[Callable[[], bytes], ...] = (
            lambda: pub(topic, b"%d" % chance.randrange(1000)),
            lambda: pub(topic, b"%d" % chance.randrange(1000)),
            lambda: mpub(topic, b"m1", b"m2", b"m3"),
            lambda: dpub(topic, chance.choice((0, 3_600_000))),
            lambda: f"RDY {chance.choice((0, 1, 2, 2, 5, 2500))}\n".encode() if also_ready else b"NOP\n",
            lambda: b"FIN " + held + b"\n",
            lambda: b"FIN " + held + b"\r\n",
            lambda: b"REQ " + held + b" " + chance.choice((b"0", b"600000", b"99999999999")) + b"\n",
            lambda: b"TOUCH " + held + b"\n",
            lambda: b"NOP\n",
        )
        odd: tuple[Callable[[], bytes], ...] = (
            lambda: b"CLS\n",
            lambda: f"SUB {topic} c\n".encode(),
            lambda: identify(msg_timeout=chance.choice((0, 900_000, 900_001))),
            lambda: b"RDY 2501\n" if also_ready else b"NOP\n",
            lambda: b"FIN short\n",
            lambda: pub(topic, b""),
            lambda: mpub(topic, b"m1", b""),
            lambda: b"AUTH\n" + struct.pack(">i", 1) + b"x",
            lambda: b"what\n",
        )
        if not self.subscribed:
            self.subscribed = True
            return chance.choice((identify(), b"", pub(topic))) + f"SUB {topic} c\n".encode() + chance.choice((b"", b"RDY 1\n", b"RDY 4\n"))
        return chance.choice(odd if chance.random() < 0.08 else plain)()


def add_any_order() -> None:
    for seed in range(SEEDS):

        def play(stage: Stage, seed: int = seed) -> None:
            player = Player(stage, seed)
            for number in range(STEPS):
                player.step(number)

        play.__name__ = f"commands_in_any_order_{seed}"
        case()(play)


add_any_order()


def test_over_socket_files(tmp_path: Path) -> None:
    """Both doors may be files."""

    def play(kind: str) -> list[str]:
        folder = tmp_path / kind
        folder.mkdir()
        doors = [str(folder / "tcp.sock"), str(folder / "http.sock")]
        said = []
        with serving(kind, folder, doors):
            for door, words in (
                (doors[1], b"GET /ping HTTP/1.0\r\n\r\n"),
                (doors[0], b"  V2" + identify() + pub("file") + b"SUB file c\nRDY 1\n"),
            ):
                with socket.socket(socket.AF_UNIX) as client:
                    client.settimeout(0.5)
                    client.connect(door)
                    client.sendall(words)
                    heard = b""
                    with contextlib.suppress(TimeoutError):
                        while data := client.recv(65536):
                            heard += data
                said.append(re.sub(rb"(?s)Date: [^\r]*|\x02.{10}[0-9a-f]{16}x", b"<MASKED>", heard).decode("latin1"))
        return said

    nsqd, polymq = (play(kind) for kind in KINDS)
    assert polymq[1] == nsqd[1]
    assert polymq[0].splitlines()[0] == nsqd[0].splitlines()[0] == "HTTP/1.0 200 OK"


@contextlib.contextmanager
def serving(kind: str, folder: Path, doors: list[str]) -> Iterator[None]:
    """Run a server on two socket files."""
    program = [str(NSQD)] if kind == "nsqd" else [sys.executable, "-m", "polymq.cli", "nsqd"]
    words = [*program, f"-data-path={folder}", f"-tcp-address={doors[0]}", f"-http-address={doors[1]}"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while not all(Path(door).is_socket() for door in doors):
            assert process.poll() is None, f"{kind} did not start"
            assert time.monotonic() < deadline, f"{kind} does not listen"
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.wait(20)
