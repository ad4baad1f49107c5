"""The options of the data source: all of them, with what they mean, checked at once.

Names are Kafka's where Kafka has the like, so that changing the source is a change of one line.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from polymq.clients.log import parse_address
from polymq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["EARLIEST", "LATEST", "Bound", "Options"]

# As Kafka's source has them in JSON; no real offset is negative.
LATEST: Final = -1
EARLIEST: Final = -2

# "earliest", "latest", or offsets by topic and partition.
Bound = str | dict[str, dict[int, int]]

_KNOWN: Final = {
    "server": "host:port of the broker's HTTP door",
    "secret": "what the broker wants to be shown, if it does",
    "subscribe": "topics, separated by commas",
    "startingOffsets": "earliest, latest, or JSON {topic: {partition: offset}} with -2 earliest and -1 latest",
    "endingOffsets": "batch reads: latest, or JSON as above",
    "maxOffsetsPerTrigger": "streams: most records of one micro-batch",
    "minPartitions": "at least about this many Spark partitions",
    "maxRecordsPerPartition": "most records of one Spark partition (250000)",
    "failOnDataLoss": "true (default) or false: go on where records were lost or replaced",
    "maxFetchBytes": "size of one request of an executor (8388608)",
    "retryTimeoutMs": "how long a broker that cannot be reached is tried (60000)",
}
_STREAM_ONLY: Final = ("maxOffsetsPerTrigger",)
_BATCH_ONLY: Final = ("endingOffsets",)

_FETCH_SIZE_BYTES_MIN: Final = 64 * 1024
_FETCH_SIZE_BYTES_MAX: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Options:
    """What a query asks for. Pickled to the executors."""

    server: str
    topics: tuple[str, ...]
    starting: Bound
    ending: Bound
    records_per_trigger_max: int | None
    partitions_min: int
    records_per_partition_max: int
    fail_on_data_loss: bool
    fetch_size_bytes: int
    retry_seconds: float
    secret: str = field(default="", repr=False)

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool) -> Options:
        """Read the options that Spark hands over; raises ConfigError with every problem."""
        reader = _Reader(given)
        reader.refuse_unknown(_BATCH_ONLY if streaming else _STREAM_ONLY, "a stream" if streaming else "a batch read")
        topics = reader.topics("subscribe")
        options = cls(
            server=reader.address("server"),
            topics=topics,
            starting=reader.bound("startingOffsets", "latest" if streaming else "earliest", topics),
            ending=reader.bound("endingOffsets", "latest", topics),
            records_per_trigger_max=reader.whole("maxOffsetsPerTrigger", None, 1, 2**62),
            partitions_min=reader.whole("minPartitions", 1, 1, 1_000_000) or 1,
            records_per_partition_max=reader.whole("maxRecordsPerPartition", 250_000, 1, 2**62) or 1,
            fail_on_data_loss=reader.truth("failOnDataLoss", default=True),
            fetch_size_bytes=reader.whole("maxFetchBytes", 8 * 1024 * 1024, _FETCH_SIZE_BYTES_MIN, _FETCH_SIZE_BYTES_MAX) or 1,
            secret=reader.secret("secret"),
            retry_seconds=(reader.whole("retryTimeoutMs", 60_000, 0, 2**31) or 0) / 1000,
        )
        if reader.problems:
            raise ConfigError(reader.problems)
        return options


class _Reader:
    """Takes options one by one and collects what is wrong with them."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = {name.lower(): (name, value) for name, value in given.items()}
        self.problems: list[str] = []

    def refuse_unknown(self, misplaced: tuple[str, ...], place: str) -> None:
        """Note every option that is not known, with the one that may be meant, and those that belong elsewhere."""
        known = {name.lower(): name for name in _KNOWN}
        for lower, (name, _) in self.given.items():
            if lower not in known:
                close = difflib.get_close_matches(lower, known, n=1)
                hint = f"; did you mean {known[close[0]]}?" if close else ""
                self.problems.append(
                    f"unknown option {name}{hint} Known options: {', '.join(f'{n} ({text})' for n, text in _KNOWN.items())}"
                )
        self.problems += [f"{name} has no meaning for {place}" for name in misplaced if name.lower() in self.given]

    def text(self, name: str) -> str | None:
        """Give an option's text, None if it is absent."""
        found = self.given.get(name.lower())
        return None if found is None else found[1]

    def address(self, name: str) -> str:
        """Read a host:port."""
        text = (self.text(name) or "").strip()
        try:
            parse_address(text)
        except ValueError:
            what = "needs one address" if "," in text else f"must be {_KNOWN[name]}"
            self.problems.append(f"{name} {what}, for example 127.0.0.1:4171" + (f", not {text!r}" if text else ""))
        return text

    def secret(self, name: str) -> str:
        """Read a secret, which is not shown, whatever is wrong with it."""
        text = (self.text(name) or "").strip()
        if not (text.isascii() and text.isprintable()):
            self.problems.append(f"{name} must be printable ASCII")
        return text

    def topics(self, name: str) -> tuple[str, ...]:
        """Read a list of topics without repeats."""
        topics = tuple(dict.fromkeys(part.strip() for part in (self.text(name) or "").split(",") if part.strip()))
        if not topics:
            self.problems.append(f"{name} must name at least one topic")
        return topics

    def whole(self, name: str, default: int | None, low: int, high: int) -> int | None:
        """Read a whole number within bounds."""
        text = self.text(name)
        if text is None:
            return default
        digits = text.strip()
        if not digits.isdecimal() or not low <= int(digits) <= high:
            self.problems.append(f"{name} must be a whole number from {low} to {high}, not {text!r}")
            return default
        return int(digits)

    def truth(self, name: str, *, default: bool) -> bool:
        """Read true or false."""
        text = self.text(name)
        if text is None:
            return default
        if text.strip().lower() not in {"true", "false"}:
            self.problems.append(f"{name} must be true or false, not {text!r}")
        return text.strip().lower() == "true"

    def bound(self, name: str, default: str, topics: tuple[str, ...]) -> Bound:
        """Read where to start or to end."""
        text = (self.text(name) or default).strip()
        if text.lower() in {"earliest", "latest"}:
            if name == "endingOffsets" and text.lower() == "earliest":
                self.problems.append("endingOffsets cannot be earliest")
            return text.lower()
        try:
            offsets = {
                str(topic): {int(partition): _offset(offset) for partition, offset in partitions.items()}
                for topic, partitions in json.loads(text).items()
            }
        except (ValueError, AttributeError, TypeError):
            self.problems.append(f"{name} must be {_KNOWN['startingOffsets']}, not {text!r}")
            return default
        strange = sorted(set(offsets) - set(topics))
        if strange:
            self.problems.append(f"{name} speaks of {', '.join(strange)}, which subscribe does not name")
        if name == "endingOffsets" and any(offset == EARLIEST for by_partition in offsets.values() for offset in by_partition.values()):
            self.problems.append("endingOffsets cannot be earliest (-2)")
        return offsets


def _offset(value: object) -> int:
    """Take an offset of the JSON form; raises ValueError when it is none."""
    if not isinstance(value, int) or isinstance(value, bool) or value < EARLIEST:
        raise ValueError("not an offset")
    return value
