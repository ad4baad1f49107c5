"""Dialogues with servers that speak NATS: the same bytes to each, and what they answer, byte by byte, compared.

A *case* is a function of a `Stage`: it opens connections and says things; everything that is heard becomes a line. Each thing that is
said ends with PING, so that what comes before the PONG is the whole answer; who says something that leaves no room for that waits for
silence. INFO is shown by what sets it apart, and PINGs of the server are left out, unless the case is about them.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.interop.nats_servers import NatsServer

__all__ = ["ALONE", "PLAIN", "QUIET", "Case", "Cases", "Stage", "Talk", "played", "shown", "text", "wishes"]

TIMEOUT_S: Final = 10.0
# Silence for this long means that nothing more comes. It has to stand a machine that is busy with other things.
QUIET_S: Final = 0.5
# And for this long, where a PING has not been answered yet: in some cases it is part of something else, and never is.
UNANSWERED_S: Final = 2.0
# Between two pieces of something that is sent in pieces: long enough to be read apart, as a rule.
PIECES_APART_S: Final = 0.003
CASES_AT_ONCE: Final = 16
# The server of cases that are not to hear each other: they are played one after the other.
ALONE: Final = "alone"
LONG_BYTES: Final = 600
# One message for several subscriptions of the same connection: nats-server hands it out in the order of a Go map, which is any.
SAME_MESSAGE: Final = re.compile(
    rb"(?P<first>MSG (?P<subject>\S+) \S+(?P<rest>[^\r\n]*\r\n[^\r\n]*\r\n))(?:MSG (?P=subject) \S+(?P=rest))+"
)
PING_LINE: Final = b"PING\r\n"
PONG_LINE: Final = b"PONG\r\n"
# Facts of INFO that a dialogue may bring about; everything else of it is compared elsewhere.
INFO_FACTS: Final = ("connect_info", "ldm", "connect_urls")


def wishes(**wanted: object) -> bytes:
    """CONNECT."""
    return b"CONNECT " + json.dumps(wanted, separators=(",", ":")).encode() + b"\r\n"


# What client libraries ask for, and the least that says nothing by itself.
QUIET: Final = wishes(verbose=False, pedantic=False, headers=True, no_responders=True)
PLAIN: Final = wishes(verbose=False, pedantic=False)


def masked(data: bytes) -> str:
    """What was heard, with INFO reduced to facts."""

    def facts(found: re.Match[bytes]) -> bytes:
        info = json.loads(found[1])
        return b"INFO%b\r\n" % json.dumps({name: info[name] for name in INFO_FACTS if name in info}).encode()

    def in_order(found: re.Match[bytes]) -> bytes:
        return b"MSG ".join(sorted(found[0].split(b"MSG ")))

    data = SAME_MESSAGE.sub(in_order, data)
    data = re.sub(rb"INFO (\{[^\r\n]*\}) ?\r\n", facts, data)
    return text(data) if len(data) <= LONG_BYTES else f"{text(data[:60])}… {len(data)} bytes …{text(data[-60:])}"


def text(data: bytes) -> str:
    """One line of ASCII."""
    return data.decode("latin1").encode("unicode_escape").decode()


class Talk:
    """One connection, and what is heard on it."""

    def __init__(self, stage: Stage, name: str, port: int) -> None:
        self._stage = stage
        self._name = f"{name}: " if name else ""
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pings = 0
        self._heard = b""
        self.closed = False
        self.began = time.monotonic()
        self.info: dict[str, Any] = {}
        while not self.closed and b"\r\n" not in self._heard:
            self._receive(TIMEOUT_S)
        if self._heard.startswith(b"INFO "):
            line, _, self._heard = self._heard.partition(b"\r\n")
            self.info = json.loads(line[5:])

    def send(self, *pieces: bytes) -> None:
        """Send, each piece by itself; that the server has closed is heard, not felt."""
        with contextlib.suppress(OSError):
            for number, piece in enumerate(pieces):
                if number:
                    time.sleep(PIECES_APART_S)
                self.socket.sendall(piece)

    def say(self, *pieces: bytes, note: str = "") -> str:
        """Send, and PING behind it; write down the answer up to the PONG."""
        self._pings += b"".join(pieces).upper().count(b"PING") + 1
        self.send(*pieces, PING_LINE) if len(pieces) > 1 else self.send(b"".join(pieces) + PING_LINE)
        return self.hear(note or shown(b"".join(pieces)))

    def hear(self, note: str = "", *, quiet_s: float = QUIET_S) -> str:
        """Write down all that has come when the last PING is answered, or when it is quiet."""
        while not self.closed and (self._heard.count(PONG_LINE) < self._pings or not self._pings):
            if not self._receive(max(quiet_s, UNANSWERED_S) if self._pings else quiet_s):
                break
        heard, self._heard, self._pings = self._heard, b"", 0
        heard = re.sub(rb"(^|(?<=\r\n))PING\r\n", b"", heard)
        answer = f"{masked(heard)} {'[closed]' if self.closed else '[open]'}"
        self._stage.note(f"{self._name}{note} -> {answer}")
        return answer

    def hear_for(self, seconds: float) -> list[tuple[float, bytes]]:
        """All that comes within a time, or until the server closes, and when; the close is an empty one."""
        found: list[tuple[float, bytes]] = []
        end = time.monotonic() + seconds
        while not self.closed and (left := end - time.monotonic()) > 0:
            if self._receive(left):
                found.append((time.monotonic() - self.began, self._heard))
                self._heard = b""
        if self.closed:
            found.append((time.monotonic() - self.began, b""))
        return found

    def finish(self) -> None:
        """Send nothing more."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.socket.close()

    def _receive(self, quiet_s: float) -> bool:
        self.socket.settimeout(quiet_s)
        try:
            data = self.socket.recv(1 << 18)
        except TimeoutError:
            return False
        except OSError:
            data = b""
        self.closed = not data
        self._heard += data
        return bool(data)


