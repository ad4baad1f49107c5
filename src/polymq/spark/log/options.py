"""The options of the data source: all of them, with what they mean, checked at once.

Names are Kafka's where Kafka has the like, so that changing the source is a change of the format and of where the servers are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from polymq.clients.log import parse_address
from polymq.spark import columns
from polymq.spark.log.bounds import NAMES_END, NAMES_START, read_bound
from polymq.spark.log.subscription import read_subscription
from polymq.spark.option_values import OptionReader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polymq.spark.log.bounds import Bound
    from polymq.spark.log.subscription import Subscription

__all__ = ["Options", "wanted_columns"]

_TIMES: Final = "JSON {topic: {partition: milliseconds since 1970}}"
_KNOWN: Final = {
    "server": "host:port of the broker's HTTP door",
    "servers": "host:port of the HTTP doors of several nodes, separated by commas, instead of server",
    "lookupd": "host:port of the HTTP interface of nsqlookupd, several separated by commas, which know the nodes, instead of server",
    "secret": "what the broker wants to be shown, if it does; better one of the next two",
    "secretFile": "the file that has the secret",
    "secretEnv": "the environment variable that has the secret",
    "subscribe": "topics, separated by commas",
    "subscribePattern": "a regular expression for whole names of topics",
    "assign": 'JSON {topic: [partitions]}; of several nodes also "node/partition"',
    "startingOffsets": "earliest, latest, or JSON {topic: {partition: offset}} with -2 earliest and -1 latest",
    "startingOffsetsByTimestamp": _TIMES,
    "startingTimestamp": "milliseconds since 1970",
    "startingOffsetsByTimestampStrategy": "error (default) or latest: what a start means behind the newest record's time",
    "endingOffsets": "batch reads: latest, or JSON as above",
    "endingOffsetsByTimestamp": _TIMES,
    "endingTimestamp": "batch reads: milliseconds since 1970",
    "maxOffsetsPerTrigger": "streams: most records of one micro-batch",
    "maxBytesPerTrigger": "streams: about the most bytes of one micro-batch",
    "minOffsetsPerTrigger": "streams: fewer records are waited with, for maxTriggerDelay at most",
    "maxTriggerDelay": "such as 30s or 15m (default)",
    "minPartitions": "at least about this many Spark partitions",
    "maxRecordsPerPartition": "most records of one Spark partition (250000)",
    "failOnDataLoss": "true (default) or false: go on where records were lost or replaced",
    "maxFetchBytes": "size of one request of an executor (8388608)",
    "retryTimeoutMs": "how long a broker that cannot be reached is tried (60000)",
    "columns": "those that are wanted, separated by commas; all without it",
    "includeHeaders": "true (default) or false: leave out the column headers",
}
_STREAM_ONLY: Final = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_BATCH_ONLY: Final = NAMES_END
_WHERE: Final = ("server", "servers", "lookupd")

_FETCH_SIZE_BYTES_MIN: Final = 64 * 1024
_FETCH_SIZE_BYTES_MAX: Final = 256 * 1024 * 1024
_DELAY: Final = re.compile(r"([0-9]{1,9}) *(ms|s|m|min|h|d)")
_DELAY_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class Options:
    """What a query asks for. Pickled to the executors. With one `server` nothing is said of nodes, in positions or elsewhere."""

    server: str
    servers: tuple[str, ...]
    lookupds: tuple[str, ...]
    subscription: Subscription
    starting: Bound
    ending: Bound
    late_start_is_latest: bool
    records_per_trigger_max: int | None
    bytes_per_trigger_max: int | None
    records_per_trigger_min: int | None
    trigger_delay_seconds: float
    partitions_min: int
    records_per_partition_max: int
    fail_on_data_loss: bool
    fetch_size_bytes: int
    retry_seconds: float
    columns: tuple[str, ...]
    secret: str = field(default="", repr=False)

    def __str__(self) -> str:
        """Say what is read from where, for people."""
        where = self.server or ",".join(self.servers) or f"lookupd {','.join(self.lookupds)}"
        return f"{where} {self.subscription}"

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool) -> Options:
        """Read the options that Spark hands over; raises ConfigError with every problem."""
        reader = OptionReader(given, _KNOWN)
        reader.refuse_unknown(_BATCH_ONLY if streaming else _STREAM_ONLY, "a stream" if streaming else "a batch read")
        where = [name for name in _WHERE if reader.text(name) is not None]
        if len(where) > 1:
            reader.problems.append(f"{' and '.join(where)} exclude each other: give one of {', '.join(_WHERE)}")
        subscription = read_subscription(reader)
        topics = subscription.topics or None
        strategy = reader.choice("startingOffsetsByTimestampStrategy", "error", ("error", "latest"))
        options = cls(
            server=_address(reader) if where in ([], ["server"]) else "",
            servers=_addresses(reader, "servers"),
            lookupds=_addresses(reader, "lookupd"),
            subscription=subscription,
            starting=read_bound(reader, NAMES_START, "latest" if streaming else "earliest", topics=topics),
            ending=read_bound(reader, NAMES_END, "latest", topics=topics),
            late_start_is_latest=strategy == "latest",
            records_per_trigger_max=reader.whole("maxOffsetsPerTrigger", None, 1, 2**62),
            bytes_per_trigger_max=reader.whole("maxBytesPerTrigger", None, 1, 2**62),
            records_per_trigger_min=reader.whole("minOffsetsPerTrigger", None, 1, 2**62),
            trigger_delay_seconds=_delay(reader),
            partitions_min=reader.whole("minPartitions", 1, 1, 1_000_000) or 1,
            records_per_partition_max=reader.whole("maxRecordsPerPartition", 250_000, 1, 2**62) or 1,
            fail_on_data_loss=reader.truth("failOnDataLoss", default=True),
            fetch_size_bytes=reader.whole("maxFetchBytes", 8 * 1024 * 1024, _FETCH_SIZE_BYTES_MIN, _FETCH_SIZE_BYTES_MAX) or 1,
            secret=reader.secret("secret"),
            retry_seconds=(reader.whole("retryTimeoutMs", 60_000, 0, 2**31) or 0) / 1000,
            columns=wanted_columns(reader),
        )
        _check_together(options, reader)
        reader.finish()
        return options


def _check_together(options: Options, reader: OptionReader) -> None:
    """Note what does not go together."""
    least, most = options.records_per_trigger_min, options.records_per_trigger_max
    if least is not None and most is not None and least > most:
        reader.problems.append(f"minOffsetsPerTrigger {least} is more than maxOffsetsPerTrigger {most}")


def wanted_columns(reader: OptionReader) -> tuple[str, ...]:
    """Read which columns are wanted; Kafka's `includeHeaders` leaves one of all out."""
    names = columns.chosen(reader)
    includes = reader.truth("includeHeaders", default=True)
    return names if includes or reader.text("columns") is not None else tuple(name for name in names if name != "headers")


