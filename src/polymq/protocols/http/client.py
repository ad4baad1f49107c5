"""Questions that we ask over HTTP/1.1, and answers out of bytes: the client's side, without I/O.

One exchange is one connection: the question goes out with `Connection: close`, and the answer is whole when its body
is. What a server can do wrong (nonsense, a body without end, an answer that is cut off) becomes a `Failure` with a
reason for people; nothing is raised, and no more is kept than the question allows. h11 judges what an answer means.
Read next: `server/outside.py`, which makes the connections.
"""

from __future__ import annotations

import ipaddress
import re
from base64 import b64encode
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

import h11

from polymq import limits

__all__ = ["Answer", "Exchange", "Failure", "Question", "Where", "redirected", "where", "without_user"]

_PORTS: Final = {"http": 80, "https": 443}
_HOST_NAME: Final = re.compile(r"[_0-9A-Za-z][-_.0-9A-Za-z]{0,252}")
# How a URL begins that says who is to log in: with everything up to the last @ before the path.
_USER: Final = re.compile(r"\A([^/?#]*://)?[^/?#]*@")
# What may stand in a target as it is; all else is escaped, what is escaped already stays so.
_TARGET_SAFE: Final = "!$%&'()*+,-./:;=?@_~[]|"
_SEE_OTHER: Final = (301, 302, 303)  # the method becomes GET, as in browsers and in Go
_SAME_AGAIN: Final = (307, 308)
# Chunks of one byte make six of one; an answer that needs more than this is not meant to be read.
_OVERHEAD_FACTOR: Final = 8


@dataclass(frozen=True, slots=True)
class Question:
    """One request. `repr` shows neither the URL's query nor the body, which may be secret: see `shown`."""

    url: str = field(repr=False)
    timeout_ns: int  # for everything: the name, connecting, redirects, the whole answer
    connect_timeout_ns: int
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = field(default=b"", repr=False)
    body_size_bytes_max: int = limits.HTTP_ANSWER_SIZE_BYTES_MAX  # of the answer
    redirects_left: int = limits.HTTP_REDIRECTS_MAX

    @property
    def shown(self) -> str:
        """The URL as far as it may be shown: no user, no query."""
        parts = _split(self.url)
        if parts is None:
            return "a URL that cannot be read"
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer. Header names are lower case."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = field(default=b"", repr=False)

    def header(self, name: bytes) -> bytes:
        """Give the first header of that name, or nothing."""
        return next((value for each, value in self.headers if each == name), b"")


@dataclass(frozen=True, slots=True)
class Failure:
    """There is no answer; `reason` is for the log."""

    reason: str


@dataclass(frozen=True, slots=True)
class Where:
    """A URL taken apart: whom to call, and what to say there."""

    secure: bool
    host: str
    port: int
    authority: str  # the Host header
    target: str = field(repr=False)
    credentials: str = field(default="", repr=False)  # "user:password" of the URL


def where(url: str) -> Where | None:
    """Take a URL apart; None if it is not one of http or https."""
    parts = _split(url)
    if parts is None:
        return None
    host = parts.hostname or ""
    port = parts.port if parts.port is not None else _PORTS[parts.scheme]
    named = f"[{host}]" if ":" in host else host
    target = quote(parts.path or "/", safe=_TARGET_SAFE)
    if parts.query:
        target += "?" + quote(parts.query, safe=_TARGET_SAFE)
    credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
    authority = named if parts.port is None else f"{named}:{port}"
    return Where(parts.scheme == "https", host, port, authority, target, credentials)


def without_user(url: str) -> str:
    """Write a URL, or HOST:PORT, so that it may be shown: whoever is to log in there is left out."""
    return _USER.sub(r"\1", url)


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not host or port == 0:
        return None
    return parts if _HOST_NAME.fullmatch(host) or _is_address(host) else None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def redirected(question: Question, answer: Answer) -> Question | Failure | None:
    """Say what is to be asked instead, if the answer is a redirect; None if it is not."""
    again = answer.status in _SAME_AGAIN
    location = answer.header(b"location")
    if not (again or answer.status in _SEE_OTHER) or not location:
        return None
    if question.redirects_left <= 0:
        return Failure(f"more than {limits.HTTP_REDIRECTS_MAX} redirects")
    try:
        url = urljoin(question.url, location.decode("latin-1"))
    except ValueError:
        url = ""
    if where(url) is None:
        return Failure("redirected to something that is no URL of http or https")
    question = replace(question, url=url, redirects_left=question.redirects_left - 1)
    if again or question.method in ("GET", "HEAD"):
        return question
    kept = tuple((name, value) for name, value in question.headers if name.lower() != "content-type")
    return replace(question, method="GET", body=b"", headers=kept)


class Exchange:
    """One question on one connection.

    Limits: `limits.HTTP_HEAD_SIZE_BYTES_MAX` for the answer's head, the question's for its body.
    Cost: the body is copied twice.
    """

    def __init__(self, question: Question, place: Where) -> None:
        self._question = question
        self._place = place
        self._connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=limits.HTTP_HEAD_SIZE_BYTES_MAX)
        self._status = 0
        self._headers: tuple[tuple[bytes, bytes], ...] = ()
        self._body = bytearray()
        self._received = 0
        self._result: Answer | Failure | None = None

    def request(self) -> bytes:
        """Give all that is to be sent."""
        question, place = self._question, self._place
        headers = [("Host", place.authority), ("User-Agent", "polymq"), *question.headers]
        if question.body:
            headers.append(("Content-Length", str(len(question.body))))
        if place.credentials:
            headers.append(("Authorization", f"Basic {b64encode(place.credentials.encode()).decode()}"))
        headers.append(("Connection", "close"))
        data = self._connection.send(h11.Request(method=question.method, target=place.target, headers=headers)) or b""
        if question.body:
            data += self._connection.send(h11.Data(question.body)) or b""
        return data + (self._connection.send(h11.EndOfMessage()) or b"")

    def receive(self, data: bytes) -> Answer | Failure | None:
        """Take what has come; give the result once there is one, and the same from then on."""
        self._received += len(data)
        if self._result is None:
            if self._received > limits.HTTP_HEAD_SIZE_BYTES_MAX + _OVERHEAD_FACTOR * self._question.body_size_bytes_max:
                self._result = Failure(f"an answer without end: {self._received} bytes so far")
            else:
                self._result = self._read(data)
        return self._result

    def eof(self) -> Answer | Failure:
        """Say what the end of the connection means."""
        if self._result is None:
            self._result = self._read(b"") or Failure("hung up before the answer was whole")
        return self._result

    def _read(self, data: bytes) -> Answer | Failure | None:
        connection = self._connection
        try:
            connection.receive_data(data)
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    return None
                if isinstance(event, h11.Response):
                    self._status = event.status_code
                    self._headers = tuple((bytes(name), bytes(value)) for name, value in event.headers)
                elif isinstance(event, h11.Data):
                    self._body += event.data
                    if len(self._body) > self._question.body_size_bytes_max:
                        self._body.clear()
                        return Failure(f"an answer of more than {self._question.body_size_bytes_max} bytes")
                elif isinstance(event, h11.EndOfMessage):
                    return Answer(self._status, self._headers, bytes(self._body))
                elif isinstance(event, h11.ConnectionClosed):
                    return None
        except h11.RemoteProtocolError as error:
            if not data:
                return Failure("hung up before the answer was whole")
            return Failure(f"not an answer in HTTP: {error}")
