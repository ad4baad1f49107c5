"""The options of the data source: all of them, with what they mean, checked at once.

Names are Kafka's where Kafka has the like, so that changing the source is a change of one line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from polymq.clients.log import parse_address
from polymq.spark.option_values import OptionReader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polymq.spark.option_values import Bound

__all__ = ["Options"]

_KNOWN: Final = {
    "server": "host:port of the broker's HTTP door",
    "secret": "what the broker wants to be shown, if it does; better one of the next two",
    "secretFile": "the file that has the secret",
    "secretEnv": "the environment variable that has the secret",
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
        reader = OptionReader(given, _KNOWN)
        reader.refuse_unknown(_BATCH_ONLY if streaming else _STREAM_ONLY, "a stream" if streaming else "a batch read")
        topics = reader.topics("subscribe")
        options = cls(
            server=_address(reader),
            topics=topics,
            starting=reader.bound("startingOffsets", "latest" if streaming else "earliest", topics=topics),
            ending=reader.bound("endingOffsets", "latest", topics=topics, is_end=True),
            records_per_trigger_max=reader.whole("maxOffsetsPerTrigger", None, 1, 2**62),
            partitions_min=reader.whole("minPartitions", 1, 1, 1_000_000) or 1,
            records_per_partition_max=reader.whole("maxRecordsPerPartition", 250_000, 1, 2**62) or 1,
            fail_on_data_loss=reader.truth("failOnDataLoss", default=True),
            fetch_size_bytes=reader.whole("maxFetchBytes", 8 * 1024 * 1024, _FETCH_SIZE_BYTES_MIN, _FETCH_SIZE_BYTES_MAX) or 1,
            secret=reader.secret("secret"),
            retry_seconds=(reader.whole("retryTimeoutMs", 60_000, 0, 2**31) or 0) / 1000,
        )
        reader.finish()
        return options


def _address(reader: OptionReader) -> str:
    """Read a host:port."""
    text = (reader.text("server") or "").strip()
    try:
        parse_address(text)
    except ValueError:
        what = "needs one address" if "," in text else f"must be {_KNOWN['server']}"
        reader.problems.append(f"server {what}, for example 127.0.0.1:4171" + (f", not {text!r}" if text else ""))
    return text
