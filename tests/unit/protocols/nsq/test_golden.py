"""The codec answers what nsqd answered, line by line, wherever the answer does not take a broker.

`Server` is the least that can answer: it accepts what is legal, stores nothing, and has no message in flight.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from polymq.protocols.nsq import encode, events, problems
from polymq.protocols.nsq.decode import Decoder
from polymq.protocols.nsq.identify import Agreement, first_agreement, negotiate
from polymq.protocols.nsq.settings import NsqSettings
from tests.unit.protocols.nsq.streams import dpub, i32, identify, mpub, pub

GOLDEN = Path(__file__).with_name("golden_v1.3.0.txt")
ID = b"0123456789abcdef"
FRAME_NAMES = {0: "RESP", 1: "ERR"}
SETTINGS = NsqSettings(deflate=True, snappy=True)


class Server:
    """One connection whose every legal command succeeds."""

    def __init__(self) -> None:
        self.decoder = Decoder(SETTINGS)
        self.agreement = first_agreement(SETTINGS)
        self.output = b""
        self.closed = False
        self.rest = b""

    def send(self, data: bytes) -> None:
        self.rest += data
        while not self.closed and len(self.rest) >= self.decoder.need:
            found, consumed = self.decoder.feed(memoryview(self.rest))
            self.rest = self.rest[consumed:]
            for event in found:
                self.output += self.answer(event)
            if self.decoder.need:
                return

    def answer(self, event: events.Event) -> bytes:
        match event:
            case events.Identify(body):
                return self.identified(negotiate(body, SETTINGS, self.agreement))
            case events.Subscribe():
                return encode.OK_FRAME
            case events.Publish():
                return encode.ok_frames(event.answers)
            case events.Cls():
                return encode.CLOSE_WAIT_FRAME
            case events.Auth():
                return self.refuse(problems.AUTH_DISABLED)
            case events.Violation(text):
                return self.refuse(text)
            case events.SilentClose():
                self.closed = True
        return b""

    def identified(self, outcome: Agreement | bytes) -> bytes:
        if isinstance(outcome, bytes):
            return self.refuse(outcome)
        self.agreement = outcome
        self.decoder.heartbeats = outcome.heartbeat_interval_ms > 0
        return encode.response_frame(outcome.reply)

    def refuse(self, text: bytes) -> bytes:
        self.closed = True
        return encode.error_frame(text)

    def transcript(self) -> str:
        frames, at = [], 0
        while at < len(self.output):
            size, kind = struct.unpack_from(">ii", self.output, at)
            text = re.sub(r"A{20,}", lambda run: f"<A*{len(run[0])}>", self.output[at + 8 : at + 4 + size].decode("latin-1"))
            frames.append(f"{FRAME_NAMES[kind]} {text!r}")
            at += 4 + size
        return f"{' | '.join(frames) or '(no frame)'} [{'CLOSED' if self.closed else 'open'}]"


def wish(**fields: object) -> bytes:
    pairs = {"feature_negotiation": True, **fields}
    words = {True: "true", False: "false"}
    text = ",".join(f'"{key}":{words[value] if isinstance(value, bool) else value}' for key, value in pairs.items())
    return identify(f"{{{text}}}".encode())


SUB = b"SUB t ch\n"
CASES: list[tuple[str, bytes, bytes]] = [  # name, what comes after the magic, what the probe had sent and had answered before
    ("NOP CRLF", b"NOP\r\n", b""),
    ("NOP with args", b"NOP a b\n", b""),
    ("ASDF", b"ASDF\n", b""),
    ("empty line", b"\n", b""),
    ("lower-case nop", b"nop\n", b""),
    ('leading space " NOP"', b" NOP\n", b""),
    ("line 16383 chars + \\n", b"A" * 16383 + b"\n", b""),
    ("line 20000 chars no newline", b"A" * 20000, b""),
    ("IDENTIFY no feature_negotiation", identify(b"{}"), b""),
    ("IDENTIFY {} feature_negotiation", wish(), b""),
    ("IDENTIFY body 0", b"IDENTIFY\n" + i32(0), b""),
    ("IDENTIFY body -1", b"IDENTIFY\n" + i32(-1), b""),
    ("IDENTIFY too big", b"IDENTIFY\n" + i32(5242881), b""),
    ("IDENTIFY not json", identify(b"nope"), b""),
    ("IDENTIFY json array", identify(b"[]"), b""),
    ("IDENTIFY json null", identify(b"null"), b""),
    ("IDENTIFY wrong type", identify(b'{"heartbeat_interval":"30000"}'), b""),
    ("IDENTIFY float hb", identify(b'{"heartbeat_interval":30000.0}'), b""),
    ("IDENTIFY float 1e3", identify(b'{"heartbeat_interval":1e3}'), b""),
    ("IDENTIFY null fields", identify(b'{"client_id":null,"heartbeat_interval":null}'), b""),
    ("IDENTIFY upper-case key", identify(b'{"Heartbeat_Interval":5}'), b""),
    ("IDENTIFY unknown field", identify(b'{"short_id":"a","long_id":"b","zzz":1}'), b""),
    ("IDENTIFY trailing garbage", identify(b"{} x"), b""),
    ("IDENTIFY with params", b"IDENTIFY a b\n" + i32(2) + b"{}", b""),
    *((f"IDENTIFY heartbeat_interval={n}", wish(heartbeat_interval=n), b"") for n in (-1, 0, 1, 999, 1000, 60000, 60001, -2)),
    *((f"IDENTIFY output_buffer_size={n}", wish(output_buffer_size=n), b"") for n in (-1, 0, 63, 64, 65536, 65537, -2)),
    *((f"IDENTIFY output_buffer_timeout={n}", wish(output_buffer_timeout=n), b"") for n in (-1, 0, 24, 25, 30000, 30001)),
    *((f"IDENTIFY sample_rate={n}", wish(sample_rate=n), b"") for n in (-1, 0, 99, 100)),
    *((f"IDENTIFY msg_timeout={n}", wish(msg_timeout=n), b"") for n in (-1, 0, 999, 1000, 900000, 900001)),
    ("IDENTIFY tls_v1 (server no cert)", wish(tls_v1=True), b""),
    ("IDENTIFY deflate+snappy", wish(deflate=True, snappy=True), b""),
    ("IDENTIFY deflate_level=9 no deflate", wish(deflate_level=9), b""),
    ("IDENTIFY deflate level 3", wish(deflate=True, deflate_level=3), b""),
    ("IDENTIFY twice", wish() + wish(heartbeat_interval=5000), b""),
    ("IDENTIFY after SUB", wish(), SUB),
    ("SUB no params", b"SUB\n", b""),
    ("SUB 1 param", b"SUB a\n", b""),
    ("SUB bad topic", b"SUB bad!t ch\n", b""),
    ("SUB bad channel", b"SUB t b@d\n", b""),
    ("SUB 65 char topic", b"SUB " + b"a" * 65 + b" c\n", b""),
    ("SUB 64 char topic", b"SUB " + b"a" * 64 + b" c\n", b""),
    ("SUB 64 incl #ephemeral", b"SUB " + b"a" * 54 + b"#ephemeral c#ephemeral\n", b""),
    ("SUB empty topic", b"SUB  c\n", b""),
    ("SUB quote in topic", b'SUB a"b c\n', b""),
    ("SUB utf8", "SUB é c\n".encode(), b""),
    ("SUB extra params", b"SUB t c extra\n", b""),
    ("SUB twice", b"SUB t c\nSUB t c\n", b""),
    ("SUB with hb disabled", wish(heartbeat_interval=-1) + b"SUB t c\n", b""),
    ("SUB without IDENTIFY", b"SUB t c\n", b""),
    ("RDY before SUB", b"RDY 1\n", b""),
    *(
        ("RDY" + words, b"RDY" + words.encode() + b"\n", SUB)
        for words in ("", " 0", " 1", " 2500", " 2501", " -1", " abc", " 1.5", " 99999999999999999999", " 18446744073709551615", " 1 2")
    ),
    *((f"{name} before SUB", f"{name} 0123456789abcdef 0\n".encode(), b"") for name in ("FIN", "TOUCH", "REQ")),
    *((f"{name} no param", f"{name}\n".encode(), SUB) for name in ("FIN", "TOUCH", "REQ")),
    *((f"{name} short id", f"{name} abc\n".encode(), SUB) for name in ("FIN", "TOUCH")),
    *((f"{name} id 17", f"{name} 0123456789abcdef0\n".encode(), SUB) for name in ("FIN", "TOUCH")),
    ("REQ no timeout", b"REQ " + ID + b"\n", SUB),
    ("REQ bad timeout", b"REQ " + ID + b" x\n", SUB),
    ("REQ -1", b"REQ " + ID + b" -1\n", SUB),
    ("REQ 9999999999 (clamp)", b"REQ " + ID + b" 9999999999\n", SUB),
    ("CLS before SUB", b"CLS\n", b""),
    ("CLS", b"CLS\n", SUB),
    ("CLS twice", b"CLS\nCLS\n", SUB),
    ("CLS then RDY", b"CLS\nRDY 5\n", SUB),
    ("CLS then FIN ok", b"CLS\nFIN " + ID + b"\n", SUB),
    ("CLS then PUB", b"CLS\n" + pub(b"t", b"x"), SUB),
    ("CLS with msgs pending", b"CLS\n" + pub(b"t", b"more"), SUB),
    ("CLS params", b"CLS a\n", SUB),
    ("PUB no topic", b"PUB\n", b""),
    ("PUB bad topic", pub(b"a$b", b"x"), b""),
    ("PUB size 0", b"PUB t\n" + i32(0), b""),
    ("PUB size -1", b"PUB t\n" + i32(-1), b""),
    ("PUB size max", pub(b"t", b"a" * 1048576), b""),
    ("PUB size max+1", b"PUB t\n" + i32(1048577), b""),
    ("PUB ok", pub(b"t", b"x"), b""),
    ("PUB extra params", b"PUB t zz\n" + i32(1) + b"x", b""),
    ("PUB x3 pipelined", pub(b"t", b"x") * 3, b""),
    ("PUB while subscribed", pub(b"t", b"x"), SUB),
    ("PUB bad topic mid-pipeline", pub(b"t", b"x") + pub(b"a$b", b"x") + pub(b"t", b"x"), b""),
    ("PUB CRLF", b"PUB t\r\n" + i32(1) + b"x", b""),
    ("MPUB no topic", b"MPUB\n", b""),
    ("MPUB bad topic", b"MPUB a$b\n", b""),
    ("MPUB ok", mpub(b"t", [b"a", b"b"]), b""),
    ("MPUB body 0", b"MPUB t\n" + i32(0), b""),
    ("MPUB body too big", b"MPUB t\n" + i32(5242881), b""),
    ("MPUB count 0", b"MPUB t\n" + i32(4) + i32(0), b""),
    ("MPUB count -1", b"MPUB t\n" + i32(4) + i32(-1), b""),
    ("MPUB count 1048576 (> (max-4)/5)", b"MPUB t\n" + i32(4) + i32(1048576), b""),
    ("MPUB msg size 0", mpub(b"t", [b"a", b""]), b""),
    ("MPUB msg too big", b"MPUB t\n" + i32(2000000) + i32(1) + i32(1048577), b""),
    ("MPUB bodylen = sum(len) only (PHP client)", mpub(b"t", [b"aa", b"bb"], 4) + b"NOP\n", b""),
    ("MPUB bodylen too large (not enforced)", mpub(b"t", [b"aa", b"bb"], 1000) + b"NOP\n" + pub(b"t", b"x"), b""),
    ("MPUB bodylen 1", mpub(b"t", [b"aa", b"bb"], 1) + pub(b"t", b"x"), b""),
    ("DPUB no params", b"DPUB\n", b""),
    ("DPUB 1 param", b"DPUB t\n", b""),
    ("DPUB bad topic", b"DPUB a$b 1\n", b""),
    ("DPUB bad timeout", b"DPUB t x\n", b""),
    ("DPUB -1", b"DPUB t -1\n", b""),
    ("DPUB 3600000", dpub(b"t", 3600000, b"x"), b""),
    ("DPUB 3600001", dpub(b"t", 3600001, b"x"), b""),
    ("DPUB 0", dpub(b"t", 0, b"x"), b""),
    ("DPUB size 0", b"DPUB t 1\n" + i32(0), b""),
    ("DPUB too big", b"DPUB t 1\n" + i32(1048577), b""),
    ("DPUB 300 delivered late", dpub(b"t", 300, b"x") + b"RDY 1\n", SUB),
    ("AUTH disabled", b"AUTH\n" + i32(3) + b"abc", b""),
    ("AUTH params", b"AUTH x\n", b""),
    ("AUTH body 0", b"AUTH\n" + i32(0), b""),
    ("AUTH after SUB", b"AUTH\n" + i32(3) + b"abc", SUB),
]
# The rest of the transcript takes messages in flight, or other first four bytes.
BROKER_LINES = {
    "FIN unknown id",
    "TOUCH unknown id",
    "REQ unknown id",
    "FIN ok then FIN again",
    "REQ 0 redelivers attempts=2",
    "REQ 400ms (wait .3)",
    "REQ 400ms (wait 1)",
    "TOUCH ok then FIN",
    "2nd msg not sent while RDY1 inflight1",
    "RDY 2 -> 2nd msg",
    "(other client FIN)",
    "FIN by other client",
    'magic "  V1"',
    'magic "GET "',
    "magic split 2+2 then NOP",
}


def golden() -> dict[str, str]:
    lines = GOLDEN.read_text(encoding="utf-8").splitlines()
    pairs = (line.split(" -> ", 1) if "RDY 2 -> 2nd" not in line else line.rsplit(" -> ", 1) for line in lines if not line.startswith("##"))
    return {name.strip(): answer for name, answer in pairs}


EXPECTED = golden()


@pytest.mark.parametrize(("name", "sent", "before"), CASES, ids=[case[0] for case in CASES])
def test_the_answer_is_nsqds(name: str, sent: bytes, before: bytes) -> None:
    server = Server()
    server.send(b"  V2" + before)
    server.output = b""
    server.send(sent)
    assert server.transcript() == EXPECTED[name]


def test_every_line_of_the_transcript_is_used_or_excused() -> None:
    assert {case[0] for case in CASES} | BROKER_LINES == set(EXPECTED)


@pytest.mark.parametrize(("name", "magic"), [('magic "  V1"', b"  V1"), ('magic "GET "', b"GET / HTTP/1.1\r\n\r\n")])
def test_a_wrong_magic_is_answered_as_nsqd_answers(name: str, magic: bytes) -> None:
    server = Server()
    server.send(magic)
    assert server.transcript() == EXPECTED[name]
