"""How commands talk to the HTTP port that a broker has in nsqd's place, and what its errors mean for whoever typed.

Read next: `topic.py` and `channel.py`, which are little more than the endpoints with words for people, and
`publish_http.py` and `consume_http.py`.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol
from urllib.parse import urlencode

import typer

from polymq.errors import ConfigError, ConnectFailed, ConnectionLost, DeadlineExceeded, RemoteProtocolError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["Exchange", "NsqHttp", "NsqHttpOption", "NsqHttpRefusal", "Stream", "connected", "explained", "over_http"]

NsqHttpOption = Annotated[
    str | None,
    typer.Option("--nsq-http", metavar="HOST:PORT", show_default=False, help="the broker (default: as configured, 127.0.0.1:4151)"),
]

_TIMEOUT_SECONDS: Final = 30.0
# After such a pause another connection is made: servers, and whatever is between, close those that are not used.
_PAUSE_SECONDS_MAX: Final = 30.0
# A page of messages is at most 1 MiB of bodies and the one that passes it (8 MiB), of which JSON can make six times as much.
_ANSWER_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
_PIECE_SIZE_BYTES: Final = 256 * 1024
_NAMES: Final = "1 to 64 letters, digits and . _ -, and perhaps #ephemeral behind them"

# The broker's codes, for people. What stands in braces is what was asked for.
_MEANINGS: Final[Mapping[str, str]] = {
    "TOPIC_NOT_FOUND": "there is no topic {topic!r}: polymq stats lists all",
    "CHANNEL_NOT_FOUND": "topic {topic!r} has no channel {channel!r}: polymq stats {topic} lists them",
    "MESSAGE_NOT_FOUND": "no deferred message {id} waits in topic {topic!r}: polymq topic deferred {topic} lists those that do",
    "INVALID_TOPIC": f"{{topic!r}} cannot be the name of a topic: {_NAMES}",
    "INVALID_ARG_TOPIC": f"{{topic!r}} cannot be the name of a topic: {_NAMES}",
    "INVALID_ARG_CHANNEL": f"{{channel!r}} cannot be the name of a channel: {_NAMES}",
    "INVALID_ID": "{id!r} is not the id of a message: 16 hexadecimal digits, as polymq topic deferred {topic} shows them",
    "INVALID_PARTITION": "topic {topic!r} has no partition {partition}: they are counted from 0",
    "INVALID_DEFER": "--delay: the broker defers nothing for {defer} ms: nsq.max_http_defer, or else nsq.max_req_timeout, is less",
    "INVALID_MAX_IN_FLIGHT": "--in-flight: {max_in_flight} is more than the broker's nsq.max_rdy_count",
    "MSG_TOO_BIG": "the message is larger than the broker's nsq.max_msg_size",
    "MSG_EMPTY": "a message must not be empty",
    "TOO_MANY_CONSUMERS": "channel {channel!r} of topic {topic!r} has as many consumers as nsq.max_channel_consumers lets it",
    "STREAM_NOT_FOUND": "the stream has ended: what it had and was not finished comes again",
    "INVALID_DEAD_LETTER": "{dead_letter!r} cannot be the dead-letter topic of {topic!r}: another topic, not an ephemeral one",
    "INVALID_MAX_ATTEMPTS": "--max-attempts: 0 (no limit) to 65534",
    "TOPIC_FULL": "topic {topic!r} holds as much as its policy lets it: polymq topic policy {topic} shows it",
    "UNAUTHENTICATED": "the broker wants a secret: put it into the environment as POLYMQ_SECRET",
    "FORBIDDEN": "the secret in POLYMQ_SECRET does not allow that",
    "NOT_FOUND": "the server at {address} does not know {path}: it is nsqd itself, or an older polymq",
    "METHOD_NOT_ALLOWED": "the server at {address} does not know {path}: it is nsqd itself, or an older polymq",
    "TLS_REQUIRED": "the broker answers over HTTPS only, which this command does not speak: use curl, or nsq.tls_required = tcp-https",
    "EXITING": "the broker is stopping, or its disk takes no more: polymq's log and /ping say what is wrong",
    "STORE_FAILED": "the data cannot be read: the broker's log says why, polymq inspect where",
}


class NsqHttpRefusal(ConfigError):
    """The broker refuses; `code` is its own word for it, "" if it had none."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__([text])
        self.code = code


