"""What JSON bodies look like, as types: reads what Spark says of them, and joins a schema with what was seen of new bodies.

A type is what Spark's `StructType.jsonValue` has: a name, or {"type": "struct" | "array", …}. Objects become structs, whole numbers bigint,
others double; a field that is sometimes this and sometimes that becomes a string with the JSON in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from polymq.errors import RemoteProtocolError

__all__ = ["EMPTY", "FIELDS_MAX", "Growth", "grown", "misfit", "narrowed", "parse", "spelt"]

Shape = str | dict[str, Any]

# Columns of a table, all levels together; what comes beyond that is in bronze alone.
FIELDS_MAX: Final = 500
# Objects within objects; below that a field is a string with the JSON in it.
DEPTH_MAX: Final = 12
EMPTY: Final[dict[str, Any]] = {"type": "struct", "fields": []}
_TOKEN: Final = re.compile(r"`((?:[^`]|``)*)`|([A-Za-z_][\w ]*?(?:\(\d+,\s*\d+\))?)(?=\s*[,:<>]|\s*$)|([<>,:])|(\S)")
_NAMES: Final = {"BIGINT": "long", "DOUBLE": "double", "FLOAT": "double", "BOOLEAN": "boolean", "STRING": "string"}
_SPELT: Final = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}


@dataclass(slots=True)
class Growth:
    """A schema joined with what was seen: `shape` is the schema from now on, `added` the fields that are new, `left_out` those without room."""

    shape: dict[str, Any]
    added: list[str] = field(default_factory=list)
    widened: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def parse(text: str) -> dict[str, Any]:
    """Read what Spark's `schema_of_variant_agg` says: OBJECT<a: BIGINT, b: ARRAY<STRING>>; nothing seen is an object without fields."""
    tokens = [match.groups() for match in _TOKEN.finditer(text)]
    found, end = _type(tokens, 0, 0)
    if end != len(tokens):
        raise RemoteProtocolError(f"Spark described bodies as {text[:200]!r}, which cannot be read")
    return found if isinstance(found, dict) and found["type"] == "struct" else dict(EMPTY)


def grown(old: dict[str, Any] | None, seen: dict[str, Any]) -> Growth:
    """Join a schema with what was seen of new bodies; None: there is no schema yet.

    Fields are added and bigint becomes double. Any other type stays as it is: bodies that differ do not fit. Names that differ in
    case alone are the same for Spark, so the first one stays.
    """
    growth = Growth(dict(EMPTY))
    count = [_count(old) if old is not None else 0]
    growth.shape = _joined(old or EMPTY, seen, "", count, growth)
    return growth


