from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq import config
from polymq.cli.nsqd_options import OPTIONS, Kind, from_file, from_flag, table, to_setting
from polymq.config_values import parse_duration
from tests.project.layout import ROOT

BY_FLAG = {each.flag: each for each in OPTIONS}
BY_KEY = {each.file_key: each for each in OPTIONS if each.file_key}


def test_every_option_has_a_meaning_and_a_name_of_its_own() -> None:
    assert len(BY_FLAG) == len(OPTIONS)
    for option in OPTIONS:
        assert option.setting or option.here
        assert bool(option.file_key) == (option.flag not in ("version", "config", "verbose", "worker-id"))
        if option.default:
            from_flag(option, option.default)
    assert BY_KEY["id"].flag == "node-id"
    assert BY_KEY["nsqlookupd_tcp_addresses"].flag == "lookupd-tcp-address"
    assert BY_KEY["max_msg_size"].flag == "max-msg-size"


def test_nsqds_defaults_are_polymqs_where_both_have_the_setting() -> None:
    known = config.all_settings()
    other = {"nsq.tcp", "nsq.http", "nsq.https", "server.data", "server.advertise", "store.sync_interval", "store.durability"}
    checked = 0
    for option in OPTIONS:
        setting = known.get(option.setting)
        if setting is None or option.setting in other or not option.default:
            continue
        assert setting.kind.read(to_setting(option, from_flag(option, option.default))) == setting.default, option.flag
        checked += 1
    assert checked >= 12


@pytest.mark.parametrize(
    ("flag", "text", "value"),
    [
        ("msg-timeout", "250ms", "250000000ns"),
        ("msg-timeout", "1h30m", "5400000000000ns"),
        ("msg-timeout", "1.5s", "1500000000ns"),
        ("msg-timeout", ".5m", "30000000000ns"),
        ("msg-timeout", "1m0.5s", "60500000000ns"),
        ("msg-timeout", "3us", "3000ns"),
        ("msg-timeout", "3µs", "3000ns"),
        ("msg-timeout", "0", "0ns"),
        ("msg-timeout", "-0s", "0ns"),
        ("mem-queue-size", "0", "0"),
        ("mem-queue-size", "-5", "-5"),
        ("mem-queue-size", "+5", "5"),
        ("mem-queue-size", "0x10", "16"),
        ("mem-queue-size", "010", "8"),
        ("mem-queue-size", "0b11", "3"),
        ("mem-queue-size", "1_000", "1000"),
        ("snappy", "T", "true"),
        ("snappy", "0", "false"),
        ("tls-required", "TCP-https", "tcp-https"),
        ("tls-required", "1", "true"),
        ("log-level", "WARN", "warn"),
        ("e2e-processing-latency-percentile", "1.0,0.95", "1.0,0.95"),
        ("statsd-prefix", " as it is ", " as it is "),
    ],
)
def test_values_are_read_as_go_reads_them(flag: str, text: str, value: str) -> None:
    assert from_flag(BY_FLAG[flag], text) == value


@pytest.mark.parametrize(
    ("flag", "text"),
    [("msg-timeout", text) for text in ("", "5000", "1", "s", "1d", "1 s", "1h 30m", "-1s", "1e3s", ".s", "1ss", "one", "+", "0x1s")]
    + [("mem-queue-size", text) for text in ("", "x", "1.0", " 1", "1 ", "--1", "09", "0x", "1__0", "1e3")]
    + [("snappy", text) for text in ("", "yes", "tRUE", "2")]
    + [("tls-required", "tcp"), ("log-level", "warning"), ("e2e-processing-latency-percentile", "1.0,,")],
)
def test_values_that_nsqd_would_not_take_are_refused(flag: str, text: str) -> None:
    with pytest.raises(ValueError):
        from_flag(BY_FLAG[flag], text)


@pytest.mark.parametrize(
    ("flag", "raw", "value"),
    [
        ("msg-timeout", "60s", "60000000000ns"),
        ("msg-timeout", 60000, "60000000000ns"),
        ("max-rdy-count", 10, "10"),
        ("max-rdy-count", "10", "10"),
        ("snappy", False, "false"),
        ("snappy", "f", "false"),
        ("tls-required", True, "true"),
        ("tls-required", "tcp-https", "tcp-https"),
        ("lookupd-tcp-address", ["a:1", "b,2"], ["a:1", "b,2"]),
        ("lookupd-tcp-address", "a:1, b:2,", ["a:1", "b:2"]),
        ("e2e-processing-latency-percentile", [1, 0.5], "1,0.5"),
        ("log-level", "Info", "info"),
        ("data-path", "/x", "/x"),
    ],
)
def test_values_of_the_file_are_read_as_nsqd_reads_them(flag: str, raw: Any, value: str | list[str]) -> None:
    assert from_file(BY_FLAG[flag], raw) == value


@pytest.mark.parametrize(
    ("flag", "raw"),
    [
        ("msg-timeout", 1.5),
        ("msg-timeout", True),
        ("max-rdy-count", 1.0),
        ("max-rdy-count", True),
        ("snappy", 0),
        ("data-path", 7),
        ("data-path", ["a"]),
        ("lookupd-tcp-address", [1]),
        ("e2e-processing-latency-percentile", [True]),
        ("e2e-processing-latency-percentile", ["0.5"]),
        ("log-level", {}),
    ],
)
def test_values_of_the_wrong_type_are_refused(flag: str, raw: Any) -> None:
    with pytest.raises(ValueError):
        from_file(BY_FLAG[flag], raw)


def test_zero_is_no_word_for_false_in_nsqds_file() -> None:
    with pytest.raises(ValueError, match="nsqd takes 0 for true"):
        from_file(BY_FLAG["deflate"], 0)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:4150", "127.0.0.1:4150"),
        ("host:80", "host:80"),
        ("[::1]:80", "[::1]:80"),
        ("/run/nsqd.sock", "unix:/run/nsqd.sock"),
        ("nsqd.sock", "unix:nsqd.sock"),
        ("/run/a:b/sock", "unix:/run/a:b/sock"),
        ("", "off"),
    ],
)
def test_addresses(text: str, address: str) -> None:
    assert to_setting(BY_FLAG["tcp-address"], text) == address


def test_no_host_is_every_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for both, address in ((True, "[::]:4150"), (False, "0.0.0.0:4150")):
        monkeypatch.setattr("socket.has_dualstack_ipv6", lambda both=both: both)
        assert to_setting(BY_FLAG["tcp-address"], ":4150") == address


@given(st.integers(0, 2**33))
def test_polymq_reads_every_duration_that_is_made_of_nsqds(milliseconds: int) -> None:
    assert parse_duration(from_flag(BY_FLAG["msg-timeout"], f"{milliseconds}ms")) == milliseconds * 10**6


@given(st.text(max_size=20), st.sampled_from(OPTIONS))
def test_no_text_makes_a_value_fail_in_another_way(text: str, option: Any) -> None:
    try:
        value = from_flag(option, text)
    except ValueError:
        return
    to_setting(option, value)
    assert option.kind is not Kind.DURATION or re.fullmatch(r"\d+ns", value)


def test_the_table_of_the_documents_is_the_one_that_is_followed() -> None:
    assert table() in ROOT.joinpath("docs", "FROM_NSQD.md").read_text(encoding="utf-8"), (
        "python -c 'from polymq.cli.nsqd_options import table; print(table())' writes it again"
    )
