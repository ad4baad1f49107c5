from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest

from polymq import limits
from polymq.config_values import TcpAddress
from polymq.gateways.effects import Ask, Send
from polymq.protocols.http.client import Answer, Failure, Question
from polymq.server.outside import HttpOutside
from tests.unit.server.fake_dialer import FakeDial, FakeDialer
from tests.unit.server.fakes import Gateway, World

if TYPE_CHECKING:
    from polymq.server.connection import Connection
    from tests.unit.server.fakes import Stream

SECOND_NS = 1_000_000_000
HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


class Story:
    """A pump that asks, and a dialer that the test answers for."""

    def __init__(self) -> None:
        self.world = World()
        self.dialer = FakeDialer(self.world.pump)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.contexts_made = 0
        self.outside = HttpOutside(self.dialer, self.world.pump, self.world.clock, self.make_context)
        self.results: list[object] = []

    def make_context(self) -> ssl.SSLContext:
        self.contexts_made += 1
        return self.context

    def ask(self, url: str = "http://auth.invalid:81/auth", *, timeout_ns: int = 5 * SECOND_NS) -> None:
        self.outside.ask(Question(url, timeout_ns, 2 * SECOND_NS), self.results.append)

    def connect(self) -> tuple[Stream, Connection]:
        """Let the oldest dial succeed."""
        stream, connection = self.dialer.open[0].connect()
        self.world.turn()
        return stream, connection

    def idle(self) -> bool:
        """Whether nothing is left over."""
        for _ in range(10):
            self.world.pass_time(10 * SECOND_NS)
        return not self.world.pump.connections and not self.dialer.open and not self.outside._under_way


def test_a_question_is_answered_in_a_later_turn() -> None:
    story = Story()
    story.ask()
    assert story.dialer.dials[0].address == TcpAddress("auth.invalid", 81)
    assert story.dialer.dials[0].timeout_ns == 2 * SECOND_NS
    assert story.dialer.dials[0].tls is None
    stream, connection = story.connect()
    assert bytes(stream.outgoing).startswith(b"GET /auth HTTP/1.1\r\nHost: auth.invalid:81\r\n")
    stream.incoming.append(HELLO)
    story.world.pump.readable(connection)
    assert story.results == []
    story.world.turn()
    assert story.results == [Answer(200, ((b"content-length", b"5"),), b"hello")]
    assert story.idle()
    assert len(story.results) == 1


def test_tls_is_as_the_url_says() -> None:
    story = Story()
    story.ask("https://auth.invalid/")
    story.ask("https://auth.invalid/")
    tls = story.dialer.dials[0].tls
    assert tls is not None
    assert (tls.context, tls.server_name) == (story.context, "auth.invalid")
    assert story.dialer.dials[0].address == TcpAddress("auth.invalid", 443)
    assert story.contexts_made == 1, "reading the system's certificates takes long"


def test_certificates_that_cannot_be_read_are_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    story = Story()

    def unreadable() -> ssl.SSLContext:
        raise FileNotFoundError(2, "No such file or directory")

    story.outside = HttpOutside(story.dialer, story.world.pump, story.world.clock, unreadable)
    story.ask("https://auth.invalid/who?secret=planted")
    assert story.results == [], "not before ask has returned"
    for _ in range(2):
        story.world.turn()
    assert story.results == [Failure("cannot be asked: [Errno 2] No such file or directory")]
    assert story.idle()
    assert not story.outside._servers
    assert "https://auth.invalid/who: a question cannot be asked" in caplog.text
    assert "planted" not in caplog.text


