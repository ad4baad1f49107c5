"""Flags as Go's flag package reads them; what comes of them is in test_nsqd.py."""

from __future__ import annotations

import pytest

from polymq.cli.nsq_flags import read_arguments
from polymq.cli.nsqd import NSQD


def test_flags_are_read_as_go_reads_them() -> None:
    given = read_arguments(
        ["-tcp-address=a:1", "--http-address", "b:2", "-deflate", "--snappy=0", "-lookupd-tcp-address=x", "-lookupd-tcp-address", "y"],
        NSQD,
    )
    assert given.problems == []
    assert given.values == {
        "tcp-address": ["a:1"],
        "http-address": ["b:2"],
        "deflate": ["true"],
        "snappy": ["0"],
        "lookupd-tcp-address": ["x", "y"],
    }
    assert read_arguments(["-log-prefix", "-x"], NSQD).values == {"log-prefix": ["-x"]}, "a value may look like a flag"
    assert read_arguments(["-statsd-prefix="], NSQD).values == {"statsd-prefix": [""]}
    assert read_arguments(["-tls-required"], NSQD).values == {"tls-required": ["true"]}
    assert read_arguments(["-h"], NSQD).values == {"help": ["true"]}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-bogus=1"], "-bogus: there is no such flag"),
        (["-data-pth", "x", "-snappy"], "-data-pth: there is no such flag; did you mean 'data-path'?"),
        (["-data-path"], "-data-path: its value is missing"),
        (["-deflate", "false", "-data-path=x"], "'false' is not a flag; nsqd overlooks it and all that follows: write -flag=value"),
        (["serve"], "'serve' is not a flag"),
        (["--", "-snappy"], "'--' is not a flag"),
        (["-"], "'-' is not a flag"),
        (["-=x"], "'-=x' is not a flag"),
    ],
)
def test_what_is_no_flag_is_named(arguments: list[str], said: str) -> None:
    assert [problem[: len(said)] for problem in read_arguments(arguments, NSQD).problems] == [said]
