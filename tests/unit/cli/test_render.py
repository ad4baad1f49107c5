"""Messages are printed safely: one line each, whatever bytes they hold."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.cli.render import Form, Shown, render, to_text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain", "plain"),
        ("Grüße".encode(), "Grüße"),
        (b"two\nlines\x1b[31m", "two\\nlines\\x1b[31m"),
        (b"\xff\x00", "\\xff\\x00"),
        (b"it's", "it's"),
    ],
)
def test_text(data: bytes, text: str) -> None:
    assert to_text(data) == text


@given(st.binary())
def test_any_bytes_stay_on_one_printable_line(data: bytes) -> None:
    assert to_text(data).isprintable()


def test_a_line_for_people() -> None:
    line = render(Shown(0, "1:42", b"body", b"key"), Form.LINE).decode()
    assert line.endswith(":00.000  1:42  key → body\n")
    assert render(Shown(0, "1:42", b"body"), Form.LINE).decode().endswith("  1:42  body\n")


def test_the_bare_body() -> None:
    assert render(Shown(0, "1:42", b"\xff\n", b"key"), Form.BODY) == b"\xff\n\n"


def test_json() -> None:
    shown = Shown(7, "1:42", b"body", b"\xff", {"topic": "t"})
    assert json.loads(render(shown, Form.JSON)) == {"time_ns": 7, "topic": "t", "key_base64": "/w==", "body": "body"}
    assert json.loads(render(Shown(7, "x", b"\xfe"), Form.JSON)) == {"time_ns": 7, "body_base64": "/g=="}
