"""Dialogues with servers that speak RocketMQ: the same frames to each, and what they answer, compared.

A *case* is a function of a `Stage`: it asks the nameserver and the broker, and every answer becomes a line: code, remark, ext fields, body.
Names that a case makes up begin with the stage's word. What differs by nature is masked: addresses, ids, times, physical offsets,
the language and version of the server, and the place in the source that a real one adds to what went wrong.
"""

from __future__ import annotations

import contextlib
import json
import re
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.interop.rocketmq_raw import Connection, Frame, frame_bytes, properties, stored_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.interop.rocketmq_servers import RocketmqServer

__all__ = ["Case", "Cases", "Stage", "Talk", "pull", "send", "send_long"]

TIMEOUT_S: Final = 6.0
# Silence for this long means that nothing more comes.
QUIET_S: Final = 0.6
CASES_AT_ONCE: Final = 12
# What a real one has answered is in its queues by then.
STANDING_STILL_S: Final = 0.8
# And for so long it may not have got to what it has answered.
COUNTING_S: Final = 5.0
# Seen, and masked in an order that does not take one for the other.
MASKS: Final = (
    # Of the longer ones the host is IPv6, or said to be.
    (re.compile(r"\b[0-9A-F]{32}\b|\b[0-9A-F]{56}\b"), "<ID>"),
    (re.compile(r"127\.0\.0\.1:\d+"), "<ADDRESS>"),
    (re.compile(r"\b1[789]\d{11}\b"), "<TIME>"),
    # A real one names its class, and the first line of its stack.
    (re.compile(r"^(?:[a-z]+\.)+[A-Za-z]+(?:Exception|Error)(: |$)"), ""),
    (re.compile(r",? ?(?:[a-z]+\.)+[A-Za-z$0-9]+\.[A-Za-z$<>0-9]+\([A-Za-z ]+(?:\.java:\d+)?\)(, )?"), ""),
    (re.compile(r"\nSee https?://\S+ for further details\."), ""),
    # Where a real one has put a message depends on what all cases have sent by then; what they make up has more digits.
    (re.compile(r"(?<=by the offset, )\d{1,12}\b"), "<OFFSET>"),
)
# Where a real one stumbles over a request (code 1) it says what Java said; polymq says what is wrong with the request.
STUMBLES: Final = re.compile(
    r"""Cannot\ (invoke|read)\ .*
    |   For\ input\ string:\ .*
    |   Illegal\ Capacity:\ .*
    |   java\.nio\.BufferUnderflowException.*
    |   (syntax\ error,\ )?expect\ .*
    |   not\ match\ :\ .*
    |   the\ custom\ field\ <\S+>\ is\ (null|no\ number|out\ of\ range|negative)
    |   the\ batch\ is\ empty|a\ size\ in\ the\ batch\ does\ not\ fit
    |   (consumer|producer)DataSet\ is\ no\ list|a\ group\ of\ \w+\ has\ no\ name
    |   the\ body\ is\ (not\ JSON|no\ JSON\ object)""",
    re.VERBOSE | re.DOTALL,
)
SYSTEM_ERROR: Final = 1
# What a real one says if nobody has set a remark.
NO_REMARK: Final = "not set any response code"
# Facts of a stored message that are to be the same.
FACTS: Final = ("queue", "flag", "offset", "sysflag", "reconsumed", "body", "topic", "properties")
LONG: Final = 300
# A name of so many characters.
LONG_NAME: Final = re.compile(r"<(\d+) characters>")


def send(topic: str, text: str = "", **more: Any) -> dict[str, Any]:
    """The ext fields of a send (310)."""
    fields = {"a": "WORD-producers", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000001", "h": "0", "i": text}
    return {**fields, "j": "0", "k": "false", "m": "false", **more}


LONG_NAMES: Final = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "l": "maxReconsumeTimes",
    "m": "batch",
}


def send_long(topic: str, text: str = "", **more: Any) -> dict[str, Any]:
    """The ext fields of a send (10)."""
    return {LONG_NAMES[name]: value for name, value in send(topic, text, **more).items()}


