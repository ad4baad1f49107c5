"""Dialogues with two servers, nsqd 1.3.0 and polymq: the same is said to both, and what they answer is written down and compared.

A *case* is a function of a `Stage`: it opens connections, speaks, and everything that it hears becomes a line. Ids, times, ports and
names of hosts are masked; nothing else may differ, unless the case says so: `differs` gives polymq's own lines, and why.

All cases of a module are played at once, each on both servers (`played`), because most of them wait to see that nothing more comes.
A disk or a machine that stands still for longer than that makes the two differ, so what differs is played once more, alone, on new
servers; the summary of the run names those cases. A module that uses this has a fixture `transcripts`, and one test per case that
calls `judge`.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import re
import socket
import ssl
import struct
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import snappy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager

    from tests.interop.servers import Running

__all__ = ["Case", "Cases", "Dialogue", "Stage", "Transcripts", "dpub", "identify", "judge", "mpub", "played", "pub", "sized"]

TIMEOUT_S: Final = 10.0
# Silence for this long means that nothing more comes. It has to stand a machine that is busy with other things.
QUIET_S: Final = 0.4
# Heartbeats may go on for ever.
LISTENING_S: Final = 20.0
CASES_AT_ONCE: Final = 12
KINDS: Final = {0: "RESP", 1: "ERR", 2: "MSG"}
MASKS: Final = (
    (rb"\b[0-9a-f]{16}\b", b"<ID>"),
    (rb"127\.0\.0\.1:\d+", b"<ADDRESS>"),
    (rb'"start_time":\d+', b'"start_time":<TIME>'),
    (rb'"hostname":"[^"]*"', b'"hostname":"<HOST>"'),
)
LONG_BYTES: Final = 400
# What the summary of the run names.
PLAYED_AGAIN: Final[list[str]] = []


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def identify(**fields: object) -> bytes:
    return b"IDENTIFY\n" + sized(json.dumps({"feature_negotiation": True, "client_id": "c", "hostname": "h", **fields}).encode())


def pub(topic: str, body: bytes = b"x") -> bytes:
    return f"PUB {topic}\n".encode() + sized(body)


def dpub(topic: str, delay_ms: int, body: bytes = b"x") -> bytes:
    return f"DPUB {topic} {delay_ms}\n".encode() + sized(body)


def mpub(topic: str, *bodies: bytes) -> bytes:
    return f"MPUB {topic}\n".encode() + sized(struct.pack(">i", len(bodies)) + b"".join(map(sized, bodies)))


def masked(data: bytes) -> str:
    for pattern, replacement in MASKS:
        data = re.sub(pattern, replacement, data)
    return repr(data)[1:] if len(data) <= LONG_BYTES else f"{data[:60]!r}… {len(data)} bytes"


class Dialogue:
    """One connection, and what is heard on it."""

    def __init__(self, stage: Stage, name: str, address: str, magic: bytes = b"  V2") -> None:
        self._stage = stage
        self._name = name
        host, _, port = address.rpartition(":")
        self.socket: socket.socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self._compress: Callable[[bytes], bytes] = bytes
        self._decompress: Callable[[bytes], bytes] = bytes
        self._input = b""
        self.closed = False
        self.began = time.monotonic()
        self.ids: list[bytes] = []
        if magic:
            self.send(magic)

    def send(self, *chunks: bytes) -> None:
        """Send, each chunk by itself; that the server has closed is heard, not felt."""
        with contextlib.suppress(OSError):
            for chunk in chunks:
                self.socket.sendall(self._compress(chunk))

    def say(self, text: str, *chunks: bytes, quiet_s: float = QUIET_S, timed: bool = False) -> None:
        """Send, and write down all that comes until it is quiet."""
        self.send(*chunks)
        self.hear(text, quiet_s=quiet_s, timed=timed)

    def hear(self, text: str, *, quiet_s: float = QUIET_S, at_most_s: float = LISTENING_S, timed: bool = False) -> None:
        """Write down all that comes until it is quiet; if `timed`, with the time since the dialogue began, to half a second."""
        heard = []
        end = time.monotonic() + at_most_s
        while (frame := self._frame(min(quiet_s, max(0.0, end - time.monotonic())))) is not None:
            heard.append((f"{self._time()} " if timed else "") + self._show(*frame))
        self._listened(text, heard, timed=timed)

    def hear_one(self, text: str) -> None:
        """Write down the next frame, and touch nothing of what is behind it: it may be of another kind."""
        frame = self._frame(TIMEOUT_S)
        self._listened(text, [self._show(*frame)] if frame else [])

    def _listened(self, text: str, heard: list[str], *, timed: bool = False) -> None:
        if timed and self.closed and heard and heard[-1] == f"{self._time()} RESP '_heartbeat_'":
            heard.pop()  # due at the same moment: either may be first
        end = f"{self._time()} [closed]" if timed and self.closed else "[closed]" if self.closed else "[open]"
        self._stage.note(f"{self._name}{text} -> {' | '.join([*heard, end])}")

    def take(self, count: int = 1) -> list[bytes]:
        """Receive messages without a word about it; their ids."""
        found: list[bytes] = []
        while len(found) < count:
            frame = self._frame(TIMEOUT_S)
            assert frame is not None, "no message came"
            if frame[0] == 2:
                found.append(frame[1][10:26])
            else:
                assert frame == (0, b"_heartbeat_"), frame
                self.send(b"NOP\n")
        self.ids += found
        return found

    def ok(self, *chunks: bytes) -> None:
        """Send what has to be answered by OK."""
        self.send(*chunks)
        frame = self._frame(TIMEOUT_S)
        assert frame == (0, b"OK"), frame

    def subscribe(self, topic: str, channel: str = "c", ready: int | None = None) -> None:
        self.ok(f"SUB {topic} {channel}\n".encode())
        if ready is not None:
            self.send(b"RDY %d\n" % ready)

    def settings(self, **fields: object) -> dict[str, Any]:
        """IDENTIFY; write down the answer, and return it. Stops before whatever it leads to."""
        self.send(identify(**fields))
        frame = self._frame(TIMEOUT_S)
        self._stage.note(f"{self._name}IDENTIFY {json.dumps(fields)} -> {self._show(*frame) if frame else '[closed]'}")
        return dict(json.loads(frame[1])) if frame and frame[1].startswith(b"{") else {}

    def tls(self, context: ssl.SSLContext | None = None) -> bool:
        """Shake hands; write down how that went."""
        context = context or trusting()
        try:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        except (OSError, ssl.SSLError) as error:
            self._stage.note(f"{self._name}TLS -> {problem(error)}")
            return False
        self._stage.note(f"{self._name}TLS -> {self.socket.version()} {self.socket.selected_alpn_protocol()}")
        return True

    def snappy(self) -> None:
        """Speak and hear snappy from here on."""
        self._compress, self._decompress = snappy.StreamCompressor().compress, snappy.StreamDecompressor().decompress
        self._input = self._decompress(self._input) if self._input else b""

    def deflate(self) -> None:
        """Speak and hear deflate from here on."""
        deflater, inflater = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS), zlib.decompressobj(-zlib.MAX_WBITS)
        self._compress = lambda data: deflater.compress(data) + deflater.flush(zlib.Z_SYNC_FLUSH)
        self._decompress = inflater.decompress
        self._input = self._decompress(self._input) if self._input else b""

    def plain(self) -> None:
        """Speak without compression again; what comes is still heard through it."""
        self._compress = bytes

    def finish(self) -> None:
        """Send nothing more; inside TLS as well without a word of farewell, which `shutdown` of an SSLSocket is not made for."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.socket, socket.SHUT_WR)

    def close(self) -> None:
        self.socket.close()

    def _time(self) -> str:
        return f"{round((time.monotonic() - self.began) * 2) / 2:.1f}s"

    def _show(self, kind: int, data: bytes) -> str:
        if kind != 2:
            return f"{KINDS.get(kind, kind)} {masked(data)}"
        self.ids.append(data[10:26])
        return f"MSG attempts={struct.unpack('>H', data[8:10])[0]} {masked(data[26:])}"

    def _frame(self, quiet_s: float) -> tuple[int, bytes] | None:
        if not self._fill(8, quiet_s):
            return None
        size, kind = struct.unpack(">ii", self._input[:8])
        if not 4 <= size <= 1 << 24:
            self._stage.note(f"{self._name}no frame -> {masked(self._input)}")
            self._input = b""
            return None
        if not self._fill(4 + size, TIMEOUT_S):
            return None
        data, self._input = self._input[8 : 4 + size], self._input[4 + size :]
        return kind, data

    def _fill(self, count: int, quiet_s: float) -> bool:
        deadline = time.monotonic() + quiet_s
        while len(self._input) < count and not self.closed:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(1 << 16)
            except TimeoutError:
                return False
            except OSError as error:
                if isinstance(error, ssl.SSLError):
                    self._stage.note(f"{self._name}TLS -> {problem(error)}")
                data = b""
            if not data:
                self.closed = True
            else:
                self._input += self._decompress(data)
        return len(self._input) >= count