def _delay(reader: OptionReader) -> float:
    """Read how long records are waited with."""
    text = (reader.text("maxTriggerDelay") or "15m").strip().lower()
    found = _DELAY.fullmatch(text)
    if found is None:
        reader.problems.append(f"maxTriggerDelay must be {_KNOWN['maxTriggerDelay']}, not {text!r}")
        return 0.0
    return int(found[1]) * _DELAY_SECONDS[found[2]]


def _address(reader: OptionReader) -> str:
    """Read a host:port."""
    text = (reader.text("server") or "").strip()
    try:
        parse_address(text)
    except ValueError:
        what = "needs one address (for several there is servers)" if "," in text else f"must be {_KNOWN['server']}"
        reader.problems.append(f"server {what}, for example 127.0.0.1:4171" + (f", not {text!r}" if text else ""))
    return text


def _addresses(reader: OptionReader, name: str) -> tuple[str, ...]:
    """Read a list of host:port, of which there must be one at least where it is given."""
    found = tuple(text.removeprefix("http://").rstrip("/") for text in reader.listed(name))
    for text in found:
        try:
            parse_address(text)
        except ValueError:
            reader.problems.append(f"{name} must be {_KNOWN[name]}, not {text!r}")
    if not found and reader.text(name) is not None:
        reader.problems.append(f"{name} must name at least one address")
    return found
