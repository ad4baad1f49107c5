from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq import limits
from polymq.protocols.nsq.identify import Agreement, Wishes, first_agreement, negotiate, parse_wishes
from polymq.protocols.nsq.settings import NsqSettings

PLAIN = NsqSettings(snappy=False, deflate=False)
FULL = NsqSettings(tls=True, deflate=True, snappy=True, auth_required=True, version="9.8.7")
START = first_agreement(PLAIN)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"null", Wishes()),
        (b" {} \r\n\t", Wishes()),
        (b'{"HOSTNAME":"a","Sample_Rate":7}', Wishes(hostname="a", sample_rate=7)),
        (b'{"client_id":null,"tls_v1":null}', Wishes()),
        (b'{"msg_timeout":5,"msg_timeout":null}', Wishes(msg_timeout=5)),
        (b'{"msg_timeout":5,"MSG_TIMEOUT":6}', Wishes(msg_timeout=6)),
        (b'{"msg_timeout":-0}', Wishes()),
        (b'{"heartbeat_interval":9223372036854775807}', Wishes(heartbeat_interval=2**63 - 1)),
        (b'{"heartbeat_interval":-9223372036854775808}', Wishes(heartbeat_interval=-(2**63))),
        (b'{"sample_rate":-2147483648}', Wishes(sample_rate=-(2**31))),
        (b'{"zzz":{"msg_timeout":1.5},"yyy":[1e400,123456789012345678901234567890]}', Wishes()),
        (b'{"hostname":"a\xffb"}', Wishes(hostname="a\ufffdb")),
        (b'{"hostname":"\\ud800x"}', Wishes(hostname="\ufffdx")),
        (b'{"hostname":"\\ud83d\\ude00"}', Wishes(hostname="\U0001f600")),
        ('{"ho\u017ftname":"long s"}'.encode(), Wishes(hostname="long s")),
        ('{"tl\u017f_v1":true}'.encode(), Wishes(tls_v1=True)),
        # U+FB00 folds to two letters in full case folding, which Go does not do.
        ('{"output_bu\ufb00er_size":5}'.encode(), Wishes()),
    ],
)
def test_bodies_that_go_reads(body: bytes, expected: Wishes) -> None:
    assert parse_wishes(body) == expected


def test_a_body_that_is_too_long_is_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = b'{"hostname":"%b"}' % (b"x" * (limits.IDENTIFY_SIZE_BYTES_MAX - 15))
    assert len(longest) == limits.IDENTIFY_SIZE_BYTES_MAX
    assert isinstance(negotiate(longest, PLAIN, START), Agreement)
    monkeypatch.setattr("polymq.protocols.nsq.identify.decode_struct", lambda *_: pytest.fail("it was looked into"))
    too_long = b'{"x":[%b]}' % b",".join([b"{}"] * 1_000_000)
    for body in (longest + b" ", too_long):
        assert negotiate(body, PLAIN, START) == b"E_BAD_BODY IDENTIFY failed to decode JSON body"


@pytest.mark.parametrize(
    "body",
    [
        b"nope",
        b"[]",
        b"1",
        b'"x"',
        b"true",
        b"{} x",
        b"{}{}",
        b'{"a":1,}',
        b"{'a':1}",
        b"\xef\xbb\xbf{}",
        b'{"zzz":NaN}',
        b'{"zzz":Infinity}',
        b'{"zzz":-Infinity}',
        b'{"hostname":"a\x01b"}',
        b'{"hostname":1}',
        b'{"hostname":["a"]}',
        b'{"hostname":{}}',
        b'{"heartbeat_interval":"30000"}',
        b'{"heartbeat_interval":30000.0}',
        b'{"heartbeat_interval":1e3}',
        b'{"heartbeat_interval":true}',
        b'{"heartbeat_interval":9223372036854775808}',
        b'{"heartbeat_interval":-9223372036854775809}',
        b'{"heartbeat_interval":' + b"1" * 5000 + b"}",
        b'{"heartbeat_interval":007}',
        b'{"sample_rate":2147483648}',
        b'{"sample_rate":-2147483649}',
        b'{"snappy":1}',
        b'{"snappy":"true"}',
        # A wrong value fails even if a right one for the same field follows.
        b'{"msg_timeout":"x","msg_timeout":1000}',
        b"[" * 100_000,
    ],
)
def test_bodies_that_go_does_not_read(body: bytes) -> None:
    assert parse_wishes(body) is None
    assert negotiate(body, PLAIN, START) == b"E_BAD_BODY IDENTIFY failed to decode JSON body"


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_body_raises(body: bytes) -> None:
    parse_wishes(body)


def agreed(wishes: dict[str, object], settings: NsqSettings = PLAIN, current: Agreement = START) -> Agreement:
    outcome = negotiate(json.dumps({"feature_negotiation": True, **wishes}).encode(), settings, current)
    assert isinstance(outcome, Agreement)
    return outcome