class Exchange(Protocol):
    """One request and its answer's status and body."""

    def __call__(self, method: str, path: str, body: bytes = b"", headers: Sequence[tuple[str, bytes]] = (), /) -> tuple[int, bytes]: ...


class Stream(Protocol):
    """An answer without end."""

    status: int

    def read(self, timeout_seconds: float) -> bytes:
        """Give what comes next, nothing at the end; raises TimeoutError, ConnectionLost."""

    def close(self) -> None:
        """Hang up."""


class _Missing(dict[str, str]):
    """What an explanation speaks of and was not asked for."""

    def __missing__(self, key: str) -> str:
        return "?"


def explained(status: int, body: bytes, address: str, path: str, arguments: Mapping[str, object]) -> str:
    """Say what an error means, and what can be done about it."""
    code = _code(body)
    if not code:
        return f"the server at {address} answered {path} with status {status} and no reason that polymq knows: is it a broker?"
    meaning = _MEANINGS.get(code)
    if meaning is None:
        return f"the broker at {address} refused {path}: {code} ({status})"
    return meaning.format_map(_Missing(address=address, path=path, **{name: str(value) for name, value in arguments.items()}))


def _code(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return ""


class NsqHttp:
    """The endpoints of one broker. Raises NsqHttpRefusal with what to do; TransportError if nobody answers."""

    def __init__(self, address: str, exchange: Exchange, open_stream: Callable[[str], Stream] | None = None) -> None:
        self._address = address
        self._exchange = exchange
        self._open_stream = open_stream

    def get(self, path: str, **arguments: object) -> Any:
        """Ask for JSON. Arguments that are None are left out."""
        return self._json(path, self._ask("GET", path, arguments))

    def post(self, path: str, **arguments: object) -> None:
        """Have something done whose answer is nothing."""
        self._ask("POST", path, arguments)

    def send(self, path: str, body: bytes, headers: Sequence[tuple[str, bytes]] = (), /, **arguments: object) -> None:
        """Have a body taken whose answer is nothing. Header values are printable, or beyond ASCII."""
        self._ask("POST", path, arguments, body, headers)

    def stream(self, path: str, **arguments: object) -> Stream:
        """Begin an answer without end, on a connection of its own; the caller closes it."""
        assert self._open_stream is not None
        stream = self._open_stream(f"{path}?{urlencode(arguments)}")
        if stream.status == http.client.OK:
            return stream
        with contextlib.closing(stream):
            body = b""
            while len(body) < _PIECE_SIZE_BYTES and (piece := stream.read(_TIMEOUT_SECONDS)):
                body += piece
        raise self._refusal(stream.status, body, path, arguments)

    def change(self, path: str, **arguments: object) -> Any:
        """Have something changed that is answered with JSON."""
        return self._json(path, self._ask("POST", path, arguments))

    def pages(self, path: str, count: int, place: str = "after", **arguments: object) -> Iterator[Any]:
        """Give the messages of a list, at most `count`, page by page."""
        while count > 0:
            answer = self.get(path, count=min(count, 250), **arguments)
            yield from answer["messages"]
            count -= len(answer["messages"])
            if answer["next"] is None:
                break
            arguments[place] = answer["next"]

    def _ask(
        self, method: str, path: str, arguments: Mapping[str, object], body: bytes = b"", headers: Sequence[tuple[str, bytes]] = ()
    ) -> bytes:
        given = {name: value for name, value in arguments.items() if value is not None}
        status, answer = self._exchange(method, f"{path}?{urlencode(given)}", body, headers)
        if status != http.client.OK:
            raise self._refusal(status, answer, path, given)
        return answer

    def _refusal(self, status: int, answer: bytes, path: str, given: Mapping[str, object]) -> NsqHttpRefusal:
        return NsqHttpRefusal(_code(answer), explained(status, answer, self._address, path, given))

    def _json(self, path: str, body: bytes) -> Any:
        try:
            return json.loads(body)
        except ValueError as error:
            raise RemoteProtocolError(f"the answer of {self._address} to {path} is not JSON") from error


class _Answer:
    """A `Stream` over a connection."""

    def __init__(self, connection: http.client.HTTPConnection, where: str) -> None:
        """Read the head of the answer."""
        assert connection.sock is not None
        self._socket: socket.socket = connection.sock  # the connection forgets it when the answer's end is its own
        self._response = connection.getresponse()
        self._connection = connection
        self._where = where
        self.status = self._response.status

    def read(self, timeout_seconds: float) -> bytes:
        """See `Stream`. Nothing more can be read after a TimeoutError."""
        self._socket.settimeout(timeout_seconds)
        try:
            return self._response.read1(_PIECE_SIZE_BYTES)
        except TimeoutError:
            raise
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionLost(f"the connection to {self._where} ended: {error!r}") from error

    def close(self) -> None:
        """Hang up."""
        self._response.close()
        self._connection.close()


class _Connection:
    """Carries requests over one connection."""

    def __init__(self, host: str, port: int, secret: str) -> None:
        if not (secret.isascii() and secret.isprintable()):
            raise ConfigError(["POLYMQ_SECRET: a secret of other than printable ASCII cannot be sent over HTTP"])
        self._where = f"{host}:{port}"
        self._headers = [("Authorization", f"Bearer {secret}".encode())] if secret else []
        self._make = partial(http.client.HTTPConnection, host, port, timeout=_TIMEOUT_SECONDS)
        self._connection = self._make()
        self._used_at = 0.0

    def __call__(self, method: str, path: str, body: bytes = b"", headers: Sequence[tuple[str, bytes]] = (), /) -> tuple[int, bytes]:
        connection = self._connection
        if time.monotonic() - self._used_at > _PAUSE_SECONDS_MAX:
            connection.close()
        if connection.sock is None:
            self._connect(connection)
        with self._explaining():
            self._request(connection, method, path, body, headers)
            response = connection.getresponse()
            answer = response.read(_ANSWER_SIZE_BYTES_MAX + 1)
        self._used_at = time.monotonic()
        if len(answer) > _ANSWER_SIZE_BYTES_MAX:
            raise RemoteProtocolError(f"an answer of more than {_ANSWER_SIZE_BYTES_MAX} bytes")
        return response.status, answer

    def stream(self, path: str) -> Stream:
        """Ask on another connection, for an answer that does not end."""
        connection = self._make()
        self._connect(connection)
        try:
            with self._explaining():
                self._request(connection, "GET", path)
                return _Answer(connection, self._where)
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def _connect(self, connection: http.client.HTTPConnection) -> None:
        try:
            connection.connect()
        except OSError as error:
            raise ConnectFailed(f"no connection to {self._where}: {error}") from error

    def _request(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes = b"", headers: Sequence[tuple[str, bytes]] = ()
    ) -> None:
        """Send one; headers may come several times."""
        connection.putrequest(method, path)
        if method == "POST":
            connection.putheader("Content-Length", str(len(body)))
        for name, value in (*self._headers, *headers):
            connection.putheader(name, value)
        connection.endheaders(body or None)

    @contextlib.contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            raise DeadlineExceeded(f"no answer from {self._where} within {_TIMEOUT_SECONDS:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionLost(f"the connection to {self._where} ended: {error!r}") from error


def over_http(nsq: str | None, nsq_http: str | None, *, wanted: bool) -> bool:
    """Say whether a command that speaks TCP and HTTP is to speak HTTP: `wanted` for its own sake. Raises ConfigError."""
    if not wanted and nsq_http is None:
        return False
    if nsq is not None:
        raise ConfigError(["--nsq names the broker for TCP, and this goes over HTTP: name it with --nsq-http HOST:PORT"])
    return True


@contextlib.contextmanager
def connected(given: str | None) -> Iterator[NsqHttp]:
    """Talk to the broker at the address given, else at the configured one."""
    from polymq.cli.reach import secret, tcp_address_of
    from polymq.config_values import format_address

    address = tcp_address_of("nsq.http", given)
    with contextlib.closing(_Connection(address.host, address.port, secret())) as connection:
        yield NsqHttp(format_address(address), connection, connection.stream)