def narrowed(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """Give the new type as files of an older version have it: bigint where that had it, instead of double."""
    narrow = _narrowed(new, old)
    assert isinstance(narrow, dict)
    return narrow


def misfit(new: Shape, old: Shape, path: str = "") -> str | None:
    """Name the first field whose type is another in `new` than in `old`, so that files of both are no one table; None if there is none."""
    if isinstance(new, dict) and isinstance(old, dict) and new["type"] == old["type"] == "struct":
        before = {each["name"]: each["type"] for each in old["fields"]}
        found = (misfit(each["type"], before[each["name"]], f"{path}.{each['name']}") for each in new["fields"] if each["name"] in before)
        return next((each for each in found if each), None)
    if isinstance(new, dict) and isinstance(old, dict) and new["type"] == old["type"] == "array":
        return misfit(new["elementType"], old["elementType"], f"{path}[]")
    return None if new == old or (old, new) == ("long", "double") else (path.removeprefix(".") or "the body")


def spelt(shape: Shape) -> str:
    """Write a type as Spark's SQL has it: struct<a: bigint, b: array<string>>."""
    if isinstance(shape, str):
        return _SPELT.get(shape, shape)
    if shape["type"] == "array":
        return f"array<{spelt(shape['elementType'])}>"
    if shape["type"] == "map":
        return f"map<{spelt(shape['keyType'])}, {spelt(shape['valueType'])}>"
    fields = [f"{_quoted(each['name'])}: {spelt(each['type'])}" for each in shape["fields"]]
    return f"struct<{', '.join(fields)}>"


def _type(tokens: list[tuple[str, ...]], at: int, depth: int) -> tuple[Shape, int]:
    """Read the type that begins with a token."""
    word = tokens[at][1].strip().upper() if at < len(tokens) and tokens[at][1] else ""
    opens = at + 1 < len(tokens) and tokens[at + 1][2] == "<"
    if opens and depth >= DEPTH_MAX:
        return "string", _behind(tokens, at + 2)
    if word == "ARRAY" and opens:
        element, at = _type(tokens, at + 2, depth + 1)
        return _array(element), _expect(tokens, at, ">")
    if word == "OBJECT":
        if not opens:
            return dict(EMPTY), at + 1
        fields, at = [], at + 2
        while tokens[at : at + 1] and tokens[at][2] != ">":
            name = tokens[at][1] if tokens[at][1] is not None else (tokens[at][0] or "").replace("``", "`")
            kind, at = _type(tokens, _expect(tokens, at + 1, ":"), depth + 1)
            fields.append(_field(name, kind))
            at += bool(tokens[at : at + 1] and tokens[at][2] == ",")
        at = _expect(tokens, at, ">")
        return {"type": "struct", "fields": fields}, at
    if not word:
        raise RemoteProtocolError("Spark's description of bodies ends too early")
    if word == "VOID":
        return "void", at + 1
    return ("double" if word.startswith("DECIMAL") else _NAMES.get(word, "string")), at + 1


def _behind(tokens: list[tuple[str, ...]], at: int) -> int:
    """Find the end of what was opened, however deep it is."""
    level = 1
    while level:
        if at >= len(tokens):
            raise RemoteProtocolError("Spark's description of bodies ends too early")
        level += (tokens[at][2] == "<") - (tokens[at][2] == ">")
        at += 1
    return at


def _expect(tokens: list[tuple[str, ...]], at: int, mark: str) -> int:
    if at >= len(tokens) or tokens[at][2] != mark:
        raise RemoteProtocolError(f"Spark's description of bodies lacks a {mark}")
    return at + 1


def _joined(old: dict[str, Any], seen: dict[str, Any], path: str, count: list[int], growth: Growth) -> dict[str, Any]:
    fields = {each["name"].casefold(): dict(each) for each in old["fields"]}
    for each in seen["fields"]:
        name = each["name"].casefold()
        full = f"{path}{each['name']}"
        kind = each["type"]
        if name in fields:
            if fields[name]["name"] == each["name"]:
                fields[name]["type"] = _both(fields[name]["type"], kind, full, count, growth)
            continue
        kind = _known(kind)
        if kind is None:
            continue
        size = _count(kind) + 1
        if not each["name"] or count[0] + size > FIELDS_MAX:
            growth.left_out.append(full)
            continue
        count[0] += size
        growth.added.append(full)
        fields[name] = _field(each["name"], kind)
    return {"type": "struct", "fields": list(fields.values())}


def _both(old: Shape, seen: Shape, path: str, count: list[int], growth: Growth) -> Shape:
    if old == "long" and seen == "double":
        growth.widened.append(path)
        return "double"
    if isinstance(old, dict) and isinstance(seen, dict) and old["type"] == seen["type"]:
        if old["type"] == "struct":
            return _joined(old, seen, f"{path}.", count, growth)
        if old["type"] == "array":
            return _array(_both(old["elementType"], seen["elementType"], f"{path}[]", count, growth))
    return old


def _narrowed(new: Shape, old: Shape) -> Shape:
    if (new, old) == ("double", "long"):
        return "long"
    if isinstance(new, dict) and isinstance(old, dict) and new["type"] == old["type"]:
        if new["type"] == "struct":
            before = {each["name"]: each["type"] for each in old["fields"]}
            fields = [each | {"type": _narrowed(each["type"], before.get(each["name"], each["type"]))} for each in new["fields"]]
            return {"type": "struct", "fields": fields}
        if new["type"] == "array":
            return _array(_narrowed(new["elementType"], old["elementType"]))
    return new


def _known(shape: Shape) -> Shape | None:
    """Leave out what is not known yet: a field that is always null, an array without elements, an object without fields."""
    if shape == "void":
        return None
    if isinstance(shape, str):
        return shape
    if shape["type"] == "array":
        element = _known(shape["elementType"])
        return None if element is None else _array(element)
    fields: dict[str, dict[str, Any]] = {}
    for each in shape["fields"]:
        kind = _known(each["type"])
        if kind is not None and each["name"]:
            fields.setdefault(each["name"].casefold(), _field(each["name"], kind))
    return {"type": "struct", "fields": list(fields.values())} if fields else None


def _count(shape: Shape) -> int:
    if isinstance(shape, str):
        return 0
    if shape["type"] == "struct":
        return sum(1 + _count(each["type"]) for each in shape["fields"])
    return _count(shape["elementType"]) if shape["type"] == "array" else 1


def _field(name: str, kind: Shape) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def _array(element: Shape) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": True}


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else "`" + name.replace("`", "``") + "`"
