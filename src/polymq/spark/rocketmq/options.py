"""The options of the data source `rocketmq`: all of them, with what they mean, checked at once.

Names are Kafka's where Kafka has the like, so that changing the source is a change of one line.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from polymq.clients.rocketmq_naming import checked_group, subscribed
from polymq.clients.rocketmq_options import RocketMQOptions, RocketMQTls, addresses_of
from polymq.errors import LocalProtocolError
from polymq.spark import columns
from polymq.spark.option_values import EARLIEST, OptionReader

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Bound", "Numbers", "Options"]

_KNOWN: Final = {
    "namesrvAddr": "host:port of the name servers, separated by ;",
    "servers": "the same",
    "subscribe": "topics, separated by commas",
    "subscribePattern": "a regular expression that matches whole names of topics",
    "assign": "JSON {topic: {broker: [queues]}}",
    "startingOffsets": "earliest, latest, or JSON {topic: {broker: {queue: offset}}} with -2 earliest and -1 latest",
    "endingOffsets": "batch reads: latest, or JSON as above",
    "startingTimestamp": "where messages begin that were stored at this time or later, in ms since 1970",
    "startingOffsetsByTimestamp": "the same for each queue, JSON {topic: {broker: {queue: ms}}}",
    "endingTimestamp": "batch reads: before the messages that were stored at this time or later",
    "maxOffsetsPerTrigger": "streams: most messages of one micro-batch",
    "minPartitions": "at least about this many Spark partitions",
    "maxRecordsPerPartition": "most messages of one Spark partition (250000)",
    "failOnDataLoss": "true (default) or false: go on where messages were lost",
    "tags": "only messages with one of these tags: TagA || TagB",
    "columns": "which columns to give, separated by commas (all)",
    "pullBatch": "most messages of one pull (32, more than which brokers do not give unless told to)",
    "retryTimeoutMs": "how long what cannot be reached is tried (60000)",
    "group": "the name under which it pulls (polymq-spark)",
    "commitGroupOffsets": "true: tell brokers where the group is, for people to see (false)",
    "accessKey": "the name for the broker's access control, or in a file or variable:",
    "accessKeyFile": "the file that has it",
    "accessKeyEnv": "the environment variable that has it",
    "secretKey": "the secret for the broker's access control; better one of the next two",
    "secretKeyFile": "the file that has it",
    "secretKeyEnv": "the environment variable that has it",
    "tls": "true: connect within TLS (false)",
    "tls.caFile": "PEM file of the authorities to trust",
    "tls.certFile": "PEM file of the client's certificate",
    "tls.keyFile": "PEM file of its key",
    "tls.serverName": "the name in the servers' certificates",
    "tls.insecure": "true: take any server for the right one, for tests",
}
_STREAM_ONLY: Final = ("maxOffsetsPerTrigger",)
_BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp")
_WHICH: Final = ("subscribe", "subscribePattern", "assign")
_STARTS: Final = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
_ENDS: Final = ("endingOffsets", "endingTimestamp")
_TIME_MS_MAX: Final = 2**53
_REQUEST_SECONDS: Final = 10.0
_ROUTE_SECONDS: Final = 10.0
_QUEUE_MAX: Final = 2**31 - 1

# Of each queue, by topic, broker and number: offsets, or times.
Numbers = dict[str, dict[str, dict[int, int]]]


@dataclass(frozen=True)
class Bound:
    """Where to start or to end: a word, `earliest` or `latest`, for the queues that `numbers` does not have; or one time for all."""

    word: str
    numbers: Numbers
    are_times: bool = False
    time_ms: int | None = None


@dataclass(frozen=True)
class Options:
    """What a query asks for. Pickled to the executors. One of `topics`, `pattern` and `assigned` says what is read."""

    name_servers: tuple[str, ...]
    topics: tuple[str, ...]
    pattern: str
    assigned: dict[str, dict[str, tuple[int, ...]]]
    starting: Bound
    ending: Bound
    records_per_trigger_max: int | None
    partitions_min: int
    records_per_partition_max: int
    fail_on_data_loss: bool
    expression: str
    tags: tuple[str, ...]
    columns: tuple[str, ...]
    pull_count: int
    retry_seconds: float
    group: str
    commits: bool
    client: RocketMQOptions

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool) -> Options:
        """Read the options that Spark hands over; raises ConfigError with every problem."""
        reader = OptionReader(given, _KNOWN)
        reader.refuse_unknown(_BATCH_ONLY if streaming else _STREAM_ONLY, "a stream" if streaming else "a batch read")
        for names in (_WHICH, _STARTS, _ENDS, ("namesrvAddr", "servers")):
            found = [name for name in names if reader.text(name) is not None]
            if len(found) > 1:
                reader.problems.append(f"{' and '.join(found)} exclude each other")
        assigned = _assigned(reader)
        topics = tuple(assigned) or reader.listed("subscribe")
        if not (topics or reader.text("subscribePattern") or reader.problems):
            reader.problems.append("one of subscribe, subscribePattern and assign says what to read")
        expression, tags = _tags(reader)
        options = cls(
            name_servers=_name_servers(reader),
            topics=topics,
            pattern=_pattern(reader),
            assigned=assigned,
            starting=_bound(reader, _STARTS, "latest" if streaming else "earliest", topics),
            ending=_bound(reader, _ENDS, "latest", topics),
            records_per_trigger_max=reader.whole("maxOffsetsPerTrigger", None, 1, 2**62),
            partitions_min=reader.whole("minPartitions", 1, 1, 1_000_000) or 1,
            records_per_partition_max=reader.whole("maxRecordsPerPartition", 250_000, 1, 2**62) or 1,
            fail_on_data_loss=reader.truth("failOnDataLoss", default=True),
            expression=expression,
            tags=tags,
            columns=columns.chosen(reader),
            pull_count=reader.whole("pullBatch", 32, 1, 1024) or 1,
            retry_seconds=(reader.whole("retryTimeoutMs", 60_000, 0, 2**31) or 0) / 1000,
            group=_group(reader),
            commits=reader.truth("commitGroupOffsets", default=False),
            client=_client(reader),
        )
        reader.finish()
        return options


def _name_servers(reader: OptionReader) -> tuple[str, ...]:
    name = "servers" if reader.text("servers") is not None else "namesrvAddr"
    try:
        return addresses_of(reader.text(name) or "")
    except LocalProtocolError as error:
        reader.problems.append(f"{name} must be {_KNOWN['namesrvAddr']}: {error}")
        return ()


def _pattern(reader: OptionReader) -> str:
    text = reader.text("subscribePattern") or ""
    try:
        re.compile(text)
    except re.error as error:
        reader.problems.append(f"subscribePattern is no regular expression: {error}")
    return text


def _tags(reader: OptionReader) -> tuple[str, tuple[str, ...]]:
    """Read a tag expression: as it is sent, and its tags; none for all messages."""
    text = (reader.text("tags") or "*").strip()
    try:
        subscription = subscribed({"any": text}, "")["any"]
    except LocalProtocolError as error:
        reader.problems.append(f"tags: {error}")
        return "*", ()
    return subscription.expression, subscription.tags


def _group(reader: OptionReader) -> str:
    name = (reader.text("group") or "polymq-spark").strip()
    try:
        return checked_group(name, "")
    except LocalProtocolError as error:
        reader.problems.append(f"group: {error}")
        return name


def _client(reader: OptionReader) -> RocketMQOptions:
    """Read how servers are spoken to."""
    access_key, secret_key = reader.secret("accessKey"), reader.secret("secretKey")
    tls = None
    names = ("tls.caFile", "tls.certFile", "tls.keyFile", "tls.serverName", "tls.insecure")
    if reader.truth("tls", default=False):
        tls = RocketMQTls(
            root_file=reader.text("tls.caFile"),
            certificate_file=reader.text("tls.certFile"),
            key_file=reader.text("tls.keyFile"),
            server_name=reader.text("tls.serverName") or "",
            insecure=reader.truth("tls.insecure", default=False),
        )
    else:
        reader.problems += [f"{name} has no meaning without tls" for name in names if reader.text(name) is not None]
    if bool(access_key) != bool(secret_key):
        reader.problems.append("accessKey and secretKey are given together")
        access_key = secret_key = ""
    return RocketMQOptions(
        tls=tls, access_key=access_key, secret_key=secret_key, request_seconds=_REQUEST_SECONDS, route_seconds=_ROUTE_SECONDS
    )


def _assigned(reader: OptionReader) -> dict[str, dict[str, tuple[int, ...]]]:
    """Read which queues to read: JSON by topic and broker."""
    text = reader.text("assign")
    if text is None:
        return {}
    try:
        found = {
            str(topic): {
                str(broker): tuple(sorted({_whole(number, 0, _QUEUE_MAX) for number in queues})) for broker, queues in brokers.items()
            }
            for topic, brokers in json.loads(text).items()
        }
    except (ValueError, AttributeError, TypeError):
        found = {}
    if not found or not all(brokers and all(brokers.values()) for brokers in found.values()):
        reader.problems.append(f"assign must be {_KNOWN['assign']}, not {text!r}")
        return {}
    return found


def _bound(reader: OptionReader, names: tuple[str, ...], default: str, topics: tuple[str, ...]) -> Bound:
    """Read where to start or to end, in whichever way it is said."""
    is_end = names is _ENDS
    by_offset, by_time = names[:2]
    if reader.text(by_time) is not None:
        return Bound(default, {}, time_ms=reader.whole(by_time, 0, 0, _TIME_MS_MAX))
    name = next((each for each in names if reader.text(each) is not None), by_offset)
    are_times = name == "startingOffsetsByTimestamp"
    text = (reader.text(name) or default).strip()
    if text.lower() in {"earliest", "latest"} and not are_times:
        if is_end and text.lower() == "earliest":
            reader.problems.append(f"{name} cannot be earliest")
        return Bound(text.lower(), {})
    least = 0 if are_times else EARLIEST
    try:
        numbers = {
            str(topic): {
                str(broker): {int(queue): _whole(number, least, 2**63 - 1) for queue, number in queues.items()}
                for broker, queues in brokers.items()
            }
            for topic, brokers in json.loads(text).items()
        }
    except (ValueError, AttributeError, TypeError):
        reader.problems.append(f"{name} must be {_KNOWN[name]}, not {text!r}")
        return Bound(default, {})
    strange = sorted(set(numbers) - set(topics)) if topics else []
    if strange:
        reader.problems.append(f"{name} speaks of {', '.join(strange)}, which are not asked for")
    if is_end and any(number == EARLIEST for brokers in numbers.values() for queues in brokers.values() for number in queues.values()):
        reader.problems.append(f"{name} cannot be earliest (-2)")
    return Bound("latest" if is_end else "earliest", numbers, are_times)


def _whole(value: object, least: int, most: int) -> int:
    """Take a number of the JSON form; raises ValueError when it is none."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError("not a number of this kind")
    return value
