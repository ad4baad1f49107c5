"""The whole script in memory, against what the real nsqlookupd answered."""

from __future__ import annotations

from pathlib import Path

from polymq.protocols.nsqlookup.settings import LookupSettings
from tests.unit.gateways.nsqlookup.golden_script import INACTIVE_S, TOMBSTONE_S, play
from tests.unit.gateways.nsqlookup.memory import SECOND_NS, MemoryDirectory

GOLDEN = Path(__file__).with_name("golden_v1.3.0.txt")


def test_the_script_has_the_real_ones_answers() -> None:
    directory = MemoryDirectory(LookupSettings(INACTIVE_S * SECOND_NS, TOMBSTONE_S * SECOND_NS))
    assert play(directory) == GOLDEN.read_text(encoding="utf-8").splitlines()
