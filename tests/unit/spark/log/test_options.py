from __future__ import annotations

import pytest

from polymq.errors import ConfigError
from polymq.spark.columns import COLUMNS
from polymq.spark.log.options import Options
from polymq.spark.option_values import EARLIEST, LATEST

GOOD = {"server": "127.0.0.1:4171", "subscribe": "a, b,a"}


def problems(streaming: bool = True, **options: str) -> str:
    with pytest.raises(ConfigError) as caught:
        Options.parse(GOOD | options, streaming=streaming)
    return str(caught.value)


def test_defaults_differ_between_streams_and_batches() -> None:
    stream, batch = (Options.parse(GOOD, streaming=streaming) for streaming in (True, False))
    assert stream.subscription.topics == ("a", "b")
    assert (stream.starting.others, batch.starting.others, batch.ending.others) == (LATEST, EARLIEST, LATEST)
    assert stream.columns == tuple(COLUMNS)
    assert stream.fail_on_data_loss
    assert stream.records_per_trigger_max is None


def test_names_are_read_without_regard_to_case() -> None:
    options = Options.parse({"SERVER": "h:1", "subscribe": "a", "FAILONDATALOSS": "False", "maxoffsetspertrigger": " 5 "}, streaming=True)
    assert (options.fail_on_data_loss, options.records_per_trigger_max) == (False, 5)


def test_offsets_are_read_from_json() -> None:
    options = Options.parse(GOOD | {"startingOffsets": '{"a": {"0": 5, "1": -2}}'}, streaming=True)
    assert options.starting.named == {"a": {"0": 5, "1": -2}}


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        Options.parse({"subscribe": " , ", "minPartitions": "0", "startingOfsets": "x"}, streaming=True)
    text = str(caught.value)
    assert len(caught.value.problems) == 4
    for words in ("did you mean startingOffsets?", "server must be", "at least one topic", "minPartitions must be"):
        assert words in text


@pytest.mark.parametrize(
    ("streaming", "name", "value", "words"),
    [
        (True, "endingOffsets", "latest", "no meaning for a stream"),
        (False, "maxOffsetsPerTrigger", "5", "no meaning for a batch read"),
        (False, "endingOffsets", "earliest", "cannot be earliest"),
        (False, "endingOffsets", '{"a": {"0": -2}}', "cannot be earliest"),
        (True, "startingOffsets", '{"c": {"0": 1}}', "speaks of c"),
        (True, "startingOffsets", '{"a": {"0": -3}}', "must be"),
        (True, "startingOffsets", '{"a": {"0": true}}', "must be"),
        (True, "startingOffsets", '{"a": 5}', "must be"),
        (True, "startingOffsets", "[]", "must be"),
        (True, "startingOffsets", "newest", "must be"),
        (True, "failOnDataLoss", "no", "true or false"),
        (True, "maxFetchBytes", "10", "whole number"),
        (True, "maxOffsetsPerTrigger", "-1", "whole number"),
        (True, "server", "one:1,two:2", "needs one address"),
        (True, "path", "/x", "unknown option path"),
        (True, "servers", "one:1", "server and servers exclude each other"),
        (True, "assign", '{"a": [0]}', "subscribe and assign exclude each other"),
        (True, "columns", "body", "columns names body"),
        (True, "includeHeaders", "perhaps", "true or false"),
        (True, "maxTriggerDelay", "soon", "maxTriggerDelay must be"),
        (True, "startingTimestamp", "yesterday", "whole number"),
        (True, "startingOffsetsByTimestamp", '{"a": {"0": -1}}', "must be JSON"),
        (True, "startingOffsetsByTimestamp", "latest", "must be JSON"),
        (True, "startingOffsetsByTimestampStrategy", "earliest", "one of error, latest"),
        (True, "startingOffsets", '{"a": {"x/y/0": 1}}', "must be"),
        (True, "endingTimestamp", "5", "no meaning for a stream"),
        (False, "minOffsetsPerTrigger", "5", "no meaning for a batch read"),
    ],
)
def test_wrong_values_are_refused(streaming: bool, name: str, value: str, words: str) -> None:
    assert words in problems(streaming, **{name: value})


def test_a_secret_is_not_shown() -> None:
    options = Options.parse(GOOD | {"secret": " planted "}, streaming=True)
    assert options.secret == "planted"
    assert "planted" not in repr(options)
    assert problems(secret="plänted") == "secret must be printable ASCII"


def test_headers_are_left_out_as_kafka_does_it() -> None:
    options = Options.parse(GOOD | {"includeHeaders": "false"}, streaming=True)
    assert options.columns == tuple(name for name in COLUMNS if name != "headers")
    assert Options.parse(GOOD | {"includeHeaders": "false", "columns": "headers"}, streaming=True).columns == ("headers",)


def test_several_servers_are_addresses() -> None:
    several = {"subscribe": "a", "servers": "a:1, b:2,", "maxTriggerDelay": "2 min"}
    options = Options.parse(several, streaming=True)
    assert (options.server, options.servers, options.trigger_delay_seconds) == ("", ("a:1", "b:2"), 120)
    assert str(options) == "a:1,b:2 subscribe=a"
    directories = Options.parse({"subscribe": "a", "lookupd": "http://x:4161/"}, streaming=True)
    assert (directories.lookupds, str(directories)) == (("x:4161",), "lookupd x:4161 subscribe=a")
    for wrong in ({"servers": ","}, {"servers": "a"}, {"lookupd": "nowhere"}):
        with pytest.raises(ConfigError):
            Options.parse({"subscribe": "a"} | wrong, streaming=True)


def test_the_least_of_a_micro_batch_is_below_the_most() -> None:
    assert "is more than maxOffsetsPerTrigger 4" in problems(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="4")
