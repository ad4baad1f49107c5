"""Options of the sources over a spool."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from polymq.errors import ConfigError
from polymq.spark.columns import COLUMNS
from polymq.spark.spooled.options import Options, known_options
from polymq.spool.feed import FEED_OPTIONS, PROTOCOLS, SPOOL_OPTIONS

NSQ = {"servers": "h:4150", "subscribe": "t", "channel": "c", "spoolLocation": "/s"}


def test_a_stream_receives_unless_a_process_does() -> None:
    own = Options.parse("nsq", NSQ, streaming=True)
    assert own.feed is not None
    assert (own.location, own.columns, own.starting, own.fail_on_data_loss) == (Path("/s"), tuple(COLUMNS), "earliest", True)
    other = Options.parse("nsq", {"spoolLocation": "/s", "receiver": "process"}, streaming=True)
    assert other.feed is None
    assert Options.parse("nsq", {"spoolLocation": "/s"}, streaming=False).feed is None


def test_everything_wrong_is_said_at_once() -> None:
    given = {"spoolLocatoin": "/s", "startingOffsets": '{"t": {"0": 1}}', "maxOffsetsPerTrigger": "0", "columns": "value,colour"}
    with pytest.raises(ConfigError) as caught:
        Options.parse("nsq", given, streaming=True)
    text = str(caught.value)
    for words in ("did you mean spoolLocation", "spoolLocation must name", "subscribe does not name", "maxOffsetsPerTrigger", "colour"):
        assert words in text
    assert "at least one topic" in text


@pytest.mark.parametrize(("streaming", "given"), [(True, {"endingOffsets": "latest"}), (False, {"maxOffsetsPerTrigger": "5"})])
def test_options_have_their_place(streaming: bool, given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="has no meaning"):
        Options.parse("nsq", NSQ | given, streaming=streaming)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_said_to_a_receiver_is_refused_where_nothing_is_received(protocol: str) -> None:
    base = {"spoolLocation": "/s", "receiver": "process"}
    told = dict.fromkeys((*FEED_OPTIONS[protocol], *SPOOL_OPTIONS, "availableNowPauseMs", "availableNowMaxMs"), "65536")
    for streaming, place in (
        (True, "a stream with receiver=process: whatever fills the spool"),
        (False, "a batch read, which gives what is"),
    ):
        with pytest.raises(ConfigError) as caught:
            Options.parse(protocol, base | told, streaming=streaming)
        assert len(caught.value.problems) == len(told)
        for name in told:
            assert f"{name} has no meaning for {place}" in str(caught.value)
        assert Options.parse(protocol, base, streaming=streaming).feed is None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_option_is_explained(protocol: str) -> None:
    known = known_options(protocol)
    assert all(known.values())
    assert len({name.lower() for name in known}) == len(known)


def test_a_secret_is_not_shown() -> None:
    options = Options.parse("nsq", NSQ | {"secret": "hidden"}, streaming=True)
    assert "hidden" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options
