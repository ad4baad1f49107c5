"""Options of a feed, all problems at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq.errors import ConfigError
from polymq.spark.option_values import OptionReader
from polymq.spool.feed import FEED_OPTIONS, PROTOCOLS, SPOOL_OPTIONS, Feed, make_receiver, read_feed, read_settings
from polymq.spool.settings import SpoolSettings

if TYPE_CHECKING:
    from pathlib import Path

WHOLE = {
    "nsq": {"subscribe": "a,b", "channel": "c", "servers": "h:4150,i:4150"},
    "nats": {"subscribe": "a.*", "server": "h:4222"},
    "phpmq": {"subscribe": "q", "server": "h:9100"},
}


def read(protocol: str, **given: str) -> Feed:
    reader = OptionReader(WHOLE[protocol] | given, FEED_OPTIONS[protocol])
    feed = read_feed(protocol, reader)
    reader.finish()
    return feed


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_needed_is_enough_and_makes_a_receiver(protocol: str) -> None:
    feed = read(protocol)
    assert feed.protocol == protocol
    assert feed.topics == tuple(WHOLE[protocol]["subscribe"].split(","))
    make_receiver(feed, None, lambda: 0)
    assert feed.topics[0] in feed.shown()


def test_secrets_are_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("hidden-in-a-file\n", encoding="utf-8")
    monkeypatch.setenv("TOKEN_OF_TEST", "hidden-in-the-environment")
    nsq = read("nsq", secretFile=str(tmp_path / "secret"))
    nats = read("nats", tokenEnv="TOKEN_OF_TEST")
    assert nsq.nsq.auth_secret == "hidden-in-a-file"
    assert nats.token == "hidden-in-the-environment"
    for feed in (nsq, nats):
        assert "hidden" not in repr(feed) + feed.shown()


@pytest.mark.parametrize(
    ("protocol", "given", "words"),
    [
        ("nsq", {"channel": ""}, "channel must name"),
        ("nsq", {"servers": ""}, "servers or lookupd"),
        ("nsq", {"servers": "nonsense"}, "HOST:PORT"),
        ("nsq", {"subscribe": "no topic"}, "not valid"),
        ("nsq", {"nsq.snappy": "true", "nsq.deflate": "true"}, "not by both"),
        ("nsq", {"tls.caFile": "x"}, "without tls=true"),
        ("nsq", {"maxInFlight": "0"}, "maxInFlight"),
        ("nsq", {"connections": "65"}, "connections"),
        ("nats", {"subscribe": "a..b"}, "not a subject"),
        ("nats", {"server": "a:1,b:2"}, "one host:port"),
        ("nats", {"secret": "a", "secretEnv": "b"}, "exclude each other"),
        ("phpmq", {"subscribe": "q" * 70_000}, "name"),
        ("phpmq", {"subscribe": ""}, "at least one topic"),
        ("phpmq", {"tls": "true", "tls.caFile": "/nowhere"}, "not what it should be"),
    ],
)
def test_what_cannot_be_is_refused(protocol: str, given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read(protocol, **given)


@pytest.mark.parametrize("address", ["user:hush@h:4222", "user:hush@h"])
def test_a_password_in_an_address_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(ConfigError, match="server must be host:port and nothing else") as caught:
        read("nats", server=address)
    assert "hush" not in str(caught.value)


def test_settings_have_defaults_and_bounds() -> None:
    reader = OptionReader({}, SPOOL_OPTIONS)
    assert read_settings(reader) == SpoolSettings()
    reader = OptionReader({"spoolKeepMs": "5000", "spoolSegmentBytes": "65536", "windowCount": "7", "windowMs": "2000"}, SPOOL_OPTIONS)
    found = read_settings(reader)
    assert (found.keep_seconds, found.segment_size_bytes_first, found.segment_size_bytes_max) == (5.0, 65536, 65536)
    assert (found.window_count, found.window_seconds) == (7, 2.0)
    reader = OptionReader({"spoolKeepBytes": "x", "spoolSegmentBytes": "1", "windowCount": "0", "windowMs": "1"}, SPOOL_OPTIONS)
    read_settings(reader)
    assert len(reader.problems) == 4