def test_very_many_that_wait_for_their_turn_fail_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story()
    for _ in range(limits.QUESTIONS_PER_SERVER_MAX + 1000):
        story.ask()

    def broken(*_arguments: object, **_named: object) -> FakeDial:
        raise ValueError("broken")

    monkeypatch.setattr(story.dialer, "dial", broken)
    for dial in story.dialer.open:
        dial.fail()
    for _ in range(1000 // limits.QUESTIONS_PER_SERVER_MAX + 5):
        story.world.turn()
    assert story.results[limits.QUESTIONS_PER_SERVER_MAX :] == [Failure("cannot be asked: broken")] * 1000
    assert story.idle()


def test_a_question_that_could_not_be_asked_can_be_cancelled() -> None:
    story = Story()
    story.outside = HttpOutside(story.dialer, story.world.pump, story.world.clock, lambda: ssl.create_default_context(cafile="/nowhere"))
    asked = story.outside.ask(Question("https://auth.invalid/", 5 * SECOND_NS, 2 * SECOND_NS), story.results.append)
    asked.cancel()
    assert story.idle()
    assert story.results == []


@pytest.mark.parametrize("url", ["auth.invalid", "ftp://auth.invalid/", "http://auth invalid/"])
def test_what_is_no_url(url: str) -> None:
    story = Story()
    story.ask(url)
    assert story.results == [], "not before ask has returned"
    story.world.turn()
    assert story.results == [Failure("not a URL of http or https")]


def test_nobody_answers_the_call() -> None:
    story = Story()
    story.ask()
    story.dialer.open[0].fail("Connection refused")
    story.world.turn()
    assert story.results == [Failure("cannot connect: Connection refused")]
    assert story.idle()


@pytest.mark.parametrize("connected", [False, True])
def test_a_server_that_hangs(connected: bool) -> None:
    story = Story()
    story.ask()
    if connected:
        stream, connection = story.connect()
        story.world.send(connection, b"HTTP/1.1 200 OK\r\nX: ")
        story.world.pass_time(4 * SECOND_NS)
        story.world.send(connection, b"dripping")
    else:
        story.world.pass_time(4 * SECOND_NS)
    assert story.results == []
    story.world.pass_time(1 * SECOND_NS)
    assert story.results == [Failure("no answer in time")]
    if connected:
        assert stream.output_ended
    assert story.idle()
    assert len(story.results) == 1


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"", "hung up before the answer was whole"),
        (b"220 mail.invalid\r\n\r\n", "not an answer in HTTP: illegal status line: bytearray(b'220 mail.invalid')"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", "hung up before the answer was whole"),
    ],
)
def test_a_server_that_talks_nonsense(said: bytes, reason: str) -> None:
    story = Story()
    story.ask()
    stream, connection = story.connect()
    if said:
        stream.incoming.append(said)
        story.world.pump.readable(connection)
    stream.input_ended = True
    story.world.pump.readable(connection)
    story.world.turn()
    assert story.results == [Failure(reason)]
    assert story.idle()


def test_a_connection_that_breaks() -> None:
    story = Story()
    story.ask()
    stream, connection = story.connect()
    stream.incoming.append(ConnectionResetError())
    story.world.pump.readable(connection)
    story.world.turn()
    assert story.results == [Failure("the connection broke")]


