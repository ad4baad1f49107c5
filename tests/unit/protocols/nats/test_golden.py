"""The codec answers what nats-server answered, line by line, wherever the answer does not take subscriptions.

`Client` and `Route` are the least that can answer: whatever is legal succeeds, and nobody gets anything.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from polymq.protocols.nats import encode, events, info, problems, subjects
from polymq.protocols.nats.commands import PeerKind
from polymq.protocols.nats.decode import Decoder
from polymq.protocols.nats.settings import NatsSettings
from tests.unit.protocols.nats.golden_cases import CLIENT_CASES, ROUTE_CASES

GOLDEN = Path(__file__).with_name("golden_v2.9.10.txt")
SETTINGS = NatsSettings()


class Server:
    """One connection."""

    kind: PeerKind

    def __init__(self) -> None:
        self.decoder = Decoder(SETTINGS, self.kind)
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
                if self.closed:
                    return
            if self.decoder.need:
                return

    def answer(self, event: events.Event) -> bytes:
        match event:
            case events.Ping():
                return encode.PONG
            case events.Violation(text):
                return self.refuse(text)
            case events.SilentClose() | events.PeerError():
                self.closed = True
        return b""

    def refuse(self, text: bytes) -> bytes:
        self.closed = True
        return encode.error_line(text)

    def transcript(self) -> str:
        lines = [repr(line) for line in self.output.decode("latin-1").split("\r\n") if line]
        return f"{' | '.join(lines) or '(nothing)'} [{'CLOSED' if self.closed else 'open'}]"


class Client(Server):
    """A client's, without a login."""

    kind = PeerKind.CLIENT

    def __init__(self) -> None:
        super().__init__()
        self.connect = info.FIRST_CONNECT

    def answer(self, event: events.Event) -> bytes:
        match event:
            case events.Connect(body):
                return self.connected(info.parse_connect(body, self.connect))
            case events.Publishes(batch):
                return b"".join(
                    self.published(*subjects.publish_problem(batch, i, pedantic=self.connect.pedantic)) for i in range(batch.count)
                )
            case events.Subscribe(subject, _, queue):
                if queue == subjects.RESERVED_QUEUE:
                    return encode.error_line(problems.subscription_forbidden(subject, queue))
                return self.ok() if subjects.is_valid_subscription(subject) else encode.error_line(problems.INVALID_SUBJECT)
            case events.Unsubscribe():
                return self.ok()
        return super().answer(event)

    def ok(self) -> bytes:
        return encode.OK if self.connect.verbose else b""

    def connected(self, connect: info.ClientConnect | None) -> bytes:
        if connect is None:
            self.closed = True
            return b""
        problem = info.connect_problem(connect)
        if problem:
            return self.refuse(problem[0])
        self.connect = connect
        self.decoder.headers = connect.headers
        return self.ok()

    def published(self, texts: list[bytes], dropped: bool) -> bytes:
        return b"".join(map(encode.error_line, texts)) + (b"" if dropped else self.ok())


class Route(Server):
    """Another server's, in the cluster c1, without a login."""

    kind = PeerKind.ROUTE

    def answer(self, event: events.Event) -> bytes:
        match event:
            case events.Connect(body):
                return self.connected(info.parse_route_connect(body))
            case events.Info(body):
                self.closed = info.parse_info(body) is None
            case events.RemoteSubscribe(_, subject) if not subjects.is_valid_subscription(subject):
                return encode.error_line(problems.INVALID_ROUTED_SUBJECT)
        return super().answer(event)

    def connected(self, connect: info.RouteConnect | None) -> bytes:
        if connect is None:
            self.closed = True
            return b""
        problem = info.route_connect_problem(connect)
        if problem:
            return self.refuse(problem[0])
        return b"" if connect.cluster == "c1" else self.refuse(problems.cluster_name_conflict(connect.cluster.encode(), b"c1"))


def golden() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for line in GOLDEN.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            part = found.setdefault(line.removeprefix("## "), {})
        else:
            name, answer = line.split(" -> ", 1)
            part[name] = answer
    return found


EXPECTED = golden()


@pytest.mark.parametrize("name", CLIENT_CASES)
@pytest.mark.parametrize("cut", [False, True], ids=["whole", "in two pieces"])
def test_clients_are_answered_as_nats_server_does(name: str, cut: bool) -> None:
    client = Client()
    send_with_ping(client, CLIENT_CASES[name], cut)
    assert client.transcript() == EXPECTED["clients"][name]


@pytest.mark.parametrize("name", ROUTE_CASES)
@pytest.mark.parametrize("cut", [False, True], ids=["whole", "in two pieces"])
def test_routes_are_answered_as_nats_server_does(name: str, cut: bool) -> None:
    route = Route()
    send_with_ping(route, ROUTE_CASES[name], cut)
    assert route.transcript() == EXPECTED["routes"][name]


def send_with_ping(server: Server, data: bytes, cut: bool) -> None:
    data += b"PING\r\n"
    pieces = [data[: len(data) // 2], data[len(data) // 2 :]] if cut else [data]
    for piece in pieces:
        server.send(piece)


def test_every_line_of_the_transcript_is_used() -> None:
    assert set(EXPECTED["clients"]) == set(CLIENT_CASES)
    assert set(EXPECTED["routes"]) == set(ROUTE_CASES)
