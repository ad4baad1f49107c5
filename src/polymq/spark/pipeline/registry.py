"""The schemas of bodies, by topic and version: one JSON file each, `schemas/<topic>/<version>.json`, never changed once written.

A version is made when bodies have fields that the last one has not. Silver's rows say by which version they were decoded.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from polymq.errors import ConfigError, StoreFailed
from polymq.spark.pipeline import shapes

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Registry", "Version"]

# A topic whose bodies gain a field every day has some years.
VERSIONS_MAX: Final = 2000
# So many names of what was left out are kept.
_NAMES_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Version:
    """One version: `shape` is the type of the body as `shapes.py` has it, `source` is found or declared."""

    topic: str
    number: int
    shape: dict[str, Any]
    source: str

    @property
    def body(self) -> str:
        """Give the type as Spark's SQL has it."""
        return shapes.spelt(self.shape)


class Registry:
    """The registry in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def topics(self) -> list[str]:
        """List the topics that have a schema."""
        return sorted(unquote(path.name) for path in self._folder.glob("*") if self._numbers(path)) if self._folder.exists() else []

    def latest(self, topic: str) -> Version | None:
        """Give the newest version; None if there is none."""
        numbers = self._numbers(self._of(topic))
        return self.version(topic, max(numbers)) if numbers else None

    def version(self, topic: str, number: int) -> Version:
        """Give one version; raises StoreFailed if it cannot be read."""
        path = self._of(topic) / f"{number}.json"
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            return Version(topic, number, found["body"], found["source"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreFailed(f"the schema {path} cannot be read: {error}") from error

    def see(self, topic: str, seen: dict[str, Any], at: str) -> Version:
        """Take notice of what bodies look like; gives the version that decodes them, a new one if there are new fields."""
        latest = self.latest(topic)
        if latest is not None and latest.source == "declared":
            return latest
        growth = shapes.grown(None if latest is None else latest.shape, seen)
        is_full = latest is not None and latest.number >= VERSIONS_MAX
        if latest is not None and (is_full or not (growth.added or growth.widened)):
            return latest
        return self._write(topic, growth.shape, "found", at, growth)

    def declare(self, topic: str, shape: dict[str, Any], at: str) -> Version:
        """Have a topic's bodies be of this type and no other; a new version if the last one is another.

        Raises:  ConfigError when a field has another type than before: files of both would be no one table.
        """
        latest = self.latest(topic)
        field = None if latest is None else shapes.misfit(shape, latest.shape)
        if field is not None:
            raise ConfigError(
                [f"[topics.{topic}] schema: {field} had another type before; give it another name, or `polymq pipeline rebuild`"]
            )
        if latest is not None and latest.source == "declared" and latest.shape == shape:
            return latest
        return self._write(topic, shape, "declared", at, shapes.Growth(shape))

    def forget(self, topic: str) -> None:
        """Forget all versions of a topic's schema."""
        for number in self._numbers(self._of(topic)):
            (self._of(topic) / f"{number}.json").unlink()

    def _write(self, topic: str, shape: dict[str, Any], source: str, at: str, growth: shapes.Growth) -> Version:
        folder = self._of(topic)
        number = max(self._numbers(folder), default=0) + 1
        text = {
            "topic": topic,
            "version": number,
            "source": source,
            "made_at": at,
            "added": growth.added,
            "widened": growth.widened,
            "left_out": growth.left_out[:_NAMES_MAX],
            "left_out_count": len(growth.left_out),
            "sql": shapes.spelt(shape),
            "body": shape,
        }
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{number}.json"
        beside = path.with_suffix(".new")
        with beside.open("w", encoding="utf-8") as file:
            json.dump(text, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        return Version(topic, number, shape, source)

    def _of(self, topic: str) -> Path:
        return self._folder / quote(topic, safe="").replace(".", "%2E")

    @staticmethod
    def _numbers(folder: Path) -> list[int]:
        return [int(path.stem) for path in folder.glob("*.json") if path.stem.isdecimal()]
