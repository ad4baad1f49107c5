"""Raw requests, sent to a real nsqd and to polymq: methods, versions, framing, limits, parameters. The bytes that come back are compared.

Only the date and the order of headers are left out. Where polymq answers otherwise on purpose, it is listed with the reason; a difference that
is not listed fails, and so does a line that is no longer needed.
"""

from __future__ import annotations

import re
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final

import pytest

from tests.interop.servers import Running, running

if TYPE_CHECKING:
    from collections.abc import Iterator

# An answer is complete when the server has closed, or said nothing for so long.
QUIET_S: Final = 0.3
AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class Case:
    """What is sent; `ends`: then the client's side is closed. Cases of one group do not disturb each other."""

    name: str
    data: bytes
    ends: bool = False
    group: str = ""


def request(method: str, target: str, body: bytes | None = None, *, version: str = "1.1", headers: tuple[str, ...] = ("Host: x",)) -> bytes:
    lines = [f"{method} {target} HTTP/{version}", *headers]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


def talk(address: str, case: Case) -> tuple[bytes, bool]:
    """Send a case; gives what came back and whether the connection was closed."""
    host, _, port = address.partition(":")
    answer = b""
    with socket.create_connection((host, int(port))) as connection:
        connection.settimeout(QUIET_S)
        try:
            connection.sendall(case.data)
            if case.ends:
                connection.shutdown(socket.SHUT_WR)
            while more := connection.recv(1 << 16):
                answer += more
        except TimeoutError:
            return masked(answer), False
        except ConnectionError:
            pass
    return masked(answer), True


def masked(answer: bytes) -> bytes:
    """Leave out the date, and sort the headers of each answer."""
    answer = re.sub(rb"Date: [^\r]*", b"Date: <DATE>", answer)
    answer = re.sub(rb'"start_time":\d+', b'"start_time":<TIME>', answer)
    return re.sub(rb"(HTTP/1\.[01] [^\r]*\r\n)(.*?)\r\n\r\n", sorted_headers, answer, flags=re.DOTALL)


def sorted_headers(found: re.Match[bytes]) -> bytes:
    return found[1] + b"\r\n".join(sorted(found[2].split(b"\r\n"))) + b"\r\n\r\n"


