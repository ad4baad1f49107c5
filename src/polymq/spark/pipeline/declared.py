"""The pipeline declared once more, for Spark Declarative Pipelines: the same functions, as tables that `spark-pipelines` brings up to date.

Bronze is a streaming table, so that each run takes in what is new. All else is a materialized view, made again of all that is there: right for
schedules and back-fills, where the runner is for what goes on for ever. Bodies are decoded by the newest schemas of the pipeline's registry.

What Spark 4.3 needs to be told is in `write_project`: tables are remembered by a Hive catalog in Derby, which one process at a time can use;
settings of that kind are only taken from SPARK_CONF_DIR; no streaming view stands between tables.
"""

from __future__ import annotations

import json
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from polymq.errors import ConfigError
from polymq.spark.pipeline import bronze, config, gold, session, silver
from polymq.spark.pipeline.registry import Registry
from polymq.spark.pipeline.steps import SCHEMAS_FOLDER, view_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

__all__ = ["declare", "decoded_topic", "write_project"]

DEFINITIONS: Final = """\
from polymq.spark.pipeline import declared

declared.declare({config!r})
"""


def declare(file: str) -> None:
    """Declare the tables of a pipeline's file; called by `spark-pipelines`, which defines what runs."""
    from pyspark import pipelines as dp

    _mend_client()
    settings = config.load(Path(file))
    bodies = _bodies(settings)

    @dp.table(name="bronze", partition_cols=list(bronze.PARTITIONS))
    def _bronze() -> DataFrame:
        # A definition may not look at a frame, so all columns must be there.
        source = SparkSession.active().readStream.format(settings.source_format)
        return bronze.archived(source.options(**settings.source_options).load())

    window = settings.repeat_window_seconds
    for topic, (body, version, decoding) in bodies.items():
        decode = partial(decoded_topic, topic=topic, body=body, version=version, decoding=decoding, window_seconds=window)
        dp.materialized_view(name=view_name(topic))(_reading("bronze", partial(_fitting, decode=decode)))

    def all_misfits(frame: DataFrame) -> DataFrame:
        parts = [
            silver.misfits(decoded_topic(frame, topic=topic, body=body, version=version, decoding=decoding, window_seconds=window))
            for topic, (body, version, decoding) in bodies.items()
        ]
        return reduce(lambda left, right: left.unionByName(right), parts)

    dp.materialized_view(name="quarantine")(_reading("bronze", all_misfits))
    dp.materialized_view(name="traffic")(_reading("bronze", gold.traffic))
    dp.materialized_view(name="failures")(_reading("quarantine", gold.failures))


def decoded_topic(frame: DataFrame, *, topic: str, body: str, version: int, decoding: str, window_seconds: float) -> DataFrame:
    """Decode all messages of one topic of bronze, each once."""
    messages = silver.identified(frame.where(f.col("topic") == topic))
    return silver.decoded(silver.without_repeats(messages, None, window_seconds), body, version, decoding)


def write_project(file: Path, folder: Path) -> list[str]:
    """Write what `spark-pipelines` needs beside a pipeline's file; gives the command that runs it, as its words."""
    settings = config.load(file)
    if not _bodies(settings):
        raise ConfigError(["there is no schema yet: run `polymq pipeline once` first, which finds them, or write [topics.<name>] schema"])
    place = folder.absolute()
    for part in ("definitions", "conf", "storage", "warehouse"):
        (place / part).mkdir(parents=True, exist_ok=True)
    (place / "definitions" / "tables.py").write_text(DEFINITIONS.format(config=str(file.absolute())), encoding="utf-8")
    spec = {
        "name": settings.name,
        "storage": f"file://{place / 'storage'}",
        "libraries": [{"glob": {"include": "definitions/**"}}],
        "configuration": session.NEEDED | {"spark.sql.shuffle.partitions": "4"} | dict(settings.spark_settings),
    }
    # JSON is YAML.
    (place / "spark-pipeline.yml").write_text(json.dumps(spec, indent=2), encoding="utf-8")
    static = {
        "spark.driver.memory": settings.memory,
        "spark.driver.extraJavaOptions": "-Xss4m",
        "spark.ui.enabled": "false",
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={place / 'metastore'};create=true",
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    }
    lines = [f"{name} {value}\n" for name, value in static.items()]
    (place / "conf" / "spark-defaults.conf").write_text("".join(lines), encoding="utf-8")
    return ["env", f"SPARK_CONF_DIR={place / 'conf'}", "spark-pipelines", "run", "--spec", str(place / "spark-pipeline.yml")]


def _bodies(settings: config.PipelineConfig) -> dict[str, tuple[str, int, str]]:
    """Say how each topic that has a schema, or is text, is decoded: type, version, decoding."""
    registry = Registry(settings.storage / SCHEMAS_FOLDER)
    found: dict[str, tuple[str, int, str]] = {}
    for topic in registry.topics():
        latest = registry.latest(topic)
        if latest is not None and settings.decoding_of(topic) == "json":
            found[topic] = latest.body, latest.number, "json"
    found |= {topic: ("string", 0, "text") for topic, rules in settings.topics.items() if rules.decode == "text"}
    return found


def _fitting(frame: DataFrame, decode: Callable[[DataFrame], DataFrame]) -> DataFrame:
    return silver.fitting(decode(frame))


def _reading(table: str, make: Callable[[DataFrame], DataFrame]) -> Callable[[], DataFrame]:
    def query() -> DataFrame:
        return make(SparkSession.active().read.table(table))

    return query


def _mend_client() -> None:
    """Let the client pass over answers that it does not know: Spark 4.3.0 sends such for every Python source (SPARK-59135), and ends the run."""
    from pyspark.sql.connect.client import SparkConnectClient

    client: Any = SparkConnectClient

    def execute_command_as_iterator(self: Any, command: Any, observations: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        request = self._execute_plan_request_with_metadata()
        self._set_command_in_plan(request.plan, command)
        for response in self._execute_and_fetch_as_iterator(request, observations or {}):
            if isinstance(response, dict):
                yield response

    client.execute_command_as_iterator = execute_command_as_iterator
