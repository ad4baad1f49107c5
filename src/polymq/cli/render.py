"""How messages are printed: as a line for people, as JSON, or as the bare body."""

from __future__ import annotations

import base64
import enum
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Form", "Shown", "render", "to_text"]


class Form(enum.StrEnum):
    """The forms of output."""

    LINE = "line"
    JSON = "json"
    BODY = "body"


@dataclass(frozen=True, slots=True)
class Shown:
    """A message as a command shows it; `place` names it ("0:42"), `facts` are further fields for JSON."""

    time_ns: int
    place: str
    body: bytes
    key: bytes | None = None
    facts: Mapping[str, Any] | None = None


def render(message: Shown, form: Form) -> bytes:
    """Write one message with its line end."""
    if form is Form.BODY:
        return message.body + b"\n"
    if form is Form.JSON:
        return _json(message)
    time = datetime.fromtimestamp(message.time_ns / 1e9, UTC).astimezone().strftime("%H:%M:%S.%f")[:-3]
    key = "" if message.key is None else f"{to_text(message.key)} → "
    return f"{time}  {message.place}  {key}{to_text(message.body)}\n".encode()


def to_text(data: bytes) -> str:
    """Show bytes on one line: UTF-8 as it is, control characters and everything else escaped."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return repr(data)[2:-1]
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def _json(message: Shown) -> bytes:
    import orjson

    shown: dict[str, Any] = {"time_ns": message.time_ns, **(message.facts or {})}
    for name, value in (("key", message.key), ("body", message.body)):
        if value is None:
            continue
        try:
            shown[name] = value.decode()
        except UnicodeDecodeError:
            shown[f"{name}_base64"] = base64.b64encode(value).decode()
    return orjson.dumps(shown) + b"\n"
