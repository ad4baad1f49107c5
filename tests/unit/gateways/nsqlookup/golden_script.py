"""What nodes, consumers and operators do to a directory, step by step, and how its answers are written down.

`play` runs the script against anything that can be connected to: here the gateways in memory, in tests/interop the
real nsqlookupd and polymq. The directory hides nodes after 2 s of silence and tombstoned ones for 1 s.
"""

from __future__ import annotations

import json
import re
from typing import Any, Protocol

__all__ = ["INACTIVE_S", "TOMBSTONE_S", "Directory", "play"]

INACTIVE_S = 2
TOMBSTONE_S = 1

Step = tuple[Any, ...]


class Directory(Protocol):
    """Somebody to play the script to."""

    def connect(self, name: str) -> None: ...
    def send(self, name: str, data: bytes) -> list[bytes | None]:
        """Send, and give the answers; None last if the connection was closed."""

    def finish(self, name: str) -> list[bytes | None]:
        """Close the sending side, and give what comes then."""

    def close(self, name: str) -> None: ...
    def ask(self, method: str, path: str) -> tuple[int, dict[str, str], bytes]: ...
    def wait(self, seconds: float) -> None: ...


def identify(body: bytes) -> bytes:
    return b"IDENTIFY\n" + len(body).to_bytes(4, "big") + body


def node(number: int) -> bytes:
    return b'{"broadcast_address":"node%d","hostname":"h%d","http_port":415%d,"tcp_port":416%d,"version":"1.3.0"}' % ((number,) * 4)


