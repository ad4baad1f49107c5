from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.wire.go_json import INT32, INT64, Shape, decode_struct

FIELDS: dict[str, type | range] = {"name": str, "flag": bool, "wide": INT64, "narrow": INT32}


def read(text: str | bytes) -> dict[str, Any] | None:
    return decode_struct(text if isinstance(text, bytes) else text.encode("utf-8"), FIELDS)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"name":"a","flag":true,"wide":1,"narrow":2}', {"name": "a", "flag": True, "wide": 1, "narrow": 2}),
        ('{"NAME":"a","wIdE":-9223372036854775808}', {"name": "a", "wide": -(2**63)}),
        ('{"name":"a","name":"b"}', {"name": "b"}),
        ('{"name":"a","name":null}', {"name": "a"}),
        ('{"other":[1.5,{"name":3}],"more":1e99}', {}),
        ("null", {}),
        (" {} ", {}),
        ('{"name":"\\ud800x"}', {"name": "\ufffdx"}),
        (b'{"name":"\xff"}', {"name": "\ufffd"}),
    ],
)
def test_what_go_would_take(text: str | bytes, found: dict[str, Any]) -> None:
    assert read(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "1",
        "{} x",
        '{"name":1}',
        '{"name":[]}',
        '{"flag":1}',
        '{"flag":"true"}',
        '{"wide":1.0}',
        '{"wide":1e3}',
        '{"wide":true}',
        '{"wide":9223372036854775808}',
        '{"narrow":2147483648}',
        '{"narrow":2147483648,"narrow":1}',
        '{"wide":' + "9" * 5000 + "}",
        '{"wide":NaN}',
        "{" * 100_000,
        '{"a":' * 100_000,
        b"\xef\xbb\xbf{}",
    ],
)
def test_what_go_would_not_take(text: str | bytes) -> None:
    assert read(text) is None


@given(st.text(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1))
def test_what_was_written_is_read(name: str, flag: bool, wide: int, narrow: int) -> None:
    written = {"name": name, "flag": flag, "wide": wide, "narrow": narrow}
    assert read(json.dumps(written)) == written


@given(st.binary())
def test_no_input_raises(data: bytes) -> None:
    read(data)


NESTED: dict[str, Shape] = {"names": [str], "inner": {"name": str}, "many": [{"wide": INT64}]}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"names":["a",null],"inner":{"NAME":"b","x":1},"many":[{"wide":1},null,{}]}',
         {"names": ["a", ""], "inner": {"name": "b"}, "many": [{"wide": 1}, {}, {}]}),
        ('{"names":[],"inner":null,"many":[]}', {"names": [], "many": []}),
        ('{"names":[1]}', None),
        ('{"names":{}}', None),
        ('{"inner":[]}', None),
        ('{"inner":{"name":1}}', None),
        ('{"many":[{"wide":"1"}]}', None),
        ('{"many":[7]}', None),
    ],
)  # fmt: skip
def test_lists_and_objects_within(text: str, found: object) -> None:
    assert decode_struct(text.encode(), NESTED) == found