def trusting() -> ssl.SSLContext:
    """Make a client's side that asks no questions."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def problem(error: OSError) -> str:
    """Name what went wrong, without the place in OpenSSL's source."""
    return str(error.reason) if isinstance(error, ssl.SSLError) and error.reason else type(error).__name__


@dataclass
class Stage:
    """Where a case plays: one server, and what has been heard of it."""

    server: Running
    more: Mapping[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    _open: list[Dialogue] = field(default_factory=list)

    def connect(self, name: str = "", magic: bytes = b"  V2") -> Dialogue:
        """Begin a dialogue; a name is needed if there are two."""
        dialogue = Dialogue(self, f"{name}: " if name else "", self.server.tcp, magic)
        self._open.append(dialogue)
        return dialogue

    def ask(self, method: str, path: str, body: bytes = b"") -> None:
        """Ask over HTTP, and write down the answer."""
        status, answer = self.server.request(method, path, body)
        self.note(f"{method} {path} -> {status} {masked(answer)}")

    def note(self, line: str) -> None:
        self.lines.append(line)

    def wait(self, condition: Callable[[], object], patience_s: float = TIMEOUT_S) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + patience_s
        while not condition():
            assert time.monotonic() < deadline, "it never came true"
            time.sleep(0.02)

    def end(self) -> None:
        for each in self._open:
            each.close()


@dataclass(frozen=True)
class Case:
    """Something to play. `server` names the settings that it needs; `differs` is polymq's own transcript, if it has one, and `why`."""

    play: Callable[[Stage], None]
    server: str
    differs: tuple[str, ...] = ()
    why: str = ""

    @property
    def name(self) -> str:
        return self.play.__name__


class Cases:
    """The cases of a module."""

    def __init__(self) -> None:
        self.all: list[Case] = []

    def case(
        self, server: str = "", *, differs: Iterable[str] = (), why: str = ""
    ) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
        """Add one."""
        lines = tuple(differs)
        assert bool(lines) == bool(why), "a difference has a reason"

        def add(play: Callable[[Stage], None]) -> Callable[[Stage], None]:
            self.all.append(Case(play, server, lines, why))
            return play

        return add


# By case, then by server.
Transcripts = dict[str, dict[str, list[str]]]


def perform(case: Case, running: Running, more: Mapping[str, Any]) -> list[str]:
    stage = Stage(running, more)
    try:
        case.play(stage)
    except Exception as error:
        stage.note(f"the case broke off: {error!r}")
    finally:
        stage.end()
    return stage.lines


# By the settings' name, then by kind; and what else the cases need.
Playing = tuple[dict[str, dict[str, "Running"]], dict[str, Any]]


def played(cases: Cases, playing: Callable[[], AbstractContextManager[Playing]]) -> Transcripts:
    """Play all cases on all servers, which `playing` starts, and those that differ once more, one by one, on new servers."""
    transcripts: Transcripts = {}
    with playing() as (servers, more), ThreadPoolExecutor(CASES_AT_ONCE) as pool:
        futures = {
            (case.name, kind): pool.submit(perform, case, running, more)
            for case in cases.all
            for kind, running in servers[case.server].items()
        }
        for (name, kind), future in futures.items():
            transcripts.setdefault(name, {})[kind] = future.result()
    different = [case for case in cases.all if unlike(case, transcripts)]
    if different:
        PLAYED_AGAIN.extend(f"{Path(case.play.__code__.co_filename).stem}: {case.name}" for case in different)
        with playing() as (servers, more):
            for case in different:
                for kind, running in servers[case.server].items():
                    transcripts[case.name][kind] = perform(case, running, more)
    return transcripts


def unlike(case: Case, transcripts: Transcripts) -> bool:
    """Say whether polymq did not say what it has to say."""
    found = transcripts[case.name]
    return found["polymq"] != (list(case.differs) or found["nsqd"])


def judge(case: Case, transcripts: Transcripts) -> None:
    """Compare what the two said; a listed difference must be there, and be the listed one."""
    nsqd, polymq = transcripts[case.name]["nsqd"], transcripts[case.name]["polymq"]
    assert nsqd, "nothing was heard"
    assert not any(line.startswith("the case broke off") for line in nsqd), nsqd
    if case.differs:
        assert polymq != nsqd, "polymq does as nsqd does: take the difference off"
    wanted = list(case.differs) or nsqd
    if polymq != wanted:
        pytest.fail("\n" + "\n".join(difflib.unified_diff(wanted, polymq, "wanted", "polymq", n=1, lineterm="")), pytrace=False)