def shown(data: bytes) -> str:
    return text(data) if len(data) <= 160 else f"{text(data[:80])}… {len(data)} bytes"


@dataclass
class Stage:
    """Where a case plays: one server, and what has been heard of it. `word` begins every subject that the case has for itself."""

    server: NatsServer
    word: str
    lines: list[str] = field(default_factory=list)
    _open: list[Talk] = field(default_factory=list)

    def connect(self, name: str = "", *, connect: bytes = b"") -> Talk:
        """Begin to talk; a name is needed if there are two."""
        talk = Talk(self, name, self.server.client_port)
        self._open.append(talk)
        if connect:
            talk.say(connect)
        return talk

    def note(self, line: str) -> None:
        self.lines.append(line.replace(self.word, "WORD"))

    def end(self) -> None:
        for each in self._open:
            each.close()


@dataclass(frozen=True)
class Case:
    """Something to play. `server` names the settings that it needs."""

    name: str
    play: Callable[[Stage], None]
    server: str = ""


class Cases:
    """The cases of a module."""

    def __init__(self) -> None:
        self.all: list[Case] = []

    def case(self, server: str = "") -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
        """Add one."""

        def add(play: Callable[[Stage], None]) -> Callable[[Stage], None]:
            self.add(play.__name__.replace("_", " "), play, server)
            return play

        return add

    def add(self, name: str, play: Callable[[Stage], None], server: str = "") -> None:
        """Add one by name."""
        assert name not in {each.name for each in self.all}, name
        self.all.append(Case(name, play, server))


# By case, then by kind of server.
Transcripts = dict[str, dict[str, list[str]]]


def perform(number: int, case: Case, server: NatsServer) -> list[str]:
    stage = Stage(server, f"w{number}w")
    try:
        case.play(stage)
    except Exception as error:
        stage.note(f"the case broke off: {error!r}")
    finally:
        stage.end()
    return stage.lines


def played(cases: Cases, servers: Mapping[str, Mapping[str, NatsServer]]) -> Transcripts:
    """Play all cases on all servers: by the settings' name, then by kind. What was answered differently is played once more, alone."""
    transcripts: Transcripts = {case.name: {} for case in cases.all}
    shared = [(number, case) for number, case in enumerate(cases.all) if case.server != ALONE]
    alone = [(number, case) for number, case in enumerate(cases.all) if case.server == ALONE]

    def play(some: Sequence[tuple[int, Case]], kind: str, server: NatsServer) -> None:
        for number, case in some:
            transcripts[case.name][kind] = perform(number, case, server)

    with ThreadPoolExecutor(CASES_AT_ONCE) as pool:
        futures = [pool.submit(play, alone, kind, server) for kind, server in servers.get(ALONE, {}).items()]
        for each in shared:
            futures += [pool.submit(play, [each], kind, server) for kind, server in servers[each[1].server].items()]
        for future in futures:
            future.result()
    for number, case in enumerate(cases.all):
        found = transcripts[case.name]
        if len({tuple(lines) for lines in found.values()}) > 1:
            for kind, server in servers[case.server].items():
                found[kind] = perform(number + len(cases.all), case, server)
    return transcripts
