"""The sink into NSQ: MPUBs to one nsqd, DPUB for what is deferred. A message is a body, so there is no room for an id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.clients.nsq import NsqOptions
from polymq.spark.sinks.foreign import SERVER, Kind, Reach, make_stream_writer, make_writer, server_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
    from pyspark.sql.types import StructType

    from polymq.spark.option_values import OptionReader

__all__ = ["stream_writer", "writer"]


def _reach(reader: OptionReader) -> Reach:
    return Reach(server_of(reader, "nsq"), NsqOptions(auth_secret=reader.secret("secret")))


_KIND: Final = Kind(
    columns=("value", "topic", "deliver_at", "delay_ms"),
    options={
        "server": SERVER,
        "secret": "for servers with AUTH; better one of the next two",
        "secretFile": "the file that has the secret",
        "secretEnv": "the environment variable that has the secret",
    },
    reach=_reach,
    no_id="idColumn has no meaning for nsq: its messages have no headers; put the id into the value",
)


def writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """Make the writer of a table; raises ConfigError."""
    return make_writer(_KIND, options, schema, overwrite=overwrite)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
    """Make the writer of a stream; raises ConfigError."""
    return make_stream_writer(_KIND, options, schema, overwrite=overwrite)
