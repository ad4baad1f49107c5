"""JSON as fastjson writes it: objects as keys, keys without quotes, `$ref`; a tolerant reader and a writer of object keys.

Standard JSON is read by a fast reader; what that cannot read is walked token by token. Integers are integers, fractions are floats. A
`{"$ref":"$.a.b"}` stays as it is: who needs it finds it as any object.

Source: RocketMQ 4.9.8 on the wire: 202, 208, 220, 222, 307, 317 and the routes of old name servers.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from polymq.errors import RemoteProtocolError
from polymq.protocols.rocketmq.header import dump_json
from polymq.rocketmq_limits import JSON_BODY_SIZE_BYTES_MAX, JSON_DEPTH_MAX, JSON_VALUES_MAX

__all__ = ["ObjectKey", "dumps", "loads", "loads_object"]

_TOKEN: Final = re.compile(
    r"""[ \t\r\n]*(?:
        (?P<punctuation>[\[\]{}:,])
      | (?P<string>"(?:[^"\\]|\\.)*+")
      | '(?P<single>(?:[^'\\]|\\.)*+)'
      | (?P<word>[A-Za-z0-9_$.+\-]+)
    )""",
    re.VERBOSE | re.DOTALL,
)
# All that opens or separates: each stands for one value at least that must be made.
_VALUES: Final = re.compile(rb"[\[{,:]")
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")
_WORDS: Final[dict[str, object]] = {"true": True, "false": False, "null": None}


class ObjectKey(tuple[tuple[str, object], ...]):
    """A JSON object as the key of another: its items by name, so it can be hashed. `ObjectKey.of(brokerName=…, queueId=…, topic=…)`."""

    __slots__ = ()

    @classmethod
    def of(cls, **items: object) -> ObjectKey:
        """Make one of simple values."""
        return cls(sorted(items.items()))

    def get(self, name: str, default: object = None) -> object:
        """Find one item's value."""
        return dict(self).get(name, default)


def loads(body: bytes) -> object:
    """Read a body. Raises RemoteProtocolError (not fatal).

    Limits:  JSON_BODY_SIZE_BYTES_MAX, JSON_DEPTH_MAX, JSON_VALUES_MAX.
    Cost:    linear: 10 ms for a megabyte of standard JSON, 300 ms of the other.
    """
    if len(body) > JSON_BODY_SIZE_BYTES_MAX:
        raise RemoteProtocolError(f"the body is larger than {JSON_BODY_SIZE_BYTES_MAX} bytes", fatal=False)
    if len(_VALUES.findall(body)) > JSON_VALUES_MAX:
        raise RemoteProtocolError(f"the body has more than {JSON_VALUES_MAX} values", fatal=False)
    text = body.decode("utf-8", "replace")
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return _Reader(text).read()


def loads_object(body: bytes) -> dict[Any, Any]:
    """Read a body that must be an object. Raises RemoteProtocolError (not fatal)."""
    found = loads(body)
    if not isinstance(found, dict):
        raise RemoteProtocolError("the body is no JSON object", fatal=False)
    return found


class _Reader:
    """Walks the tokens of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._kind = ""
        self._said = ""
        self._next()

    def read(self) -> object:
        """Read the whole text as one value."""
        value = self._value(0)
        if self._kind:
            raise _problem()
        return value

    def _next(self) -> None:
        """Go to the next token; its kind is empty at the end."""
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            if self._text[self._at :].strip(" \t\r\n\0"):
                raise _problem()
            self._kind = self._said = ""
            return
        self._at = found.end()
        self._kind = found.lastgroup or ""
        self._said = found[self._kind]

    def _take(self, punctuation: str) -> bool:
        """Pass over this token if it is there."""
        if self._kind == "punctuation" and self._said == punctuation:
            self._next()
            return True
        return False

    def _value(self, depth: int) -> object:
        if depth > JSON_DEPTH_MAX:
            raise RemoteProtocolError("the body is nested too deeply", fatal=False)
        if self._take("{"):
            return self._object(depth)
        if self._take("["):
            items: list[object] = []
            while not self._take("]"):
                items.append(self._value(depth + 1))
                if not self._take(",") and self._said != "]":
                    raise _problem()
            return items
        return self._scalar()

    def _scalar(self) -> object:
        kind, token = self._kind, self._said
        if kind not in {"string", "single", "word"}:
            raise _problem()
        self._next()
        if kind == "word":
            return _word(token)
        return _string(token) if kind == "string" else token.replace("\\'", "'")

    def _object(self, depth: int) -> dict[object, object]:
        found: dict[object, object] = {}
        while not self._take("}"):
            key = self._value(depth + 1)
            if isinstance(key, dict):
                key = ObjectKey(sorted((str(name), _hashable(value)) for name, value in key.items()))
            elif isinstance(key, list):
                raise _problem()
            elif not isinstance(key, str):
                key = json.dumps(key)
            if not self._take(":"):
                raise _problem()
            found[key] = self._value(depth + 1)
            if not self._take(",") and self._said != "}":
                raise _problem()
        return found


def _hashable(value: object) -> object:
    """Make something that can be in a key."""
    return json.dumps(value, default=str, skipkeys=True) if isinstance(value, dict | list) else value


def _string(token: str) -> str:
    try:
        return str(json.loads(token, strict=False))
    except ValueError as error:
        raise _problem() from error


def _word(token: str) -> object:
    if token in _WORDS:
        return _WORDS[token]
    if _INTEGER.fullmatch(token):
        return int(token)
    try:
        return float(token)
    except ValueError:
        return token


def _problem() -> RemoteProtocolError:
    return RemoteProtocolError("the body is not JSON", fatal=False)


def dumps(value: object) -> bytes:
    """Write compact JSON; dictionaries may have `ObjectKey`s and numbers as keys: the numbers stand there in quotes.

    Raises RecursionError for what contains itself. Cost: a microsecond per dictionary beside what its values cost.
    """
    pieces: list[bytes] = []
    _write(value, pieces)
    return b"".join(pieces)


def _write(value: object, pieces: list[bytes]) -> None:
    if isinstance(value, dict):
        before = b"{"
        for key, item in value.items():
            pieces.append(before)
            if isinstance(key, ObjectKey):
                _write(dict(key), pieces)
            else:
                pieces.append(dump_json(str(key)))
            pieces.append(b":")
            _write(item, pieces)
            before = b","
        pieces.append(b"}" if value else b"{}")
    elif isinstance(value, list | tuple) and not isinstance(value, ObjectKey):
        before = b"["
        for item in value:
            pieces.append(before)
            _write(item, pieces)
            before = b","
        pieces.append(b"]" if value else b"[]")
    else:
        pieces.append(dump_json(dict(value) if isinstance(value, ObjectKey) else value))
