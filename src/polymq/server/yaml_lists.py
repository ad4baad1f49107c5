"""As much of YAML as the configuration of RocketMQ's ACL uses: maps, lists and texts, by their indentation.

Everything is a text, or None if it is empty. What has another meaning in YAML (anchors, tags, texts of several lines, maps in
braces) is refused by its line, not guessed at.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["Tree", "YamlProblem", "read_yaml"]

Tree = dict[str, "Tree"] | list["Tree"] | str | None

_KEY: Final = re.compile(r"""("[^"]*"|'[^']*'|[A-Za-z_][\w.-]*)\s*:(?:\s+|$)""")
_COMMENT: Final = re.compile(r"""(?:^|\s)#.*$""")
_QUOTED: Final = re.compile(r"""("[^"\\]*"|'[^']*')\s*(?:\s#.*)?$""")
_NOT_PLAIN: Final = "&!|>{@`%"
_DEPTH_MAX: Final = 16


class YamlProblem(ValueError):
    """The text cannot be read; says where and why."""


class _Line:
    __slots__ = ("indent", "number", "text")

    def __init__(self, number: int, indent: int, text: str) -> None:
        self.number = number
        self.indent = indent
        self.text = text


def read_yaml(text: str) -> Tree:
    """Read a document; raises YamlProblem."""
    lines: list[_Line] = []
    for number, raw in enumerate(text.splitlines(), 1):
        stripped = raw.strip()
        if not stripped or stripped.startswith("#") or stripped == "---":
            continue
        indent = len(raw) - len(raw.lstrip(" "))
        if raw[indent] == "\t":
            raise YamlProblem(f"line {number}: lines are indented by blanks, not by tabs")
        lines.append(_Line(number, indent, stripped))
    if not lines:
        return None
    tree = _block(lines, lines[-1].number, 0)
    if lines:
        raise YamlProblem(f"line {lines[0].number}: indented less than what it belongs to")
    return tree


def _block(lines: list[_Line], last: int, depth: int) -> Tree:
    """Take a map or a list off the beginning: all lines as far in as the first."""
    first = lines[0]
    if depth > _DEPTH_MAX:
        raise YamlProblem(f"line {first.number}: more than {_DEPTH_MAX} levels")
    if first.text == "-" or first.text.startswith("- "):
        return _list(lines, last, depth)
    if _KEY.match(first.text):
        return _map(lines, last, depth)
    lines.pop(0)
    return _scalar(first.text, first.number)


def _list(lines: list[_Line], last: int, depth: int) -> list[Tree]:
    indent = lines[0].indent
    found: list[Tree] = []
    while lines and lines[0].indent == indent and (lines[0].text == "-" or lines[0].text.startswith("- ")):
        line = lines[0]
        rest = line.text[1:].lstrip()
        if rest and not rest.startswith("#"):
            # What is behind the dash is a block of its own, as far in as it stands there.
            lines[0] = _Line(line.number, indent + len(line.text) - len(rest), rest)
            found.append(_block(lines, last, depth + 1))
        else:
            lines.pop(0)
            found.append(_below(lines, indent, last, depth))
    _check_indent(lines, indent)
    return found


def _map(lines: list[_Line], last: int, depth: int) -> dict[str, Tree]:
    indent = lines[0].indent
    found: dict[str, Tree] = {}
    while lines and lines[0].indent == indent and not lines[0].text.startswith("- "):
        line = lines.pop(0)
        match = _KEY.match(line.text)
        if match is None:
            raise YamlProblem(f"line {line.number}: expected NAME: VALUE")
        key = match[1].strip("\"'")
        if key in found:
            raise YamlProblem(f"line {line.number}: {key} is there twice")
        rest = line.text[match.end() :].strip()
        if rest and not rest.startswith("#"):
            found[key] = _scalar(rest, line.number)
        elif lines and lines[0].indent == indent and lines[0].text.startswith("- "):
            found[key] = _list(lines, last, depth + 1)  # a list may stand right below its name
        else:
            found[key] = _below(lines, indent, last, depth)
    _check_indent(lines, indent)
    return found


def _below(lines: list[_Line], indent: int, last: int, depth: int) -> Tree:
    """Take the block that is further in, if there is one."""
    return _block(lines, last, depth + 1) if lines and lines[0].indent > indent else None


def _check_indent(lines: list[_Line], indent: int) -> None:
    if lines and lines[0].indent > indent:
        raise YamlProblem(f"line {lines[0].number}: indented more than the line before it allows")


def _scalar(text: str, number: int) -> Tree:
    """Read a text, or a list in brackets."""
    quoted = _QUOTED.match(text)
    if quoted is not None:
        return quoted[1][1:-1]
    text = _COMMENT.sub("", text).strip()
    if text.startswith("[") and text.endswith("]"):
        return [_scalar(part.strip(), number) for part in text[1:-1].split(",") if part.strip()]
    if text[:1] in _NOT_PLAIN or text[:1] in "\"'[":
        raise YamlProblem(f"line {number}: {text[:20]!r} is more of YAML than is understood here; write plain or quoted text")
    return None if text in ("", "~", "null") else text
