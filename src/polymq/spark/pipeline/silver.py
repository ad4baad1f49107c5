"""Silver: messages with their bodies decoded, each once; what cannot be decoded, with the reason. Pure functions.

    bronze ──identified──▶ ──without_repeats──▶ ──decoded──┬─fitting──▶ silver
                                                           └─misfits──▶ quarantine

Nothing here fails on a body, whatever it is: a message that does not fit gets a `reason`, and the query goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f
from pyspark.sql.window import Window

from polymq.spark.columns import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "IDENTITY",
    "PARTITIONS",
    "QUARANTINE_SCHEMA",
    "decoded",
    "fitting",
    "identified",
    "misfits",
    "shape",
    "silver_schema",
    "without_repeats",
]

# Beside the body: what bronze has, without what the body was made of.
_KEPT: Final = tuple(name for name in COLUMNS if name not in ("topic", "value"))
_TYPES: Final = {name: kind for name, (kind, _) in COLUMNS.items()}
IDENTITY: Final = "id"
PARTITIONS: Final = ("topic", "date")
QUARANTINE_SCHEMA: Final = (
    "id string, reason string, detail string, partition int, offset bigint, timestamp timestamp, message_id string, attempts int, "
    "protocol string, value binary, archived_at timestamp, topic string, date string"
)
_CORRUPT: Final = "_corrupt"
# Spark joins types by recursion, so that a body of a thousand levels would take the stack of its task. What has more objects and arrays than
# this, within each other or not, adds nothing to a schema.
_CONTAINERS_MAX: Final = 100
# What a body looks like that does not fit is shown as far as this.
_DETAIL_SIZE: Final = 400


def silver_schema(body: str) -> str:
    """Give the columns of a silver table whose bodies are of this type."""
    kept = ", ".join(f"{name} {_TYPES[name]}" for name in _KEPT)
    return f"id string, body {body}, {kept}, size bigint, archived_at timestamp, schema_version int, date string"


def identified(bronze: DataFrame) -> DataFrame:
    """Add `id`: what the protocol calls the message, else its place (partition:offset). It names a message within its topic."""
    place = f.concat_ws(":", f.coalesce("partition", f.lit(0)), "offset")
    return bronze.withColumn(IDENTITY, f.coalesce("message_id", place))


def without_repeats(messages: DataFrame, known: DataFrame | None, window_seconds: float) -> DataFrame:
    """Leave out messages whose id was stored up to `window_seconds` before, in `messages` itself or in `known` (id, timestamp).

    Columns that begin with _ are left behind, for nobody: to drop them a declaration would have to look at the frame.
    Of several the first one stays, by timestamp, partition and offset. A repeat of a repeat is one, however long it took.
    """
    order = Window.partitionBy("topic", IDENTITY).orderBy("timestamp", "partition", "offset")
    stored_at = f.col("timestamp").cast("double")
    before = f.lag(stored_at).over(order)
    number = f.row_number().over(order)
    first = messages.withColumn("_is_repeat", (number > 1) & f.coalesce(stored_at - before <= window_seconds, f.lit(True)))
    first = first.where(~f.col("_is_repeat"))
    if known is None:
        return first
    seen = known.select(f.col(IDENTITY).alias("_id"), f.col("timestamp").cast("double").alias("_at"))
    near = f.coalesce(f.abs(stored_at - f.col("_at")) <= window_seconds, f.lit(True))
    return first.join(seen, (f.col(IDENTITY) == f.col("_id")) & near, "left_anti")


def shape(messages: DataFrame) -> DataFrame:
    """Say in one row, `shape`, what all JSON bodies together look like: every field of every one of them."""
    text = f.when(f.is_valid_utf8(f.col("value").cast("string")), f.col("value").cast("string"))
    parsed = f.try_parse_json(text)
    kind = f.schema_of_variant(parsed)
    levels = f.length(kind) - f.length(f.translate(kind, "<", ""))
    objects = f.when(kind.startswith("OBJECT") & (levels <= _CONTAINERS_MAX), parsed)
    return messages.select(f.schema_of_variant_agg(objects).alias("shape"))


def decoded(messages: DataFrame, body: str, version: int, decoding: str = "json") -> DataFrame:
    """Add `body` of type `body`, and `reason` and `detail` where a value is none of that type. `decoding`: json or text."""
    text = f.col("value").cast("string")
    is_text = f.coalesce(f.is_valid_utf8(text), f.lit(False))
    if decoding == "text":
        reason = f.when(f.col("value").isNull(), "no body").when(~is_text, "not UTF-8")
        framed = messages.withColumn("reason", reason).withColumn("detail", f.lit(None).cast("string"))
        return framed.withColumn("body", text).withColumn("schema_version", f.lit(version))
    fields = f"{body.removesuffix('>')}{', ' if body.removesuffix('>') != 'struct<' else ''}{_CORRUPT}: string>"
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    variant = f.try_parse_json(f.when(is_text, text))
    kind = f.schema_of_variant(variant)
    framed = messages.withColumn("_parsed", f.from_json(f.when(is_text, text), fields, options)).withColumn("_kind", kind)
    reason = (
        f.when(f.col("value").isNull(), "no body")
        .when(~is_text, "not UTF-8")
        .when(f.col("_kind").isNull(), "not JSON")
        .when(~f.col("_kind").startswith("OBJECT"), "not a JSON object")
        .when(f.col("_parsed").isNull() | f.col(f"_parsed.{_CORRUPT}").isNotNull(), f"does not fit version {version} of the schema")
    )
    framed = framed.withColumn("reason", reason)
    framed = framed.withColumn("detail", f.when(f.col("reason").isNotNull(), f.substring("_kind", 1, _DETAIL_SIZE)))
    return framed.withColumn("body", f.col("_parsed").dropFields(_CORRUPT)).withColumn("schema_version", f.lit(version))


def fitting(messages: DataFrame) -> DataFrame:
    """Take what was decoded, with silver's columns."""
    found = messages.where(f.col("reason").isNull())
    return found.select(IDENTITY, "body", *_KEPT, "size", "archived_at", "schema_version", "date")


def misfits(messages: DataFrame) -> DataFrame:
    """Take what was not, with the quarantine's columns."""
    names = [part.split()[0] for part in QUARANTINE_SCHEMA.split(", ")]
    return messages.where(f.col("reason").isNotNull()).select(*names)