def test_the_first_wrong_number_in_nsqds_order_is_named() -> None:
    wrong = {"msg_timeout": 1, "sample_rate": 100, "output_buffer_size": 1, "output_buffer_timeout": 1, "heartbeat_interval": 1}
    for key, text in (
        ("heartbeat_interval", b"heartbeat interval (1)"),
        ("output_buffer_timeout", b"output buffer timeout (1)"),
        ("output_buffer_size", b"output buffer size (1)"),
        ("sample_rate", b"sample rate (100)"),
        ("msg_timeout", b"msg timeout (1)"),
    ):
        assert negotiate(json.dumps(wrong).encode(), PLAIN, START) == b"E_BAD_BODY IDENTIFY " + text + b" is invalid"
        del wrong[key]


def test_limits_come_from_the_settings() -> None:
    settings = NsqSettings(heartbeat_interval_ms_max=300_000, output_buffer_size_bytes_max=512 * 1024, output_buffer_timeout_ms_max=1000)
    assert agreed({"heartbeat_interval": 300_000}, settings).heartbeat_interval_ms == 300_000
    assert negotiate(b'{"heartbeat_interval":300001}', settings, START) == b"E_BAD_BODY IDENTIFY heartbeat interval (300001) is invalid"
    assert negotiate(b'{"output_buffer_size":524289}', settings, START) == b"E_BAD_BODY IDENTIFY output buffer size (524289) is invalid"
    assert negotiate(b'{"output_buffer_timeout":1001}', settings, START) == b"E_BAD_BODY IDENTIFY output buffer timeout (1001) is invalid"


def test_without_negotiation_numbers_count_and_features_do_not() -> None:
    outcome = negotiate(b'{"heartbeat_interval":5000,"snappy":true,"tls_v1":true,"hostname":"h"}', FULL, START)
    assert isinstance(outcome, Agreement)
    assert outcome.reply == b"OK"
    assert (outcome.heartbeat_interval_ms, outcome.hostname, outcome.snappy, outcome.tls) == (5000, "h", False, False)


def test_what_is_not_asked_for_stays_and_minus_one_switches_off() -> None:
    first = agreed(
        {"heartbeat_interval": 5000, "output_buffer_size": 100, "output_buffer_timeout": 50, "msg_timeout": 1000, "sample_rate": 9}
    )
    second = agreed({}, current=first)
    assert (second.heartbeat_interval_ms, second.output_buffer_size_bytes, second.output_buffer_timeout_ms) == (5000, 100, 50)
    assert (second.message_timeout_ms, second.sample_percent) == (1000, 0)
    off = agreed({"heartbeat_interval": -1, "output_buffer_timeout": -1}, current=second)
    assert (off.heartbeat_interval_ms, off.output_buffer_timeout_ms, off.output_buffer_size_bytes) == (0, 0, 100)
    unbuffered = agreed({"output_buffer_size": -1, "output_buffer_timeout": 100}, current=off)
    assert (unbuffered.output_buffer_size_bytes, unbuffered.output_buffer_timeout_ms, unbuffered.heartbeat_interval_ms) == (1, 0, 0)


def test_features_are_granted_when_asked_for_and_offered() -> None:
    assert agreed({"tls_v1": True, "snappy": True}, PLAIN) == replace(agreed({}, PLAIN), tls=False, snappy=False)
    granted = agreed({"tls_v1": True, "snappy": True}, FULL)
    assert (granted.tls, granted.snappy, granted.deflate) == (True, True, False)
    assert negotiate(b'{"feature_negotiation":true,"snappy":true,"deflate":true}', FULL, START) == (
        b"E_IDENTIFY_FAILED cannot enable both deflate and snappy compression"
    )
    assert agreed({"snappy": True, "deflate": True}, replace(FULL, snappy=False)).deflate


@pytest.mark.parametrize(
    ("wishes", "level_max", "level"),
    [
        ({"deflate": True, "deflate_level": 3}, 6, 3),
        ({"deflate": True, "deflate_level": 9}, 6, 6),
        ({"deflate": True, "deflate_level": -5}, 6, 6),
        ({"deflate": True}, 4, 4),
        ({"deflate_level": 3}, 6, 6),
        ({}, 2, 2),
    ],
)
def test_deflate_levels(wishes: dict[str, object], level_max: int, level: int) -> None:
    outcome = agreed(wishes, replace(FULL, deflate_level_max=level_max))
    assert outcome.deflate_level == level
    assert json.loads(outcome.reply)["deflate_level"] == level


def test_the_reply_has_nsqds_keys_in_nsqds_order() -> None:
    assert agreed({"tls_v1": True, "msg_timeout": 2000}, FULL).reply == (
        b'{"max_rdy_count":2500,"version":"9.8.7","max_msg_timeout":900000,"msg_timeout":2000,"tls_v1":true,"deflate":false,'
        b'"deflate_level":6,"max_deflate_level":6,"snappy":false,"sample_rate":0,"auth_required":true,"output_buffer_size":16384,'
        b'"output_buffer_timeout":250}'
    )
