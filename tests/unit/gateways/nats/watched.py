"""A NATS server that is watched: its monitoring pages, asked as functions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from polymq.gateways.nats.monitoring import Monitored, Process, monitoring_router
from polymq.wire.exchange import Request, Response
from tests.unit.gateways.nats.harness import World

if TYPE_CHECKING:
    from polymq.protocols.nats.settings import NatsSettings

__all__ = ["Watched", "named"]

PAGES = monitoring_router()


class Watched(World):
    """A server and its pages."""

    def __init__(self, settings: NatsSettings | None = None) -> None:
        super().__init__(settings)
        self.problems: list[str] = []
        self.monitored = Monitored(
            house=self.house,
            clock=self.clock,
            process=Process(lambda: 1 << 20, lambda: 12.34, lambda: self.problems),
            pending_size_bytes=self.pump.courier.waiting_size_bytes,
            started_at_ns=self.clock.wall_ns(),
            http_host="127.0.0.1",
            http_port=8222,
        )

    def ask(self, path: str, method: str = "GET") -> Response:
        path, _, query = path.partition("?")
        answer = PAGES.answer(Request(method, path, query, arguments=dict(parse_qsl(query, keep_blank_values=True))), self.monitored)
        assert isinstance(answer, Response)
        return answer

    def body(self, path: str) -> bytes:
        answer = self.ask(path)
        return answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)

    def document(self, path: str) -> dict[str, Any]:
        return dict(json.loads(self.body(path)))

    def names(self, path: str) -> list[str]:
        return [row.get("name", "") for row in self.document(path)["connections"]]


def named(name: str) -> bytes:
    return b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"name":"%b"}\r\n' % name.encode()