PATHS = (
    *(
        "/ping",
        "/pub?topic=zz",
        "/config/log_level",
        "/nope",
        "/topic/create",
        "/stats?format=json&include_mem=false&topic=nope",
        "/",
        "*",
        "//ping",
    ),
    *("/PING", "/Ping/", "/./ping", "/config", "/config/", "/config/a/b", "/topic/create/", "/debug/freememory", "/debug/setblockrate"),
)
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "FOO", "get")
QUERIES = (
    *("topic=%zz", "topic=a;b", "topic=a1&topic=b", "topic", "topic=%00", "TOPIC=a", "topic=a%20b", "topic=a+b", "topic=%61", "topic=a#x"),
    *(
        "&&topic=a2",
        "topic==a",
        "topic=" + "a" * 64,
        "topic=" + "a" * 65,
        "topic=a%23ephemeral",
        "topic=x%23ephemeralx",
        "topic=.",
        "topic=a.b-c_D9",
    ),
)
DEFERS = ("1.5", "+1", "%2B1", "-0", "%201", "1e3", "0x1", "007", "9" * 20, "3600000", "1_000", "")
BINARIES = ("binary", "binary=", "binary=false", "binary=0", "binary=true", "binary=2", "binary=False")
BODIES = (
    *(b"", b"\0", b"\0\0\0\0", b"\0\0\0\1", b"\0\0\0\1\0\0\0\1a", b"\0\0\0\1\0\0\0\1", b"\xff\xff\xff\xff"),
    *(b"\0\0\0\1\xff\xff\xff\xff", b"\0\0\0\2\0\0\0\1a\0\0\0\0", b"\0\0\0\1\0\0\0\1abc"),
)
PUB = b"POST /pub?topic=c HTTP/1.1\r\nHost: x\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
OPTIONS_SET = (
    *(("log_level", b"INFO"), ("log_level", b"2"), ("log_level", b'"info"'), ("log_level", b" info"), ("nope", b"x"), ("data_path", b"x")),
    *(("nsqlookupd_tcp_addresses", body) for body in (b"{}", b'["a"', b'"a"', b"[1]")),
)
LENGTHS = ("", "-1", "+1", "1 ", "abc", "0x1", "9" * 20, "01")
FRAMES = (
    ("chunks", PUB + CHUNKED + b"3\r\nabc\r\n0\r\n\r\n"),
    (
        "chunks with extension and trailer",
        b"POST /mpub?topic=c HTTP/1.1\r\nHost: x\r\n" + CHUNKED + b"3;e=1\r\nabc\r\n2\r\n\nd\r\n0\r\nT: x\r\n\r\n",
    ),
    ("no chunk", PUB + CHUNKED + b"zz\r\nabc\r\n0\r\n\r\n"),
    ("no chunk of many", b"POST /mpub?topic=c HTTP/1.1\r\nHost: x\r\n" + CHUNKED + b"zz\r\nabc\r\n0\r\n\r\n"),
    ("empty chunks", PUB + CHUNKED + b"0\r\n\r\n"),
    ("chunks and a length", PUB + b"Content-Length: 3\r\n" + CHUNKED + b"3\r\nabc\r\n0\r\n\r\n"),
    ("unknown coding", PUB + b"Transfer-Encoding: gzip\r\n\r\n"),
    ("no coding", PUB + b"Transfer-Encoding: identity\r\nContent-Length: 1\r\n\r\na"),
    ("length twice", PUB + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\na"),
    ("two lengths", PUB + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
    ("no length", PUB + b"\r\n"),
    ("expected", PUB + b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\nabc"),
    ("expected and too large", PUB + b"Content-Length: 3000000\r\nExpect: 100-continue\r\n\r\n"),
    ("expected of GET", request("GET", "/ping", headers=("Host: x", "Expect: 100-continue"))),
    ("expects something else", PUB + b"Content-Length: 3\r\nExpect: foo\r\n\r\nabc"),
    ("expected in 1.0", b"POST /pub?topic=c HTTP/1.0\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc"),
    (
        "pipelined",
        request("GET", "/ping") + request("POST", "/pub?topic=p", b"a") + request("GET", "/nope") + request("GET", "/info?x")[:0],
    ),
    ("garbage", b"\x00\x01\x02\r\n\r\n"),
    ("one word", b"hello\r\n\r\n"),
    ("bare line feeds", b"GET /ping HTTP/1.1\nHost: x\n\n"),
    ("empty lines first", b"\r\n\r\n" + request("GET", "/ping")),
    ("header without colon", request("GET", "/ping", headers=("Host: x", "foo"))),
    ("header with a space in its name", request("GET", "/ping", headers=("Host: x", "f oo: a"))),
    ("folded header", request("GET", "/ping", headers=("Host: x", "foo: a", " b"))),
    ("two hosts", request("GET", "/ping", headers=("Host: x", "Host: y"))),
    ("malformed host", request("GET", "/ping", headers=("Host: a b",))),
    ("absolute target", request("GET", "http://foo/ping")),
    ("absolute target without path", request("GET", "http://foo")),
    ("target without slash", request("GET", "ping")),
    ("fragment", request("GET", "/ping#x")),
    ("escaped path", request("GET", "/p%69ng")),
    ("malformed escape", request("GET", "/p%zzng")),
    ("form", request("POST", "/topic/create", b"topic=abc", headers=("Host: x", "Content-Type: application/x-www-form-urlencoded"))),
    (
        "upgrade",
        request("GET", "/ping", headers=("Host: x", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMA")),
    ),
    ("range", request("GET", "/ping", headers=("Host: x", "Range: bytes=0-0"))),
    ("gzip", request("GET", "/stats?format=json&topic=nope&include_mem=0", headers=("Host: x", "Accept-Encoding: gzip"))),
    ("many headers", request("GET", "/ping", headers=("Host: x", *(f"X{number}: a" for number in range(500))))),
    ("too large", request("POST", "/pub?topic=b", b"a" * 1048577)),
    ("as large as may be", request("POST", "/pub?topic=b", b"a" * 1048576)),
    ("block rate", request("PUT", "/debug/setblockrate?rate=0")),
    ("no block rate", request("PUT", "/debug/setblockrate?rate=x%22")),
    ("free memory", request("POST", "/debug/freememory")),
)


def cases() -> Iterator[Case]:
    for method in METHODS:
        for path in PATHS:
            yield Case(f"{method} {path}", request(method, path, b"x" if method in ("POST", "PUT", "PATCH") else None))
    for version in ("0.9", "1.0", "1.1", "2.0"):
        for headers in ((), ("Host: x",), ("Host: x", "Connection: keep-alive"), ("Host: x", "Connection: close")):
            yield Case(f"HTTP/{version} {headers}", request("GET", "/ping", version=version, headers=headers))
        yield Case(f"POST HTTP/{version}", request("POST", "/pub?topic=v", b"abc", version=version))
    for query in QUERIES:
        for path in ("/pub", "/mpub", "/topic/create", "/topic/delete", "/topic/pause", "/topic/empty", "/channel/create"):
            yield Case(f"{path}?{query}", request("POST", f"{path}?{query}", b"x"), group=path)
    for defer in DEFERS:
        yield Case(f"defer={defer}", request("POST", f"/pub?topic=dd&defer={defer}", b"x"))
    for binary in BINARIES:
        for body in BODIES:
            yield Case(f"{binary} {body!r}", request("POST", f"/mpub?topic=mm&{binary}", body))
    for option, value in OPTIONS_SET:
        yield Case(f"{option} = {value!r}", request("PUT", f"/config/{option}", value))
    for length in LENGTHS:
        yield Case(f"Content-Length: {length}", PUB + f"Content-Length: {length}\r\n\r\na".encode())
    for name, data in FRAMES:
        yield Case(name, data)
    yield Case("head of 20 KB", request("GET", "/ping", headers=("Host: x", "X: " + "a" * 20_000)))
    yield Case("GET /debug/pprof/", request("GET", "/debug/pprof/"))
    yield Case("body cut off", PUB + b"Content-Length: 10\r\n\r\nabc", ends=True)
    yield Case("head cut off", b"GET /ping HT", ends=True)
    yield Case("body that nobody announced", b"POST /pub?topic=c HTTP/1.0\r\n\r\nabc", ends=True)


CASES = tuple(cases())

# What polymq answers otherwise, and why.
ALLOWED: Final = {
    "head of 20 KB": "Heads end at 16 KiB (431); Go takes 1 MiB.",
    "GET /debug/pprof/": "There is no profiler of Go's to look at.",
    "body cut off": "The answer says that the connection closes; Go closes it without saying so.",
}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Running]]:
    with running("nsqd", tmp_path_factory.mktemp("nsqd")) as nsqd, running("polymq", tmp_path_factory.mktemp("polymq")) as polymq:
        yield nsqd, polymq


def test_every_answer_is_nsqds(both: tuple[Running, Running]) -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    different: dict[str, tuple[object, object]] = {}
    with ThreadPoolExecutor(2 * AT_ONCE) as pool:
        for _group, grouped in groupby(sorted(CASES, key=lambda case: case.group), key=lambda case: case.group):
            chosen = list(grouped)
            wanted, answers = (pool.map(partial(talk, server.http), chosen) for server in both)
            for case, expected, found in zip(chosen, wanted, answers, strict=True):
                if expected != found:
                    different[case.name] = (expected, found)
    unlisted = {name: pair for name, pair in different.items() if name not in ALLOWED}
    assert unlisted == {}, "\n".join(f"{name}\n  nsqd   {pair[0]}\n  polymq {pair[1]}" for name, pair in unlisted.items())
    assert set(ALLOWED) - set(different) == set(), "these are nsqd's answers now: take them off the list"
