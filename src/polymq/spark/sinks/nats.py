"""The sink into NATS: messages of a run one behind the other, and a PING; a row's id is the header `Nats-Msg-Id`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.clients.nats import NatsOptions
from polymq.spark.sinks.foreign import SERVER, Kind, Reach, make_stream_writer, make_writer, server_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
    from pyspark.sql.types import StructType

    from polymq.spark.option_values import OptionReader

__all__ = ["stream_writer", "writer"]


def _reach(reader: OptionReader) -> Reach:
    user, secret, token = reader.text("user") or "", reader.secret("secret"), reader.secret("token")
    if token and (user or secret):
        reader.problems.append("token and user exclude each other")
    return Reach(server_of(reader, "nats"), NatsOptions(user=user, secret=secret, token=token))


_KIND: Final = Kind(
    columns=("value", "topic", "headers"),
    options={
        "server": SERVER,
        "user": "who logs in",
        "secret": "the user's password; better one of the next two",
        "secretFile": "the file that has the password",
        "secretEnv": "the environment variable that has the password",
        "token": "in place of user and password; better one of the next two",
        "tokenFile": "the file that has the token",
        "tokenEnv": "the environment variable that has the token",
    },
    reach=_reach,
    id_header="Nats-Msg-Id",
)


def writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """Make the writer of a table; raises ConfigError."""
    return make_writer(_KIND, options, schema, overwrite=overwrite)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
    """Make the writer of a stream; raises ConfigError."""
    return make_stream_writer(_KIND, options, schema, overwrite=overwrite)
