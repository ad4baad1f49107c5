"""The registry of schemas: versions are added when fields are new, and never changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from polymq.errors import ConfigError, StoreFailed
from polymq.spark.pipeline import registry as module
from polymq.spark.pipeline.registry import Registry
from polymq.spark.pipeline.shapes import parse

if TYPE_CHECKING:
    from pathlib import Path


def test_a_version_is_made_when_there_is_something_new(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    assert (registry.topics(), registry.latest("a")) == ([], None)
    first = registry.see("a", parse("OBJECT<x: BIGINT>"), "now")
    assert (first.number, first.body, first.source) == (1, "struct<x: bigint>", "found")
    assert registry.see("a", parse("OBJECT<x: STRING>"), "now") == first
    second = registry.see("a", parse("OBJECT<x: DOUBLE, y: STRING>"), "later")
    assert (second.number, second.body) == (2, "struct<x: double, y: string>")
    assert Registry(tmp_path).latest("a") == second
    assert registry.version("a", 1) == first
    told = json.loads((tmp_path / "a" / "2.json").read_text())
    assert (told["added"], told["widened"], told["made_at"]) == (["y"], ["x"], "later")


def test_a_topic_may_be_called_anything(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "schemas")
    for topic in ("../up", ".", "a/b", "a%2Fb"):
        registry.see(topic, parse("OBJECT<x: BIGINT>"), "now")
    assert registry.topics() == sorted(["../up", ".", "a/b", "a%2Fb"])
    assert [path.name for path in tmp_path.iterdir()] == ["schemas"]


def test_a_topic_without_objects_has_an_empty_version(tmp_path: Path) -> None:
    assert Registry(tmp_path).see("a", parse("VOID"), "now").body == "struct<>"


def test_what_is_declared_does_not_grow(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    declared = registry.declare("a", parse("OBJECT<x: BIGINT>"), "now")
    assert registry.declare("a", parse("OBJECT<x: BIGINT>"), "later") == declared
    assert registry.see("a", parse("OBJECT<y: STRING>"), "later") == declared
    assert registry.declare("a", parse("OBJECT<x: BIGINT, y: STRING>"), "later").number == 2


def test_what_is_declared_cannot_give_a_field_another_type(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    registry.see("a", parse("OBJECT<x: BIGINT, z: BIGINT>"), "now")
    with pytest.raises(ConfigError, match="x had another type"):
        registry.declare("a", parse("OBJECT<x: STRING>"), "now")
    registry.forget("a")
    assert registry.declare("a", parse("OBJECT<x: STRING>"), "now").number == 1


def test_versions_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VERSIONS_MAX", 2)
    registry = Registry(tmp_path)
    for name in "xyz":
        registry.see("a", parse(f"OBJECT<{name}: BIGINT>"), "now")
    latest = registry.latest("a")
    assert latest is not None
    assert (latest.number, latest.body) == (2, "struct<x: bigint, y: bigint>")


def test_a_version_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    registry.see("a", parse("OBJECT<x: BIGINT>"), "now")
    (tmp_path / "a" / "1.json").write_text("{")
    with pytest.raises(StoreFailed, match="cannot be read"):
        registry.latest("a")