def pull(topic: str, **more: Any) -> dict[str, Any]:
    """The ext fields of a pull that brings its subscription and does not wait."""
    fields = {"consumerGroup": "WORD-consumers", "topic": topic, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4"}
    return {**fields, "commitOffset": "0", "suspendTimeoutMillis": "300", "subscription": "*", "subVersion": "0", **more}


def masked(text: str) -> str:
    for pattern, mask in MASKS:
        text = pattern.sub(mask, text)
    text = text.rstrip()
    return text if len(text) <= LONG else f"{text[:LONG]}… {len(text)}"


def body_shown(frame: Frame) -> str:
    """Messages by their facts, JSON with its keys in order, and anything else as it is."""
    body = frame.body
    if not body:
        return ""
    if body[4:8] == b"\xda\xa3\x20\xa7":
        found = []
        for message in stored_messages(body):
            facts = {name: message[name] for name in FACTS}
            facts["body"] = masked(repr(facts["body"]))
            facts["properties"] = dict(sorted(facts["properties"].items()))
            found.append(masked(json.dumps(facts)))
        return "[" + ", ".join(found) + "]"
    with contextlib.suppress(ValueError):
        return masked(json.dumps(json.loads(body), sort_keys=True))
    return masked(repr(body))


def remark_shown(frame: Frame) -> str:
    remark = masked(frame.remark or "")
    if frame.code == SYSTEM_ERROR and STUMBLES.fullmatch(remark):
        return " '<stumbles>'"
    return f" {remark!r}" if remark and remark != NO_REMARK else ""


def shown(frame: Frame, hidden: Sequence[str] = ()) -> str:
    # Where the newest index entry lies is nobody's business.
    hidden = [*hidden, "indexLastUpdatePhyoffset", "indexLastUpdateTimestamp"]
    ext = {name: "<…>" if name in hidden else masked(str(value)) for name, value in sorted(frame.ext.items())}
    return f"{frame.code}{remark_shown(frame)} {ext or ''} {body_shown(frame)}".rstrip()


class Talk:
    """One connection of a case."""

    def __init__(self, stage: Stage, name: str, port: int) -> None:
        self.stage = stage
        self.name = f"{name}: " if name else ""
        self.port = port
        self.connection = Connection(port, timeout_s=TIMEOUT_S)

    def named(self, value: Any) -> Any:
        """The stage's word where WORD stands."""
        if isinstance(value, bytes):
            return value.replace(b"WORD", self.stage.word.encode())
        if isinstance(value, str):
            value = LONG_NAME.sub(lambda found: self.stage.word.ljust(int(found[1]), "x"), value)
            return value.replace("WORD", self.stage.word)
        return value

    def ask(
        self,
        code: int,
        ext: Mapping[str, Any],
        body: bytes = b"",
        *,
        note: str = "",
        hidden: Sequence[str] = (),
        quietly: bool = False,
        **more: Any,
    ) -> Frame | None:
        """Ask, and write down the answer; None: there is none."""
        if self.connection.closed:
            self.connection = Connection(self.port, timeout_s=TIMEOUT_S)
        fields = {name: self.named(value) for name, value in ext.items()}
        answer = None
        try:
            answer = self.connection.ask(code, fields, self.named(body), **more)
            if answer.ext.get("queueId") == "0":
                self.stage.stored = max(self.stage.stored, int(answer.ext["queueOffset"]) + 1)
            heard = shown(answer, hidden)
        except TimeoutError:
            heard = "silence"
        except EOFError:
            heard = "closed"
        if not quietly:
            self.stage.note(f"{self.name}{note or code} -> {heard}")
        return answer

    def next_offset(self, topic: str) -> None:
        """Write down the next offset of the topic's first queue. A real one counts behind its answers, and now and then never comes to all."""
        found = self.await_offset(topic, None)
        if self.stage.server.kind != "polymq" and found.isdigit():
            found = str(max(int(found), self.stage.stored))
        self.stage.note(f"{self.name}and then the next offset -> {found}")

    def await_offset(self, topic: str, wanted: int | None) -> str:
        """Wait until the first queue of a topic has so many messages; None: all that have been answered, and then no more for a while."""
        found = ""
        since = began = time.monotonic()
        least = self.stage.stored if wanted is None else wanted
        while time.monotonic() < (since + STANDING_STILL_S if found.isdigit() and int(found) >= least else began + COUNTING_S):
            answer = self.ask(30, {"topic": topic, "queueId": "0"}, quietly=True)
            seen = answer.ext.get("offset", "") if answer else "nothing"
            if wanted is not None and seen == str(wanted):
                break
            if seen != found:
                found, since = seen, time.monotonic()
            time.sleep(0.02)
        return found

    def say(self, data: bytes, *, note: str, quiet_s: float = QUIET_S) -> None:
        """Say any bytes, and write down all that comes, and whether the connection stays."""
        if self.connection.closed:
            self.connection = Connection(self.port, timeout_s=TIMEOUT_S)
        self.connection.send(self.named(data))
        heard = [shown(each) for each in self.connection.hear(quiet_s)]
        self.stage.note(f"{self.name}{note} -> {'; '.join(heard)} [{'closed' if self.connection.closed else 'open'}]")

    def pushed(self, note: str, quiet_s: float = QUIET_S) -> None:
        """Write down what the server asks by itself."""
        before = list(self.connection.pushed)
        heard = [each for each in self.connection.hear(quiet_s) if not each.is_answer]
        self.stage.note(f"{self.name}{note} -> {'; '.join(shown(each) for each in [*before, *heard]) or 'nothing'}")


@dataclass
class Stage:
    """Where a case plays: one server, and what has been heard of it."""

    server: RocketmqServer
    word: str
    lines: list[str] = field(default_factory=list)
    stored: int = 0  # messages of a first queue, by the answers
    _open: list[Talk] = field(default_factory=list)

    def broker(self, name: str = "") -> Talk:
        """A connection to the broker; a name is needed if there are two."""
        return self._talk(name, self.server.broker_port)

    def names(self, name: str = "names") -> Talk:
        """A connection to the nameserver."""
        return self._talk(name, self.server.name_port)

    def topic(self, *bodies: str, name: str = "WORD-t", queues: int = 4) -> str:
        """Make a topic, with messages in its first queue."""
        talk = self.broker()
        fields = {"topic": name, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues), "perm": "6"}
        talk.ask(17, {**fields, "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}, quietly=True)
        for number, body in enumerate(bodies):
            answer = talk.ask(310, send(name, properties(KEYS=f"k{number}", TAGS=f"t{number}")), body.encode(), quietly=True)
            assert answer is not None, "there is no answer to a send"
            assert answer.code == 0, answer
        talk.await_offset(name, len(bodies))
        return name

    def note(self, line: str) -> None:
        self.lines.append(line.replace(self.word, "WORD"))

    def _talk(self, name: str, port: int) -> Talk:
        talk = Talk(self, name, port)
        self._open.append(talk)
        return talk

    def end(self) -> None:
        for each in self._open:
            each.connection.close()


@dataclass(frozen=True)
class Case:
    """Something to play."""

    name: str
    play: Callable[[Stage], None]


class Cases:
    """The cases of a module."""

    def __init__(self) -> None:
        self.all: list[Case] = []

    def case(self, play: Callable[[Stage], None]) -> Callable[[Stage], None]:
        """Add one, under its name."""
        self.add(play.__name__.replace("_", " "), play)
        return play

    def add(self, name: str, play: Callable[[Stage], None]) -> None:
        """Add one by name."""
        assert name not in {each.name for each in self.all}, name
        self.all.append(Case(name, play))

    def played(self, server: RocketmqServer, only: str = "") -> dict[str, list[str]]:
        """Play all on a server, or only one; the lines of each."""
        numbered_cases = [(number, case) for number, case in enumerate(self.all) if only in ("", case.name)]

        def perform(numbered: tuple[int, Case]) -> list[str]:
            number, case = numbered
            # Case matters to RocketMQ's names, and a digit may stand anywhere. All have one length: long lines are cut before it is masked.
            stage = Stage(server, f"w{number:03}w")
            try:
                case.play(stage)
            except Exception as error:
                stage.note(f"the case broke off: {error!r}")
            finally:
                stage.end()
            return stage.lines

        with ThreadPoolExecutor(CASES_AT_ONCE) as pool:
            return dict(zip([case.name for _, case in numbered_cases], pool.map(perform, numbered_cases), strict=True))


def lying(data: bytes, length: int) -> bytes:
    """A frame that says another length."""
    return struct.pack(">I", length & 0xFFFFFFFF) + data[4:]


def request(code: int, ext: Mapping[str, Any], body: bytes = b"", **more: Any) -> bytes:
    """A frame that is right."""
    return frame_bytes(Frame(code, dict(ext), body, 7, **more))
