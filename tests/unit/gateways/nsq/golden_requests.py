"""The requests behind `golden_http_v1.3.0.txt`, in order, and what is allowed to differ."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

TOPIC: Final = "golden"
MESSAGE_MAX: Final = 1 << 20
BODY_MAX: Final = 5 << 20

Case = tuple[str, str, bytes]


def number(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


def requests() -> list[Case]:
    return [*_routing(), *_publishing(), *_managing(), *_statistics(), *_options()]


def _routing() -> list[Case]:
    paths = ["GET /ping", "HEAD /ping", "GET /info", "GET /", "POST /ping", "GET /pub?topic=a", "GET /stats/", "GET /ping/"]
    return [(*path.split(" "), b"") for path in [*paths, "OPTIONS /pub"]]  # type: ignore[misc]


def _publishing() -> list[Case]:
    pub, mpub = f"/pub?topic={TOPIC}", f"/mpub?topic={TOPIC}"
    two = number(2) + number(1) + b"a" + number(2) + b"bb"
    posts = [
        *(("/pub", b"x"), ("/pub?topic=", b"x"), ("/pub?topic=a$", b"x"), (pub, b"x"), (pub, b"")),
        *((pub, b"a" * (MESSAGE_MAX + 1)), (pub.replace("pub", "put"), b"x")),
    ]
    delays = [(f"{pub}&defer={delay}", b"x") for delay in ("0", "1000", "3600000", "3600001", "-1", "abc", "")]
    lines = [
        *((mpub, b"a\nb\n\nc\n"), (mpub, b""), (mpub, b"\n\n"), ("/mpub", b"a")),
        *((mpub, b"a" * (MESSAGE_MAX + 1)), (mpub, b"a" * (BODY_MAX + 1))),
    ]
    binary = f"{mpub}&binary="
    messages = [
        *((binary + value, two) for value in ("true", "1", "yes", "", "false")),
        *((binary + "true", number(0)), (binary + "true", number(2) + number(1) + b"a")),
        *((binary + "true", number(1) + number(0)), (binary + "true", number(1) + number(MESSAGE_MAX + 1))),
        *((binary + "true", two + b"trailing"), (binary + "true", b"")),
    ]
    posted = [("POST", *case) for case in (*posts, *delays, *lines, *messages)]
    return [*posted[:7], ("PUT", pub, b"x"), *posted[7:]]


def _managing() -> list[Case]:
    topic = TOPIC + "x"
    paths = []
    for action in ("create", "delete", "empty", "pause", "unpause"):
        path = f"/topic/{action}"
        paths += [path, f"{path}?topic=a$", f"{path}?topic={topic if action == 'create' else TOPIC + 'nope'}"]
    paths += [f"/topic/{action}?topic={topic}" for action in ("create", "pause", "unpause", "empty")]
    for action in ("create", "delete", "empty", "pause", "unpause"):
        path = f"/channel/{action}"
        paths += [path, f"{path}?topic={topic}", f"{path}?topic=a$&channel=c", f"{path}?topic={topic}&channel=c$"]
        paths += [f"{path}?topic={TOPIC}nope&channel=c", f"{path}?topic={topic}&channel={'c' if action == 'create' else 'nope'}"]
    paths += [f"/channel/{action}?topic={topic}&channel=c" for action in ("pause", "unpause", "empty", "delete")]
    paths.append(f"/topic/delete?topic={topic}")
    posted = [("POST", path, b"") for path in paths]
    return [*posted, ("GET", "/topic/create?topic=a", b""), ("POST", "/topic/create", b"topic=abc")]


def _statistics() -> list[Case]:
    queries = [
        f"format=json&topic={TOPIC}&include_mem=false",
        "format=json&topic=nope",
        f"format=json&topic={TOPIC}&channel=nope&include_mem=0",
        f"topic={TOPIC}",
        f"format=json&topic={TOPIC}&include_clients=false&include_mem=false",
        "format=xml&topic=nope&include_mem=false",
    ]
    return [("GET", f"/stats?{query}", b"") for query in queries]


def _options() -> list[Case]:
    names = [
        *("nsqlookupd_tcp_addresses", "log_level", "max_rdy_count", "msg_timeout", "tcp_address", "id", "tls_required"),
        *("e2e_processing_latency_percentiles", "auth_http_addresses", "tls_min_version", "nope"),
    ]
    shown = [("GET", f"/config/{name}", b"") for name in names]
    levels = [("PUT", "/config/log_level", value) for value in (b"debug", b"info", b"bad", b"")]
    addresses = [("PUT", "/config/nsqlookupd_tcp_addresses", value) for value in (b"notjson", b"[]")]
    return [*shown, *levels, ("PUT", "/config/max_rdy_count", b"5"), *addresses]


_LINE: Final = re.compile(r"([A-Z]+) +(\S+) +(\d{3}) (\{.*?\}) (.*)", re.DOTALL)
_START: Final = re.compile(r"^(?=(?:GET|HEAD|POST|PUT|OPTIONS) )", re.MULTILINE)


def golden() -> list[tuple[str, str, int, dict[str, str], str] | None]:
    """Method, path (cut), status, headers, body of each answer; None where nsqd broke the connection off."""
    text = (Path(__file__).parent / "golden_http_v1.3.0.txt").read_text(encoding="utf-8")
    answers: list[tuple[str, str, int, dict[str, str], str] | None] = []
    for entry in _START.split(text):
        if not entry:
            continue
        found = _LINE.fullmatch(entry.removesuffix("\n"))
        if found is None:
            assert "BrokenPipeError" in entry
            answers.append(None)
            continue
        headers = dict(re.findall(r"'([^']+)': '([^']*)'", found[4]))
        answers.append((found[1], found[2], int(found[3]), headers, found[5]))
    return answers


_VARIES: Final = (
    (re.compile(r'"start_time":\d+'), '"start_time":S'),
    (re.compile(r"start_time \S+"), "start_time S"),
    (re.compile(r"uptime \S+"), "uptime U"),
    (re.compile(r"built w/\S+\)"), "built w/B)"),
    (re.compile(r'("?(?:heap|gc|next_gc)_\w+"?[: \t]+)\d+'), r"\1N"),
    # The topic's name in the transcript is shorter than its column; ours need not be as long.
    (re.compile(r"\[<R> *\]"), "[<R>]"),
)


def without_what_varies(text: str) -> str:
    text = text.replace(TOPIC, "<R>")
    for pattern, replacement in _VARIES:
        text = pattern.sub(replacement, text)
    return text