GOOD = node(9)
# One connection each, and nothing else happens meanwhile.
ALONE: tuple[bytes, ...] = (
    b"  V2",
    b"PING\n",
    b"  V1PING\n",
    b"  V1PING\r\n",
    b"  V1   PING  x \n",
    b"  V1PING\xc2\xa0\n",
    b"  V1\n",
    b"  V1ping\n",
    b"  V1PING\x00\n",
    b"  V1REGISTER t\n",
    b"  V1UNREGISTER\n",
    b"  V1" + 2 * identify(GOOD),
    b"  V1" + identify(GOOD).replace(b"IDENTIFY", b"IDENTIFY x"),
    b"  V1" + identify(b""),
    b"  V1" + identify(b"null"),
    b"  V1" + identify(b"[]"),
    b"  V1" + identify(GOOD + b" x"),
    b"  V1" + identify(GOOD.replace(b":4169", b":4169.0")),
    b"  V1" + identify(GOOD.replace(b":4169", b':"4169"')),
    b"  V1" + identify(GOOD.replace(b":4169", b":0")),
    b"  V1" + identify(GOOD.replace(b":4169", b":-1")),
    b"  V1" + identify(GOOD.replace(b"tcp_port", b"TCP_Port")),
    b"  V1" + identify(GOOD.replace(b'"1.3.0"', b"null")),
    b"  V1" + identify(GOOD.replace(b"{", b'{"remote_address":1,')),
    *(
        b"  V1" + identify(GOOD) + line
        for line in (
            b"REGISTER\n",
            b"REGISTER \n",
            b"REGISTER  t\n",
            b"REGISTER a$\n",
            b"REGISTER a b$\n",
            b"REGISTER \xff\n",
            b"REGISTER t\tc\n",
            b"REGISTER " + b"a" * 65 + b"\n",
            b"REGISTER " + b"a" * 20000 + b"\n",
            b"UNREGISTER a$\n",
            b"UNREGISTER a b$\n",
            b"UNREGISTER unknown\nUNREGISTER unknown c\nPING\n",
            b"NOP\nPING\n",
        )
    ),
)
CUT_OFF: tuple[bytes, ...] = (b"", b"  ", b"  V1PING", b"  V1IDENTIFY\n", b"  V1IDENTIFY\n\0\0", b"  V1IDENTIFY\n\0\0\0\5ab")
REQUESTS: tuple[tuple[str, str], ...] = (
    *(
        ("GET", path)
        for path in (
            *("/ping", "/info", "/topics", "/channels", "/channels?topic=x", "/lookup", "/lookup?topic=x", "/lookup?topic="),
            *("/lookup?topic=%zz", "/nodes", "/debug", "/debug/", "/Ping", "/stats", "/topic/create?topic=y"),
        )
    ),
    *(
        ("POST", path)
        for path in (
            *("/topics", "/topic/create", "/topic/create?topic=", "/topic/create?topic=a$", "/topic/delete"),
            *("/topic/delete?topic=a$", "/channel/create", "/channel/create?topic=t2", "/channel/create?topic=a$"),
            *("/channel/create?topic=t2&channel=", "/channel/create?topic=t2&channel=c$", "/channel/delete"),
            *("/channel/delete?topic=t2&channel=zz", "/topic/tombstone", "/topic/tombstone?topic=t2"),
            "/topic/tombstone?topic=t2&node=n:1",
        )
    ),
    *(("PUT", "/topics"), ("OPTIONS", "/topics"), ("HEAD", "/topics"), ("DELETE", "/unknown")),
)
LOOKS = ("/topics", "/channels?topic=t", "/lookup?topic=t", "/nodes", "/debug")
LIVES: tuple[Step, ...] = (
    ("connect", "one"),
    (
        "send",
        "one",
        b"  V1" + identify(node(1)) + b"REGISTER t\nREGISTER t c\nREGISTER t gone#ephemeral\nREGISTER u#ephemeral v#ephemeral\n",
    ),
    ("connect", "two"),
    ("send", "two", b"  V1" + identify(node(2)) + b"REGISTER t c\nREGISTER t d\nREGISTER t gone#ephemeral\nREGISTER t gone#ephemeral\n"),
    ("look", *LOOKS, "/lookup?topic=u%23ephemeral", "/lookup?topic=*", "/channels?topic=*"),
    # The last one to leave an ephemeral channel takes it along; who goes without a word does not.
    ("send", "one", b"UNREGISTER t gone#ephemeral\n"),
    ("look", "/channels?topic=t"),
    ("send", "two", b"UNREGISTER t gone#ephemeral\n"),
    ("look", "/channels?topic=t"),
    ("send", "one", b"UNREGISTER t c\n"),
    ("look", "/lookup?topic=t", "/debug"),
    # A topic takes its channels' registrations along, but not their names.
    ("send", "one", b"UNREGISTER t\nUNREGISTER u#ephemeral\n"),
    ("look", "/topics", "/lookup?topic=t", "/channels?topic=u%23ephemeral", "/debug"),
    ("send", "one", b"REGISTER t c\n"),
    ("ask", "POST", "/topic/tombstone?topic=t&node=node1:4151"),
    ("look", "/lookup?topic=t", "/nodes"),
    ("send", "one", b"REGISTER t\n"),
    ("look", "/lookup?topic=t"),
    ("wait", TOMBSTONE_S),
    ("send", "one", b"PING\n"),
    ("send", "two", b"PING\n"),
    ("look", "/lookup?topic=t", "/nodes"),
    ("ask", "POST", "/channel/create?topic=made&channel=by-hand"),
    ("ask", "POST", "/topic/create?topic=made2"),
    ("look", "/topics", "/lookup?topic=made", "/lookup?topic=made2", "/channels?topic=made"),
    ("ask", "POST", "/channel/delete?topic=made&channel=by-hand"),
    ("ask", "POST", "/topic/delete?topic=made"),
    ("look", "/topics", "/lookup?topic=made"),
    # What is deleted under a node's hands is not there any more, until it registers again.
    ("ask", "POST", "/channel/delete?topic=t&channel=c"),
    ("look", *LOOKS),
    ("send", "two", b"REGISTER t c\n"),
    ("look", *LOOKS),
    # Silence hides a node; a word from it brings it back.
    ("wait", INACTIVE_S / 2),
    ("send", "one", b"PING\n"),
    ("wait", INACTIVE_S / 2 + 0.3),
    ("look", "/lookup?topic=t", "/nodes"),
    ("send", "two", b"REGISTER t d\n"),
    ("look", "/nodes"),
    ("send", "two", b"PING\n"),
    ("send", "one", b"PING\n"),
    ("look", "/lookup?topic=t", "/nodes"),
    ("send", "one", b"REGISTER w x#ephemeral\n"),
    ("close", "one"),
    ("look", *LOOKS, "/channels?topic=w"),
    ("send", "two", b"REGISTER a$\n"),
    ("look", *LOOKS),
    ("ask", "POST", "/topic/delete?topic=*"),
    ("look", "/topics", "/channels?topic=t"),
)


