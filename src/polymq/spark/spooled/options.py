"""The options of the sources over a spool: all of them, with what they mean, checked at once. Names are Kafka's where it has the like."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from polymq.spark.columns import chosen
from polymq.spark.option_values import OptionReader
from polymq.spool.feed import FEED_OPTIONS, SPOOL_OPTIONS, Feed, read_feed, read_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polymq.spark.option_values import Bound
    from polymq.spool.settings import SpoolSettings

__all__ = ["PLACE", "Options", "known_options"]

# The one "topic" of offsets: positions of a spool are one sequence, whatever topics its messages are of.
PLACE: Final = "spool"

_COMMON: Final = {
    "spoolLocation": "the folder of the spool; one for each query",
    "receiver": "thread (default): the stream receives by itself; process: `polymq spool run` does, elsewhere",
    "startingOffsets": 'earliest (default), latest, or JSON {"spool": {"0": offset}}: of the spool, where a query without checkpoint starts',
    "endingOffsets": 'batch reads: latest (default), or JSON {"spool": {"0": offset}}',
    "maxOffsetsPerTrigger": "streams: most records of one micro-batch",
    "minPartitions": "at least about this many Spark partitions",
    "maxRecordsPerPartition": "most records of one Spark partition (250000)",
    "failOnDataLoss": "true (default) or false: go on where records of the spool are gone",
    "columns": "which columns to give, separated by commas (all)",
    "availableNowPauseMs": "receiver=thread: an AvailableNow run ends when nothing has come for so long (2000)",
    "availableNowMaxMs": "receiver=thread: and after this in any case (60000)",
}
_STREAM_ONLY: Final = ("maxOffsetsPerTrigger", "availableNowPauseMs", "availableNowMaxMs")
_BATCH_ONLY: Final = ("endingOffsets",)
_THREAD_ONLY: Final = ("availableNowPauseMs", "availableNowMaxMs")
THREAD: Final = "thread"
PROCESS: Final = "process"
_MS_PER_SECOND: Final = 1000
_WAIT_MS_MAX: Final = 1 << 31


def known_options(protocol: str) -> dict[str, str]:
    """Give every option of the source of a protocol, with what it means."""
    return FEED_OPTIONS[protocol] | _COMMON | SPOOL_OPTIONS


@dataclass(frozen=True, slots=True)
class Options:
    """What a query asks for. `feed` is None where the source does not receive. Pickled to the executors, without secrets there."""

    protocol: str
    location: Path
    columns: tuple[str, ...]
    starting: Bound
    ending: Bound
    records_per_trigger_max: int | None
    partitions_min: int
    records_per_partition_max: int
    fail_on_data_loss: bool
    pause_seconds: float
    drain_seconds_max: float
    feed: Feed | None
    settings: SpoolSettings

    @classmethod
    def parse(cls, protocol: str, given: Mapping[str, str], *, streaming: bool) -> Options:
        """Read the options that Spark hands over; raises ConfigError with every problem."""
        reader = OptionReader(given, known_options(protocol))
        receives = reader.choice("receiver", THREAD, (THREAD, PROCESS)) == THREAD and streaming
        reader.refuse_unknown(*_misplaced(protocol, streaming=streaming, receives=receives))
        location = (reader.text("spoolLocation") or "").strip()
        if not location:
            reader.problems.append("spoolLocation must name the folder of the spool")
        options = cls(
            protocol=protocol,
            location=Path(location),
            columns=chosen(reader),
            starting=reader.bound("startingOffsets", "earliest", topics=(PLACE,)),
            ending=reader.bound("endingOffsets", "latest", topics=(PLACE,), is_end=True),
            records_per_trigger_max=reader.whole("maxOffsetsPerTrigger", None, 1, 2**62),
            partitions_min=reader.whole("minPartitions", 1, 1, 1_000_000) or 1,
            records_per_partition_max=reader.whole("maxRecordsPerPartition", 250_000, 1, 2**62) or 1,
            fail_on_data_loss=reader.truth("failOnDataLoss", default=True),
            pause_seconds=(reader.whole("availableNowPauseMs", 2000, 1, _WAIT_MS_MAX) or 1) / _MS_PER_SECOND,
            drain_seconds_max=(reader.whole("availableNowMaxMs", 60_000, 1, _WAIT_MS_MAX) or 1) / _MS_PER_SECOND,
            feed=read_feed(protocol, reader) if receives else None,
            settings=read_settings(reader),
        )
        reader.finish()
        return options


def _misplaced(protocol: str, *, streaming: bool, receives: bool) -> tuple[tuple[str, ...], str]:
    """Say which options would do nothing, and where: what is told to a receiver means nothing to a query that does not receive."""
    if receives:
        return _BATCH_ONLY, "a stream"
    receiving = (*FEED_OPTIONS[protocol], *SPOOL_OPTIONS)
    if not streaming:
        return (*_STREAM_ONLY, *receiving), "a batch read, which gives what is in the spool and receives nothing"
    return (*_BATCH_ONLY, *_THREAD_ONLY, *receiving), "a stream with receiver=process: whatever fills the spool is told how"