def test_ten_megabytes_are_not_read() -> None:
    story = Story()
    story.ask()
    stream, connection = story.connect()
    stream.incoming.append(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n" + b"x" * 10_000_000)
    while connection.watched[0] and not story.results:
        story.world.pump.readable(connection)
        story.world.turn()
    assert story.results == [Failure(f"an answer of more than {limits.HTTP_ANSWER_SIZE_BYTES_MAX} bytes")]
    assert sum(story.world.watcher.watched[connection]) <= 1
    assert len(stream.incoming[0]) > 9_000_000, "the rest was not read"  # type: ignore[arg-type]
    assert story.idle()


def test_redirects_are_followed_within_the_same_time() -> None:
    story = Story()
    story.ask()
    for hop in range(limits.HTTP_REDIRECTS_MAX + 1):
        story.world.pass_time(SECOND_NS // 10)
        stream, connection = story.connect()
        assert bytes(stream.outgoing).startswith(b"GET /auth" if not hop else b"GET /%d" % hop)
        story.world.send(connection, b"HTTP/1.1 302 Found\r\nLocation: /%d\r\nContent-Length: 0\r\n\r\n" % (hop + 1))
    assert story.results == [Failure("more than 10 redirects")]
    assert story.dialer.dials[0].timeout_ns == 2 * SECOND_NS
    assert story.idle()


def test_a_redirect_near_the_end_of_the_time_gets_what_is_left() -> None:
    story = Story()
    story.ask()
    _, connection = story.connect()
    story.world.pass_time(4 * SECOND_NS)
    story.world.send(connection, b"HTTP/1.1 307 Go\r\nLocation: http://b.invalid/\r\nContent-Length: 0\r\n\r\n")
    assert story.dialer.open[0].timeout_ns == 1 * SECOND_NS
    story.world.pass_time(SECOND_NS)
    assert story.results == [Failure("no answer in time")]
    assert story.idle()


def test_only_so_many_at_a_time() -> None:
    story = Story()
    servers = limits.QUESTIONS_MAX // limits.QUESTIONS_PER_SERVER_MAX + 1
    for index in range(limits.QUESTIONS_MAX + 2):
        story.ask(f"http://auth{index % servers}.invalid/", timeout_ns=(9 if index <= limits.QUESTIONS_MAX else 5) * SECOND_NS)
    assert len(story.dialer.dials) == limits.QUESTIONS_MAX
    story.dialer.open[0].fail()
    story.world.turn()
    assert len(story.dialer.dials) == limits.QUESTIONS_MAX + 1
    story.world.pass_time(5 * SECOND_NS)
    assert story.results[1:] == [Failure("too many questions at a time")]
    story.world.pass_time(4 * SECOND_NS)
    assert len(story.results) == limits.QUESTIONS_MAX + 2
    assert story.idle()


def test_a_server_that_hangs_takes_nothing_from_another() -> None:
    story = Story()
    for _ in range(limits.QUESTIONS_MAX + 1):
        story.ask("http://hung.invalid/")
    assert len(story.dialer.dials) == limits.QUESTIONS_PER_SERVER_MAX
    story.ask("http://healthy.invalid/")
    dial = story.dialer.dials[-1]
    assert dial.address == TcpAddress("healthy.invalid", 80)
    _, connection = dial.connect()
    story.world.send(connection, HELLO)
    assert story.results == [Answer(200, ((b"content-length", b"5"),), b"hello")]
    assert story.idle()
    assert len(story.results) == limits.QUESTIONS_MAX + 2
    assert not story.outside._servers


def test_directories_have_questions_of_their_own() -> None:
    story = Story()
    lookups = HttpOutside(story.dialer, story.world.pump, story.world.clock, questions_max=limits.LOOKUP_QUESTIONS_TOTAL_MAX)
    for index in range(2 * limits.QUESTIONS_MAX):
        story.ask(f"http://auth{index % 8}.invalid/")
        lookups.ask(Question(f"http://directory{index % 32}.invalid/", 5 * SECOND_NS, 2 * SECOND_NS), story.results.append)
    assert len(story.dialer.dials) == limits.QUESTIONS_MAX + limits.LOOKUP_QUESTIONS_TOTAL_MAX


def test_servers_have_their_turns_one_after_the_other() -> None:
    story = Story()
    story.outside._questions_max = 1
    for host in ("a", "a", "a", "b", "c"):
        story.ask(f"http://{host}.invalid/")
    for _ in range(5):
        story.dialer.open[0].fail()
        story.world.turn()
    hosts = [dial.address.host for dial in story.dialer.dials if isinstance(dial.address, TcpAddress)]
    assert hosts == ["a.invalid", "a.invalid", "b.invalid", "c.invalid", "a.invalid"]


def test_whoever_waited_has_all_the_time_there_is() -> None:
    story = Story()
    for _ in range(limits.QUESTIONS_PER_SERVER_MAX + 1):
        story.ask()
    story.world.pass_time(4 * SECOND_NS)
    story.dialer.open[0].fail()
    story.world.turn()
    assert len(story.dialer.dials) == limits.QUESTIONS_PER_SERVER_MAX + 1
    assert story.dialer.dials[-1].timeout_ns == 2 * SECOND_NS
    story.world.pass_time(5 * SECOND_NS - 1)
    assert len(story.results) == limits.QUESTIONS_PER_SERVER_MAX
    story.world.pass_time(1)
    assert story.results[-1] == Failure("no answer in time")
    assert story.idle()


@pytest.mark.parametrize("stage", ["waiting", "dialled", "connected", "answered"])
def test_a_question_that_nobody_wants_answered(stage: str) -> None:
    story = Story()
    if stage == "waiting":
        story.outside._questions_max = 0
    asked = story.outside.ask(Question("http://auth.invalid/", 5 * SECOND_NS, 2 * SECOND_NS), story.results.append)
    if stage in ("connected", "answered"):
        stream, connection = story.connect()
        if stage == "answered":
            stream.incoming.append(HELLO)
            story.world.pump.readable(connection)
    asked.cancel()
    asked.cancel()
    assert not story.dialer.open
    assert story.idle()
    assert not story.outside._servers
    assert not story.outside._waiting_count
    assert story.results == []


def test_through_the_pump() -> None:
    story = Story()
    world = story.world
    world.pump.outside = story.outside
    gateway = Gateway()
    question = Question("http://auth.invalid/", 5 * SECOND_NS, 2 * SECOND_NS)
    gateway.on_line = lambda line, effects: effects.append(
        Ask(1, question, world.clock.now_ns + 6 * SECOND_NS) if line == b"who" else Send(line)
    )
    gateway.stop_after = {b"who"}
    _, _, asking = world.connect(gateway)
    stream, _, other = world.connect()
    world.send(asking, b"who\nnext\n")
    assert not asking.watched[0]
    _, connection = story.connect()
    world.send(other, b"undisturbed\n")
    world.send(connection, HELLO)
    answer = Answer(200, ((b"content-length", b"5"),), b"hello")
    assert gateway.calls == ["opened", b"who", f"answered 1 {answer}", b"next"]
    assert not stream.closed()


def test_only_so_many_wait() -> None:
    story = Story()
    for _ in range(limits.QUESTIONS_PER_SERVER_MAX + limits.QUESTIONS_WAITING_MAX + 1):
        story.ask()
    assert story.results == []
    story.world.turn()
    assert story.results == [Failure("too many questions at a time")]
    assert story.idle()
    assert len(story.results) == limits.QUESTIONS_PER_SERVER_MAX + limits.QUESTIONS_WAITING_MAX + 1