def play(directory: Directory) -> list[str]:
    """Run the whole script; gives one line for each step that has an answer."""
    lines: list[str] = []
    for number, stream in enumerate(ALONE):
        directory.connect(f"alone {number}")
        lines.append(f"{shown(stream)} -> {replies(directory.send(f'alone {number}', stream))}")
        directory.close(f"alone {number}")
    for number, stream in enumerate(CUT_OFF):
        directory.connect(f"cut {number}")
        answers = directory.send(f"cut {number}", stream) if stream else []
        lines.append(f"{shown(stream)} and the end -> {replies(answers + directory.finish(f'cut {number}'))}")
        directory.close(f"cut {number}")
    directory.ask("POST", "/topic/delete?topic=*")
    for method, path in REQUESTS:
        lines.append(asked(directory, method, path))
    for step in LIVES:
        lines.extend(played(directory, *step))
    return lines


def played(directory: Directory, what: str, *arguments: Any) -> list[str]:
    match what:
        case "send":
            name, data = arguments
            return [f"{name}: {shown(data)} -> {replies(directory.send(name, data))}"]
        case "look":
            return [asked(directory, "GET", path) for path in arguments]
        case "ask":
            return [asked(directory, *arguments)]
        case _:
            getattr(directory, what)(*arguments)
            return [f"{what} {' '.join(map(str, arguments))}"]


def shown(data: bytes) -> str:
    text = repr(data)
    return text if len(text) < 300 else f"{text[:100]} … {len(data)} bytes"


def replies(answers: list[bytes | None]) -> str:
    return " ".join("closed" if answer is None else masked(shown(answer)) for answer in answers) or "nothing"


def asked(directory: Directory, method: str, path: str) -> str:
    status, headers, body = directory.ask(method, path)
    kept = {name: value for name, value in sorted(headers.items()) if name not in ("Date", "Content-Length", "Transfer-Encoding")}
    return f"{method} {path} -> {status} {kept} {masked(ordered(body))}"


def ordered(body: bytes) -> str:
    """The real one gives lists in another order every time; all else is compared byte for byte."""
    text = body.decode("utf-8")
    if not text.startswith("{"):
        return repr(text)
    document = json.loads(text)
    assert json.dumps(document, separators=(",", ":"), ensure_ascii=False) == text
    return json.dumps(sorted_lists(document), separators=(",", ":"), ensure_ascii=False)


def sorted_lists(value: Any) -> Any:
    if isinstance(value, dict):
        if "tombstones" in value:  # it goes with the topics beside it
            pairs = sorted(zip(value["topics"], value["tombstones"], strict=True))
            return value | {"topics": [topic for topic, _ in pairs], "tombstones": [hidden for _, hidden in pairs]}
        return {key: sorted_lists(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return sorted((sorted_lists(inner) for inner in value), key=lambda inner: json.dumps(hide(inner)))
    return value


def hide(value: Any) -> Any:
    """Leave out what differs from run to run: it may not decide the order."""
    return {key: inner for key, inner in value.items() if key not in ("remote_address", "id")} if isinstance(value, dict) else value


MASKS = (
    (r'"(remote_address|id)":"127\.0\.0\.1:\d+"', r'"\1":"<ADDRESS>"'),
    (r'"last_update":\d{19}', '"last_update":<TIME>'),
    (r'"tombstoned_at":\d{19}', '"tombstoned_at":<TIME>'),
    (r'\{"broadcast_address":"[^"]*","hostname":"[^"]*","http_port":\d+,"tcp_port":\d+,"version":"1.3.0"\}', "<DIRECTORY>"),
)


def masked(text: str) -> str:
    for pattern, replacement in MASKS:
        text = re.sub(pattern, replacement, text)
    return text
