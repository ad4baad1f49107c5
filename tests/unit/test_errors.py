"""The tree of exceptions is the one that is printed at its top, and each carries what its catcher needs."""

from __future__ import annotations

import re

import pytest

from polymq import errors


def test_the_tree_is_as_printed() -> None:
    assert errors.__doc__ is not None
    printed = re.findall(r"(?:├──|└──|^    )\s*([A-Z]\w+)", errors.__doc__, re.MULTILINE)
    defined = [name for name in errors.__all__ if isinstance(getattr(errors, name), type) and issubclass(getattr(errors, name), Exception)]
    assert sorted(printed) == sorted(defined)
    assert all(issubclass(getattr(errors, name), errors.PolyMQError) for name in defined)


def test_protocol_error_is_abstract() -> None:
    with pytest.raises(TypeError, match="abstract"):
        errors.ProtocolError("broken")


def test_a_remote_protocol_error_says_what_is_owed() -> None:
    error = errors.RemoteProtocolError("bad line", reply=b"E_INVALID", fatal=False)
    assert (str(error), error.reason, error.reply, error.fatal) == ("bad line", "bad line", b"E_INVALID", False)
    assert errors.RemoteProtocolError("x").fatal
    assert issubclass(errors.LocalProtocolError, errors.ProtocolError)


def test_a_refusal_has_a_code_for_machines_and_a_text_for_people() -> None:
    plain, worded = errors.Refusal(errors.RefusalCode.FORBIDDEN), errors.Refusal(errors.RefusalCode.FORBIDDEN, "not you")
    assert (plain.text, str(plain)) == ("not allowed", "not allowed")
    assert (worded.code, worded.text) == (errors.RefusalCode.FORBIDDEN, "not you")
    assert len({code.value for code in errors.RefusalCode}) == len(errors.RefusalCode)


def test_a_corrupt_record_says_where_and_what() -> None:
    error = errors.CorruptRecord("a.seg", position=7, expected="0x1", found="0x2")
    assert str(error) == "a.seg at byte 7: expected 0x1, found 0x2"
    assert (error.path, error.position, error.expected, error.found) == ("a.seg", 7, "0x1", "0x2")
    assert issubclass(errors.CorruptRecord, errors.StoreError)


def test_a_configuration_error_holds_every_problem() -> None:
    error = errors.ConfigError(["one", "two"])
    assert (str(error), error.problems) == ("one\ntwo", ("one", "two"))
