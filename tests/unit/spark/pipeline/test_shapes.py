"""What bodies look like: read, joined, spelt."""

from __future__ import annotations

from typing import Any

import pytest

from polymq.errors import RemoteProtocolError
from polymq.spark.pipeline import shapes


def grown_text(old: str | None, seen: str) -> tuple[str, list[str], list[str]]:
    growth = shapes.grown(None if old is None else shapes.grown(None, shapes.parse(old)).shape, shapes.parse(seen))
    return shapes.spelt(growth.shape), growth.added, growth.widened


@pytest.mark.parametrize(
    ("text", "spelt"),
    [
        ("OBJECT<a: BIGINT>", "struct<a: bigint>"),
        ("OBJECT<a: DECIMAL(3,1), b: DOUBLE, c: FLOAT>", "struct<a: double, b: double, c: double>"),
        ("OBJECT<a: ARRAY<OBJECT<b: STRING>>, c: BOOLEAN>", "struct<a: array<struct<b: string>>, c: boolean>"),
        ("OBJECT<`a b`: VARIANT, `c``d`: STRING, `1`: BIGINT>", "struct<`a b`: string, `c``d`: string, `1`: bigint>"),
        ("OBJECT<a: TIMESTAMP_NTZ, b: DATE>", "struct<a: string, b: string>"),
        ("OBJECT<>", "struct<>"),
        ("VOID", "struct<>"),
        ("BIGINT", "struct<>"),
    ],
)
def test_what_spark_says_is_read(text: str, spelt: str) -> None:
    assert shapes.spelt(shapes.parse(text)) == spelt


@pytest.mark.parametrize("text", ["", "OBJECT<a", "OBJECT<a: >", "OBJECT<a: BIGINT", "OBJECT<a: BIGINT> x", "ARRAY<", "OBJECT<:"])
def test_what_cannot_be_read_is_told(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        shapes.parse(text)


def test_what_is_nested_too_deeply_is_a_string() -> None:
    text = "BIGINT"
    for _ in range(2000):
        text = f"OBJECT<a: {text}>"
    spelt = shapes.spelt(shapes.parse(text))
    assert spelt.count("struct") == shapes.DEPTH_MAX
    assert "a: string" in spelt
    with pytest.raises(RemoteProtocolError):
        shapes.parse(text[:-2000])


def test_a_first_schema_has_what_was_seen_without_what_nobody_knows_yet() -> None:
    seen = "OBJECT<a: BIGINT, b: VOID, c: ARRAY<VOID>, d: OBJECT<>, e: OBJECT<f: VOID, g: STRING>>"
    assert grown_text(None, seen) == ("struct<a: bigint, e: struct<g: string>>", ["a", "e"], [])


def test_new_fields_are_added_and_numbers_widened() -> None:
    old = "OBJECT<a: BIGINT, b: OBJECT<c: BIGINT>, d: ARRAY<OBJECT<e: BIGINT>>>"
    seen = "OBJECT<a: DOUBLE, b: OBJECT<c: BIGINT, x: STRING>, d: ARRAY<OBJECT<e: DECIMAL(2,1), y: BIGINT>>, z: BOOLEAN>"
    spelt, added, widened = grown_text(old, seen)
    assert spelt == "struct<a: double, b: struct<c: bigint, x: string>, d: array<struct<e: double, y: bigint>>, z: boolean>"
    assert (added, widened) == (["b.x", "d[].y", "z"], ["a", "d[].e"])


def test_other_types_stay_as_they_are() -> None:
    old = "OBJECT<a: BIGINT, b: STRING, c: DOUBLE, d: OBJECT<e: BIGINT>>"
    assert grown_text(old, "OBJECT<a: STRING, b: BIGINT, c: BIGINT, d: ARRAY<BIGINT>>")[1:] == ([], [])
    assert grown_text(old, "OBJECT<>")[1:] == ([], [])


def test_names_that_differ_in_case_alone_are_one() -> None:
    assert grown_text(None, "OBJECT<A: BIGINT, a: STRING>")[0] == "struct<A: bigint>"
    assert grown_text("OBJECT<A: BIGINT>", "OBJECT<a: DOUBLE>") == ("struct<A: bigint>", [], [])
    assert grown_text(None, "OBJECT<x: OBJECT<B: BIGINT, b: STRING>>")[0] == "struct<x: struct<B: bigint>>"


def test_fields_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "FIELDS_MAX", 3)
    growth = shapes.grown(None, shapes.parse("OBJECT<a: BIGINT, b: OBJECT<c: BIGINT, d: BIGINT>, e: ARRAY<BIGINT>, f: BIGINT>"))
    assert shapes.spelt(growth.shape) == "struct<a: bigint, e: array<bigint>, f: bigint>"
    assert growth.left_out == ["b"]


def test_a_type_of_files_with_an_older_version() -> None:
    old = shapes.parse("OBJECT<a: BIGINT, d: ARRAY<OBJECT<e: BIGINT>>>")
    new = shapes.grown(old, shapes.parse("OBJECT<a: DOUBLE, d: ARRAY<OBJECT<e: DOUBLE, y: BIGINT>>, z: DOUBLE>")).shape
    assert shapes.spelt(shapes.narrowed(new, old)) == "struct<a: bigint, d: array<struct<e: bigint, y: bigint>>, z: double>"
    assert shapes.misfit(new, old) is None
    assert shapes.misfit(old, new) == "a"
    assert shapes.misfit(shapes.parse("OBJECT<d: ARRAY<OBJECT<e: STRING>>>"), old) == "d[].e"
    assert shapes.misfit("string", old) == "the body"


def test_declared_types_are_spelt_as_well() -> None:
    declared: dict[str, Any] = {"type": "map", "keyType": "string", "valueType": "integer"}
    assert shapes.spelt(declared) == "map<string, int>"
    assert shapes.spelt("decimal(10,2)") == "decimal(10,2)"
