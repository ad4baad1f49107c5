from __future__ import annotations

import pytest

from polymq.errors import ConfigError
from polymq.spark.log.options import Options

GOOD = {"server": "127.0.0.1:4171", "subscribe": "a, b,a"}


def problems(streaming: bool = True, **options: str) -> str:
    with pytest.raises(ConfigError) as caught:
        Options.parse(GOOD | options, streaming=streaming)
    return str(caught.value)


def test_defaults_differ_between_streams_and_batches() -> None:
    stream, batch = (Options.parse(GOOD, streaming=streaming) for streaming in (True, False))
    assert stream.topics == ("a", "b")
    assert (stream.starting, batch.starting, batch.ending) == ("latest", "earliest", "latest")
    assert stream.fail_on_data_loss
    assert stream.records_per_trigger_max is None


def test_names_are_read_without_regard_to_case() -> None:
    options = Options.parse({"SERVER": "h:1", "subscribe": "a", "FAILONDATALOSS": "False", "maxoffsetspertrigger": " 5 "}, streaming=True)
    assert (options.fail_on_data_loss, options.records_per_trigger_max) == (False, 5)


def test_offsets_are_read_from_json() -> None:
    options = Options.parse(GOOD | {"startingOffsets": '{"a": {"0": 5, "1": -2}}'}, streaming=True)
    assert options.starting == {"a": {0: 5, 1: -2}}


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
    ],
)
def test_wrong_values_are_refused(streaming: bool, name: str, value: str, words: str) -> None:
    assert words in problems(streaming, **{name: value})


def test_a_secret_is_not_shown() -> None:
    options = Options.parse(GOOD | {"secret": " planted "}, streaming=True)
    assert options.secret == "planted"
    assert "planted" not in repr(options)
    assert problems(secret="plänted") == "secret must be printable ASCII"
