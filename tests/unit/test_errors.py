from __future__ import annotations

import inspect

import pytest

from polymq import errors
from polymq.errors import (
    ConfigError,
    CorruptRecord,
    LocalProtocolError,
    PolyMQError,
    ProtocolError,
    Refusal,
    RefusalCode,
    RemoteProtocolError,
)


def test_everything_hangs_on_one_root_and_is_printed_in_the_tree() -> None:
    tree = inspect.getdoc(errors) or ""
    for name in errors.__all__:
        found = getattr(errors, name)
        if issubclass(found, Exception):
            assert issubclass(found, PolyMQError)
            assert name in tree


def test_nobody_raises_the_abstract_protocol_error() -> None:
    with pytest.raises(TypeError, match="abstract"):
        ProtocolError("no")
    assert LocalProtocolError("why").reason == "why"


def test_a_peers_fault_knows_what_the_peer_is_owed() -> None:
    error = RemoteProtocolError("bad", reply=b"answer", fatal=False)
    assert (error.reason, error.reply, error.fatal) == ("bad", b"answer", False)
    assert RemoteProtocolError("bad").fatal


def test_a_refusal_has_a_code_for_machines_and_a_text_for_people() -> None:
    assert Refusal(RefusalCode.STORE_FULL).text == "no room left in the data folder"
    assert str(Refusal(RefusalCode.STORE_FULL, "try later")) == "try later"


def test_damage_is_described_with_its_place() -> None:
    error = CorruptRecord("a.seg", position=7, expected="a batch", found="zeros")
    assert str(error) == "a.seg at byte 7: expected a batch, found zeros"


def test_a_configuration_error_names_every_problem() -> None:
    assert ConfigError(["one", "two"]).problems == ("one", "two")
    assert str(ConfigError(["one", "two"])) == "one\ntwo"
