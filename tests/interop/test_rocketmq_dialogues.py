"""RocketMQ, frame by frame: what polymq answers to good and bad requests is what a real nameserver and broker (4.9) answer.

Every case is played on both. Where polymq answers otherwise and means to, it is listed with the reason in `rocketmq_differences.toml`, with
its own answer; a line there that is no longer needed fails as well.
"""

from __future__ import annotations

import difflib
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.interop.dialogue import PLAYED_AGAIN
from tests.interop.rocketmq_servers import POLYMQ, rocketmq_server
from tests.interop.rocketmq_state_cases import CASES

REAL = "rocketmq-4.9"
DIFFERENCES: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("rocketmq_differences.toml").read_text(encoding="utf-8")).get(
    "difference", []
)
Transcripts = dict[str, dict[str, list[str]]]


@pytest.fixture(scope="module")
def transcripts(tmp_path_factory: pytest.TempPathFactory) -> Transcripts:
    folders = {kind: tmp_path_factory.mktemp(kind) for kind in (REAL, POLYMQ)}

    def play(kind: str) -> dict[str, list[str]]:
        with rocketmq_server(kind, folders[kind]) as server:
            return CASES.played(server)

    # Most of what a case does is to wait whether more comes: both at once.
    with ThreadPoolExecutor() as pool:
        played = dict(zip(folders, pool.map(play, folders), strict=True))
    return {each.name: {kind: played[kind][each.name] for kind in played} for each in CASES.all}


def difference_between(name: str, found: list[str], wanted: list[str]) -> str:
    """What is not as it should be, for people; "" if nothing."""
    assert wanted, "nothing was heard"
    if any("the case broke off" in line for line in wanted):
        return "\n".join(wanted)
    # A difference is a line of the real one and polymq's instead of it, wherever it stands; "" is no line.
    for difference in DIFFERENCES:
        if name in difference["cases"]:
            for theirs, ours in difference["lines"]:
                if theirs not in wanted and ours not in found:
                    return f"no longer different: {theirs}"
                wanted = [ours if line == theirs else line for line in wanted]
    return "\n".join(difflib.unified_diff(wanted, found, "real", "polymq", n=1, lineterm=""))


@pytest.mark.parametrize("name", [each.name for each in CASES.all])
def test_both_say_the_same(name: str, transcripts: Transcripts, tmp_path: Path) -> None:
    told = transcripts[name]
    if difference_between(name, told[POLYMQ], told[REAL]):
        # All are played together, and a busy machine may make one differ: it is played once more, alone, on new servers.
        PLAYED_AGAIN.append(f"rocketmq: {name}")
        for kind in (REAL, POLYMQ):
            with rocketmq_server(kind, tmp_path / kind) as server:
                told[kind] = CASES.played(server, name)[name]
    difference = difference_between(name, told[POLYMQ], told[REAL])
    if difference:
        pytest.fail(f"\n{difference}", pytrace=False)


def test_every_difference_is_of_a_case_and_has_a_reason() -> None:
    names = {each.name for each in CASES.all}
    for difference in DIFFERENCES:
        assert names.issuperset(difference["cases"]), difference
        assert difference["reason"]
