"""The numbers are those that real peers use."""

from __future__ import annotations

from polymq.protocols.rocketmq.codes import Language, RequestCode, ResponseCode, SysFlag, not_supported


def test_what_is_seen_on_the_wire() -> None:
    assert RequestCode(105).name == "GET_ROUTEINFO_BY_TOPIC"
    assert RequestCode.LITE_PULL_MESSAGE == 361
    assert ResponseCode(19).name == "PULL_NOT_FOUND"
    assert Language(3).name == "PYTHON"
    assert SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB == 769


def test_languages_are_numbered_without_a_gap() -> None:
    assert sorted(Language) == list(range(len(Language)))


def test_the_remark_of_what_is_not_known() -> None:
    assert not_supported(999) == " request type 999 not supported"
