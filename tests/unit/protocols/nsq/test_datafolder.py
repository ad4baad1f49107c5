from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.errors import RemoteProtocolError
from polymq.protocols.nsq.datafolder import (
    ChannelEntry,
    QueueFile,
    QueueMeta,
    TopicEntry,
    file_name,
    meta_name,
    parse_file_name,
    parse_meta,
    parse_metadata,
)

# Written by nsqd 1.3.0: one topic with two channels of which one is paused, one topic without channels.
WRITTEN = (
    b'{"topics":[{"name":"t","paused":false,"channels":[{"name":"a","paused":false},{"name":"b","paused":true}]},'
    b'{"name":"lone","paused":true,"channels":null}],"version":"1.3.0"}'
)


def test_what_nsqd_writes_is_understood() -> None:
    channels = (ChannelEntry("a", paused=False), ChannelEntry("b", paused=True))
    assert parse_metadata(WRITTEN) == ((TopicEntry("t", False, channels), TopicEntry("lone", True, ())), ())


def test_what_nsqd_leaves_out_is_left_out() -> None:
    names = ["good", "good", "bad name", "x#ephemeral", "", "ü"]
    document = {"topics": [{"name": name, "channels": [{"name": "c"}, {"name": "y#ephemeral"}, {"name": "?"}]} for name in names]}
    topics, invalid = parse_metadata(json.dumps(document).encode())
    assert topics == (TopicEntry("good", False, (ChannelEntry("c", paused=False),)),)
    assert set(invalid) == {"bad name", "", "ü", "?"}
    assert parse_metadata(b"{}") == ((), ())
    assert parse_metadata(b'{"topics":null}') == ((), ())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"topics":{}}',
        b'{"topics":[1]}',
        b'{"topics":[{"paused":true}]}',
        b'{"topics":[{"name":1}]}',
        b'{"topics":[{"name":"a","paused":1}]}',
        b'{"topics":[{"name":"a","channels":[null]}]}',
        b"\xff",
    ],
)
def test_what_is_no_metadata_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_metadata(data)


def test_positions() -> None:
    assert parse_meta(b"12\n0,345\n2,6789\n") == QueueMeta(12, 0, 345, 2, 6789)
    assert parse_meta(b"-1\n0,0\n0,0") == QueueMeta(-1, 0, 0, 0, 0)
    for data in (b"", b"1\n2\n3\n", b"1\n0,-1\n0,0\n", b"x\n0,0\n0,0\n", b"1\n0,0\n0,0\nmore", b"1\n0,0\n0," + b"9" * 19):
        with pytest.raises(RemoteProtocolError):
            parse_meta(data)


def test_names() -> None:
    assert file_name("t", "", 0) == "t.diskqueue.000000.dat"
    assert file_name("t", "c", 1234567) == "t:c.diskqueue.1234567.dat"
    assert meta_name("t", "c") == "t:c.diskqueue.meta.dat"
    assert parse_file_name("t:c.diskqueue.000007.dat") == QueueFile("t", "c", 7, bad=False)
    assert parse_file_name("a.b.diskqueue.meta.dat") == QueueFile("a.b", "", None, bad=False)
    assert parse_file_name("t.diskqueue.000007.dat.bad") == QueueFile("t", "", 7, bad=True)
    for other in ("nsqd.dat", "t.diskqueue.7.dat", "t.diskqueue.meta.dat.123.tmp", "t:c:d.diskqueue.000000.dat", ""):
        assert parse_file_name(other) is None


NAMES = st.text("abc.-_0", min_size=1, max_size=20)


@given(NAMES, NAMES | st.just(""), st.integers(0, 10**9))
def test_names_survive_the_round_trip(topic: str, channel: str, number: int) -> None:
    assert parse_file_name(file_name(topic, channel, number)) == QueueFile(topic, channel, number, bad=False)
    assert parse_file_name(meta_name(topic, channel)) == QueueFile(topic, channel, None, bad=False)
