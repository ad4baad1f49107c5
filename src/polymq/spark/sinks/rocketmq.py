"""The sink into RocketMQ: a batch for each queue; a row's id is the property `polymq-id`, its key both KEYS and what chooses the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.clients.rocketmq_options import RocketMQOptions
from polymq.spark.sinks.foreign import Kind, Reach, checked_url, make_stream_writer, make_writer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
    from pyspark.sql.types import StructType

    from polymq.spark.option_values import OptionReader

__all__ = ["stream_writer", "writer"]


def _reach(reader: OptionReader) -> Reach:
    names = [name for name in ("namesrvAddr", "servers") if reader.text(name) is not None]
    if len(names) != 1:
        reader.problems.append(f"one of namesrvAddr and servers must be {_OPTIONS['namesrvAddr']}")
    url = "" if not names else checked_url(reader, "rocketmq", (reader.text(names[0]) or "").strip().replace(";", ","), names[0])
    options = RocketMQOptions(access_key=reader.secret("accessKey"), secret_key=reader.secret("secretKey"))
    return Reach(url, options)


_OPTIONS: Final = {
    "namesrvAddr": "host:port of the name servers, separated by ;",
    "servers": "the same",
    "accessKey": "the name for the broker's access control, or in a file or variable:",
    "accessKeyFile": "the file that has it",
    "accessKeyEnv": "the environment variable that has it",
    "secretKey": "the secret for the broker's access control; better one of the next two",
    "secretKeyFile": "the file that has it",
    "secretKeyEnv": "the environment variable that has it",
}
_KIND: Final = Kind(
    columns=("value", "key", "topic", "partition", "headers", "tags", "deliver_at", "delay_ms"),
    options=_OPTIONS,
    reach=_reach,
    id_header="polymq-id",
)


def writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """Make the writer of a table; raises ConfigError."""
    return make_writer(_KIND, options, schema, overwrite=overwrite)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
    """Make the writer of a stream; raises ConfigError."""
    return make_stream_writer(_KIND, options, schema, overwrite=overwrite)
