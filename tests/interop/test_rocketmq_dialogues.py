"""RocketMQ, frame by frame: what polymq answers to good and bad requests is what a real nameserver and broker (4.9) answer.

Every case is played on both. Where polymq answers otherwise and means to, it is listed with the reason in `rocketmq_differences.toml`, with
its own answer; a line there that is no longer needed fails as well.
"""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.interop.rocketmq_frame_cases import CASES
from tests.interop.rocketmq_servers import POLYMQ, rocketmq_server

REAL = "rocketmq-4.9"
DIFFERENCES: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("rocketmq_differences.toml").read_text(encoding="utf-8")).get(
    "difference", []
)
Transcripts = dict[str, dict[str, list[str]]]


@pytest.fixture(scope="module")
def transcripts(tmp_path_factory: pytest.TempPathFactory) -> Transcripts:
    played = {}
    for kind in (REAL, POLYMQ):
        with rocketmq_server(kind, tmp_path_factory.mktemp(kind)) as server:
            played[kind] = CASES.played(server)
    return {each.name: {kind: played[kind][each.name] for kind in played} for each in CASES.all}


@pytest.mark.parametrize("name", [each.name for each in CASES.all])
def test_both_say_the_same(name: str, transcripts: Transcripts) -> None:
    found, wanted = transcripts[name][POLYMQ], transcripts[name][REAL]
    assert wanted, "nothing was heard"
    assert not any("the case broke off" in line for line in wanted), wanted
    listed = [difference for difference in DIFFERENCES if name in difference["cases"]]
    # A difference is a line of the real one and polymq's instead of it, wherever it stands; "" is no line.
    for difference in listed:
        for theirs, ours in difference["lines"]:
            assert theirs in wanted or ours in found, f"no longer different: {theirs}"
            wanted = [ours if line == theirs else line for line in wanted]
    if found != wanted:
        pytest.fail("\n" + "\n".join(difflib.unified_diff(wanted, found, "real", "polymq", n=1, lineterm="")), pytrace=False)


def test_every_difference_is_of_a_case_and_has_a_reason() -> None:
    names = {each.name for each in CASES.all}
    for difference in DIFFERENCES:
        assert names.issuperset(difference["cases"]), difference
        assert difference["reason"]
