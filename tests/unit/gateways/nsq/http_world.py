"""nsqd's HTTP interface over the real core on a fake store, without a pump."""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus
from itertools import count
from typing import TYPE_CHECKING

from polymq import config_sections
from polymq.gateways.nsq.http import nsq_router
from polymq.gateways.nsq.http_context import NsqHttp, NsqNode
from polymq.gateways.nsq.stats_memory import MemoryFigures
from polymq.protocols.nsq.settings import NsqSettings
from polymq.server.nsq_parts import nsqd_options
from tests.unit.core.conftest import World
from tests.unit.gateways.http.harness import Wire

if TYPE_CHECKING:
    from collections.abc import Sequence

NODE = NsqNode(
    broadcast_address="127.0.0.1",
    host_name="vm",
    tcp_port=24150,
    http_port=24151,
    started_at_ns=1_699_999_000_000_000_000,
    tcp_address="127.0.0.1:24150",
    http_address="127.0.0.1:24151",
    broadcast_tcp_port=24150,
    broadcast_http_port=24151,
)


# What a node answers for that is configured as nsqd is by default.
OPTIONS = nsqd_options(
    config_sections.NsqSettings(),
    config_sections.StoreSettings(sync_interval_ns=2_000_000_000),
    broadcast_address="127.0.0.1",
    http_port=24151,
)


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8")


def parse(data: bytes, *, is_head: bool = False) -> Answer:
    """Read one answer that is all of `data`."""
    head, _, body = data.partition(b"\r\n\r\n")
    status_line, *lines = head.decode("utf-8").split("\r\n")
    status = int(status_line.split(" ")[1])
    assert HTTPStatus(status)
    headers = dict(line.split(": ", 1) for line in lines)
    if headers.get("Transfer-Encoding") == "chunked":
        body = unchunked(body)
    elif not is_head:
        assert int(headers["Content-Length"]) == len(body)
    return Answer(status, headers, body)


def unchunked(data: bytes) -> bytes:
    body = b""
    while True:
        size, _, data = data.partition(b"\r\n")
        size_bytes = int(size, 16)
        body, ended, data = body + data[:size_bytes], data[size_bytes : size_bytes + 2], data[size_bytes + 2 :]
        assert ended == b"\r\n"
        if size_bytes == 0:
            assert data == b""
            return body


class NsqWorld(World):
    """A broker with nsqd's HTTP interface; each request has a connection of its own."""

    def __init__(self, partitions: int = 1, settings: NsqSettings | None = None) -> None:
        super().__init__(partitions)
        self.levels: list[str] = []
        self.tokens = count(1)
        self.context = NsqHttp(
            self.session,
            self.clock,
            NODE,
            lambda: f"{next(self.tokens):032x}",
            settings or NsqSettings(),
            memory=lambda: MemoryFigures(heap_objects=1, gc_total_runs=2),
            change_log_level=self.levels.append,
            options=OPTIONS,
        )
        self.router = nsq_router(self.context.settings)

    def raw(self, *pieces: bytes) -> Wire[NsqHttp]:
        wire = Wire(self.router, self.context, self.clock)
        for piece in pieces:
            wire.send(piece)
            self.turn()
            wire.settle()
            wire.drain()
        return wire

    def ask(self, method: str, path: str, body: bytes = b"", headers: Sequence[tuple[str, bytes]] = ()) -> Answer:
        head = f"{method} {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n".encode()
        more = b"".join(b"%b: %b\r\n" % (name.encode(), value) for name, value in headers)
        output = self.raw(head + more + b"\r\n" + body).output
        return parse(output, is_head=method == "HEAD")

    def get(self, path: str) -> Answer:
        return self.ask("GET", path)

    def post(self, path: str, body: bytes = b"") -> Answer:
        return self.ask("POST", path, body)


def message(answer: Answer) -> tuple[int, str]:
    """Status and code of an error."""
    found = re.fullmatch(r'\{"message":"(\w+)"\}', answer.text)
    assert found, answer
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    assert answer.headers["X-Nsq-Content-Type"] == "nsq; version=1.0"
    return answer.status, found[1]
