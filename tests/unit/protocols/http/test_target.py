"""Paths and queries by Go's rules. The odd cases were observed on nsqd 1.3.0."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.protocols.http.target import clean_path, escape_path, parse_query, split_target, unescape


@pytest.mark.parametrize(
    ("query", "arguments"),
    [
        ("", {}),
        ("a=1&b=2", {"a": "1", "b": "2"}),
        ("a=1&a=2", {"a": "1"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("&&a=b&", {"a": "b"}),
        ("a=b=c", {"a": "b=c"}),
        ("a+b=c%20d", {"a b": "c d"}),
        ("topic=x%23ephemeral", {"topic": "x#ephemeral"}),
        ("topic=x#ephemeral", {"topic": "x#ephemeral"}),
        ("a=%ff", {"a": "\ufffd"}),
        ("a=b;c", None),
        ("a=%zz", None),
        ("a=1&b=%", None),
        ("%4=1", None),
    ],
)
def test_query(query: str, arguments: dict[str, str] | None) -> None:
    assert parse_query(query) == arguments


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        (b"/ping", ("", "/ping", "")),
        (b"/p%69ng?a=%41", ("", "/ping", "a=%41")),
        (b"http://host:1/ping?x", ("http://host:1", "/ping", "x")),
        (b"http://host?x", ("http://host", "", "x")),
        (b"*", ("", "*", "")),
        (b"/a?b?c", ("", "/a", "b?c")),
        (b"ping", None),
        (b"/%zz", None),
        (b"/%", None),
        (b"://x/", None),
    ],
)
def test_target(target: bytes, parts: tuple[str, str, str] | None) -> None:
    assert split_target(target) == parts


@pytest.mark.parametrize(
    ("path", "clean"),
    [
        ("/", "/"),
        ("", "/"),
        ("//ping", "/ping"),
        ("/a/../ping", "/ping"),
        ("/a/./b//c/", "/a/b/c/"),
        ("/ping/..", "/"),
        ("/../../x", "/x"),
        ("/ping/.", "/ping/"),
        ("ping", "/ping"),
    ],
)
def test_clean_path(path: str, clean: str) -> None:
    assert clean_path(path) == clean


def test_escape_path_as_go_does() -> None:
    assert escape_path("/config/ !*(x)é~") == "/config/%20%21%2A%28x%29%C3%A9~"


@given(st.text(st.characters(codec="utf-8")))
def test_escaped_paths_decode_to_themselves(path: str) -> None:
    assert unescape(escape_path(path).encode(), plus_is_space=False) == path


@given(st.text())
def test_cleaning_is_idempotent(path: str) -> None:
    assert clean_path(clean_path(path)) == clean_path(path)
