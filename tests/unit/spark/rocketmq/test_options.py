"""Options of the source: what is read, and what is refused, all at once."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest

from polymq.errors import ConfigError
from polymq.spark.columns import COLUMNS
from polymq.spark.rocketmq.options import Bound, Options

if TYPE_CHECKING:
    from pathlib import Path

BASE = {"namesrvAddr": "127.0.0.1:9876", "subscribe": "orders"}


def parse(streaming: bool = True, /, **given: Any) -> Options:
    return Options.parse({name: value for name, value in (BASE | given).items() if value}, streaming=streaming)


def problems(streaming: bool = True, /, **given: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(streaming, **given)
    return str(caught.value)


def test_defaults() -> None:
    options = parse()
    assert options.name_servers == ("127.0.0.1:9876",)
    assert (options.topics, options.pattern, options.assigned) == (("orders",), "", {})
    assert (options.starting, options.ending) == (Bound("latest", {}), Bound("latest", {}))
    assert parse(False).starting == Bound("earliest", {})
    assert (options.records_per_trigger_max, options.partitions_min, options.records_per_partition_max) == (None, 1, 250_000)
    assert (options.fail_on_data_loss, options.expression, options.tags, options.columns) == (True, "*", (), tuple(COLUMNS))
    assert (options.pull_count, options.retry_seconds, options.group, options.commits) == (32, 60.0, "polymq-spark", False)
    assert (options.client.tls, options.client.access_key) == (None, "")


def test_name_servers_have_two_names() -> None:
    assert parse(namesrvAddr="", servers="a:1;b:2").name_servers == ("a:1", "b:2")
    assert "exclude each other" in problems(servers="a:1")
    assert "namesrvAddr must be host:port" in problems(namesrvAddr="")
    assert "servers must be host:port" in problems(namesrvAddr="", servers="nowhere")


def test_one_thing_says_what_to_read() -> None:
    assert parse(subscribe="", subscribePattern="or.*").pattern == "or.*"
    assigned = parse(subscribe="", assign='{"orders": {"broker-a": [3, 0, 3]}}')
    assert (assigned.topics, assigned.assigned) == (("orders",), {"orders": {"broker-a": (0, 3)}})
    assert "one of subscribe, subscribePattern and assign" in problems(subscribe="")
    assert "subscribe and subscribePattern exclude each other" in problems(subscribePattern="x")
    assert "no regular expression" in problems(subscribe="", subscribePattern="(")


@pytest.mark.parametrize(
    "text", ["[]", "{}", "x", '{"o": {}}', '{"o": {"b": []}}', '{"o": {"b": [-1]}}', '{"o": {"b": ["0"]}}', '{"o": [0]}']
)
def test_queues_that_are_none_are_refused(text: str) -> None:
    assert "assign must be JSON" in problems(subscribe="", assign=text)


def test_bounds() -> None:
    numbers = {"orders": {"broker-a": {0: 5, 1: -2}}}
    text = '{"orders": {"broker-a": {"0": 5, "1": -2}}}'
    assert parse(startingOffsets=text).starting == Bound("earliest", numbers)
    assert parse(startingOffsets="EARLIEST").starting == Bound("earliest", {})
    assert parse(False, endingOffsets='{"orders": {"b": {"0": -1}}}').ending == Bound("latest", {"orders": {"b": {0: -1}}})
    assert parse(startingTimestamp="17").starting == Bound("latest", {}, time_ms=17)
    assert parse(False, endingTimestamp="17").ending == Bound("latest", {}, time_ms=17)
    times = parse(startingOffsetsByTimestamp='{"orders": {"b": {"0": 99}}}').starting
    assert times == Bound("earliest", {"orders": {"b": {0: 99}}}, are_times=True)


@pytest.mark.parametrize(
    "text",
    ["soon", "5", '{"orders": {"0": 5}}', '{"orders": {"b": {"0": -3}}}', '{"orders": {"b": {"x": 1}}}', '{"orders": {"b": {"0": true}}}'],
)
def test_bounds_that_are_none_are_refused(text: str) -> None:
    assert "startingOffsets must be earliest, latest, or JSON" in problems(startingOffsets=text)


def test_bounds_that_make_no_sense_are_refused() -> None:
    assert "endingOffsets cannot be earliest" in problems(False, endingOffsets="earliest")
    assert "endingOffsets cannot be earliest" in problems(False, endingOffsets='{"orders": {"b": {"0": -2}}}')
    assert "speaks of events" in problems(startingOffsets='{"events": {"b": {"0": 1}}}')
    assert "exclude each other" in problems(startingOffsets="earliest", startingTimestamp="5")
    assert "startingTimestamp must be a whole number" in problems(startingTimestamp="soon")
    assert "startingOffsetsByTimestamp must be" in problems(startingOffsetsByTimestamp="earliest")
    assert "endingOffsets has no meaning for a stream" in problems(endingOffsets="latest")
    assert "maxOffsetsPerTrigger has no meaning for a batch read" in problems(False, maxOffsetsPerTrigger="5")


def test_tags_columns_and_groups() -> None:
    options = parse(tags=" TagA||TagB ", columns="value,offset", group="g", commitGroupOffsets="true")
    assert (options.tags, options.columns, options.group, options.commits) == (("TagA", "TagB"), ("value", "offset"), "g", True)
    assert "TagA" in options.expression
    assert "tags:" in problems(tags="||")
    assert "group:" in problems(group="a b")
    assert "columns names nothing" in problems(columns="nothing")


@pytest.mark.parametrize(
    ("name", "value"),
    [("pullBatch", "0"), ("pullBatch", "1025"), ("retryTimeoutMs", "-1"), ("minPartitions", "x"), ("maxRecordsPerPartition", "0")],
)
def test_numbers_have_limits(name: str, value: str) -> None:
    assert f"{name} must be a whole number" in problems(**{name: value})


def test_secrets_come_from_files_and_are_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("very secret\n")
    options = parse(accessKey="ak", secretKeyFile=str(file))
    assert (options.client.access_key, options.client.secret_key) == ("ak", "very secret")
    assert "very secret" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options
    assert "given together" in problems(accessKey="ak")


def test_tls() -> None:
    tls = parse(tls="true", **{"tls.caFile": "ca.pem", "tls.serverName": "broker", "tls.insecure": "true"}).client.tls
    assert tls is not None
    assert (tls.root_file, tls.server_name, tls.insecure) == ("ca.pem", "broker", True)
    assert "tls.caFile has no meaning without tls" in problems(**{"tls.caFile": "ca.pem"})


def test_unknown_options_are_refused_with_the_list() -> None:
    text = problems(startingOfsets="earliest")
    assert "did you mean startingOffsets" in text
    assert "namesrvAddr" in text
