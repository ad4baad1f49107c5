"""How commands talk to the HTTP port that a broker has in nsqd's place, and what its errors mean for whoever typed.

Read next: `topic.py` and `channel.py`, which are little more than the endpoints with words for people.
"""

from __future__ import annotations

import contextlib
import http.client
import json
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol
from urllib.parse import urlencode

import typer

from polymq.errors import ConfigError, ConnectFailed, ConnectionLost, DeadlineExceeded, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Exchange", "NsqHttp", "NsqHttpOption", "connected", "explained"]

NsqHttpOption = Annotated[
    str | None,
    typer.Option("--nsq-http", metavar="HOST:PORT", show_default=False, help="the broker (default: as configured, 127.0.0.1:4151)"),
]

_TIMEOUT_SECONDS: Final = 30.0
# A page of messages is at most 1 MiB of bodies and the one that passes it (8 MiB), of which JSON can make six times as much.
_ANSWER_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
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


class Exchange(Protocol):
    """One request and its answer's status and body."""

    def __call__(self, method: str, path: str) -> tuple[int, bytes]: ...


class _Missing(dict[str, str]):
    """What an explanation speaks of and was not asked for."""

    def __missing__(self, key: str) -> str:
        return "?"


def explained(status: int, body: bytes, address: str, path: str, arguments: Mapping[str, object]) -> str:
    """Say what an error means, and what can be done about it."""
    try:
        code = str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return f"the server at {address} answered {path} with status {status} and no reason that polymq knows: is it a broker?"
    meaning = _MEANINGS.get(code)
    if meaning is None:
        return f"the broker at {address} refused {path}: {code} ({status})"
    return meaning.format_map(_Missing(address=address, path=path, **{name: str(value) for name, value in arguments.items()}))


class NsqHttp:
    """The endpoints of one broker. Raises ConfigError with what to do; TransportError if nobody answers."""

    def __init__(self, address: str, exchange: Exchange) -> None:
        self._address = address
        self._exchange = exchange

    def get(self, path: str, **arguments: object) -> Any:
        """Ask for JSON. Arguments that are None are left out."""
        return self._json(path, self._ask("GET", path, arguments))

    def post(self, path: str, **arguments: object) -> None:
        """Have something done whose answer is nothing."""
        self._ask("POST", path, arguments)

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

    def _ask(self, method: str, path: str, arguments: Mapping[str, object]) -> bytes:
        given = {name: value for name, value in arguments.items() if value is not None}
        status, body = self._exchange(method, f"{path}?{urlencode(given)}")
        if status != http.client.OK:
            raise ConfigError([explained(status, body, self._address, path, given)])
        return body

    def _json(self, path: str, body: bytes) -> Any:
        try:
            return json.loads(body)
        except ValueError as error:
            raise RemoteProtocolError(f"the answer of {self._address} to {path} is not JSON") from error


class _Connection:
    """Carries requests over one connection."""

    def __init__(self, host: str, port: int, secret: str) -> None:
        if not (secret.isascii() and secret.isprintable()):
            raise ConfigError(["POLYMQ_SECRET: a secret of other than printable ASCII cannot be sent over HTTP"])
        self._where = f"{host}:{port}"
        self._headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        self._connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)

    def __call__(self, method: str, path: str) -> tuple[int, bytes]:
        connection = self._connection
        if connection.sock is None:
            try:
                connection.connect()
            except OSError as error:
                raise ConnectFailed(f"no connection to {self._where}: {error}") from error
        try:
            connection.request(method, path, headers=self._headers)
            response = connection.getresponse()
            body = response.read(_ANSWER_SIZE_BYTES_MAX + 1)
        except TimeoutError as error:
            raise DeadlineExceeded(f"no answer from {self._where} within {_TIMEOUT_SECONDS:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionLost(f"the connection to {self._where} ended: {error!r}") from error
        if len(body) > _ANSWER_SIZE_BYTES_MAX:
            raise RemoteProtocolError(f"an answer of more than {_ANSWER_SIZE_BYTES_MAX} bytes")
        return response.status, body

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


@contextlib.contextmanager
def connected(given: str | None) -> Iterator[NsqHttp]:
    """Talk to the broker at the address given, else at the configured one."""
    from polymq.cli.reach import secret, tcp_address_of
    from polymq.config_values import format_address

    address = tcp_address_of("nsq.http", given)
    with contextlib.closing(_Connection(address.host, address.port, secret())) as connection:
        yield NsqHttp(format_address(address), connection)
