from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq.core.access import Action
from polymq.errors import ConfigError
from polymq.server.rocketmq_acl import make_gate, parse_acl
from tests.unit.server.test_yaml_lists import PLAIN_ACL

if TYPE_CHECKING:
    from pathlib import Path

    from polymq.gateways.rocketmq.gate import Account


def accounts_of(text: str) -> dict[str, Account]:
    problems: list[str] = []
    accounts, _ = parse_acl(text, problems)
    assert problems == []
    return accounts


def problems_of(text: str) -> list[str]:
    problems: list[str] = []
    parse_acl(text, problems)
    return problems


def allows(account: Account, action: Action, topic: str, group: str = "") -> bool:
    permissions = account.principal().permissions
    return permissions is None or any(permission.allows(action, topic, group) for permission in permissions)


def test_an_account_may_do_what_its_lists_say_and_the_default_for_the_rest() -> None:
    account = accounts_of(PLAIN_ACL)["RocketMQ"]
    assert allows(account, Action.PUBLISH, "topicB")
    assert allows(account, Action.SUBSCRIBE, "topicB", "anything")
    assert not allows(account, Action.SUBSCRIBE, "topicB", "groupA")
    assert not allows(account, Action.PUBLISH, "topicC")
    assert allows(account, Action.READ, "topicC")
    assert not allows(account, Action.READ, "topicA")
    assert not allows(account, Action.PUBLISH, "other")
    assert not allows(account, Action.MANAGE, "topicB")


def test_what_a_group_sends_back_follows_the_group() -> None:
    account = accounts_of(PLAIN_ACL)["RocketMQ"]
    for prefix in ("%RETRY%", "%DLQ%"):
        for action in (Action.PUBLISH, Action.SUBSCRIBE, Action.READ):
            assert allows(account, action, f"{prefix}anything", "anything")
            assert not allows(account, action, f"{prefix}groupA", "groupA")
    assert not allows(account, Action.MANAGE, "%RETRY%anything")


def test_everybody_may_trace_what_he_sends() -> None:
    account = accounts_of(PLAIN_ACL)["RocketMQ"]
    assert allows(account, Action.PUBLISH, "RMQ_SYS_TRACE_TOPIC")
    assert not allows(account, Action.READ, "RMQ_SYS_TRACE_TOPIC")


def test_an_administrator_may_do_everything_unless_lists_say_what() -> None:
    account = accounts_of(PLAIN_ACL)["rocketmq2"]
    assert account.principal().permissions is None
    text = "accounts:\n- accessKey: 1234567\n  secretKey: 7654321\n  admin: true\n  topicPerms: [t=PUB]\n"
    account = accounts_of(text)["1234567"]
    assert account.principal().may_everywhere(Action.MANAGE)
    assert allows(account, Action.PUBLISH, "t")
    assert not allows(account, Action.READ, "t", "g")


def test_white_addresses() -> None:
    problems: list[str] = []
    text = """
globalWhiteRemoteAddresses:
- 10.1.*.*
- 10.2.0.1-9, 10.2.0.20
- 10.3.0.{1,3}
- ::1
"""
    _, white = parse_acl(text, problems)
    assert problems == []
    for host in ("10.1.200.3", "10.2.0.9", "10.2.0.20", "10.3.0.3", "::1", "0:0::1"):
        assert white.match(host), host
    for host in ("10.4.0.1", "10.2.0.10", "10.3.0.2", "::2", "", "10.1.2", "host"):
        assert not white.match(host), host
    assert accounts_of(PLAIN_ACL)["rocketmq2"].white("192.168.1.7")
    assert not accounts_of(PLAIN_ACL)["RocketMQ"].white("192.168.1.7")
    _, everywhere = parse_acl('globalWhiteRemoteAddresses: "*"', problems)
    assert everywhere.match("8.8.8.8")
    assert everywhere.match("fe80::1")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "there are no accounts; write accounts: and a list below it"),
        ("accounts:\n", "there are no accounts; write accounts: and a list below it"),
        ("a:\n\tb", "line 2: lines are indented by blanks, not by tabs"),
        ("acounts:\n- accessKey: 1", "there is no acounts; there are accounts and globalWhiteRemoteAddresses"),
        ("accounts: [x]", "an account is a map: - accessKey: …"),
        ("accounts:\n- accessKey: 1234567", "an account needs an accessKey and a secretKey"),
        ("accounts:\n- accessKey: 123456\n  secretKey: 1234567", "accessKey 123456: accessKey has fewer than 7 characters"),
        ("accounts:\n- accessKey: 1234567\n  secretKey: 7654321\n  admin: maybe", "accessKey 1234567: admin is true or false, not maybe"),
        (
            "accounts:\n- accessKey: 1234567\n  secretKey: 7654321\n  defaultTopicPerm: READ",
            "accessKey 1234567: defaultTopicPerm is DENY, PUB, SUB or PUB|SUB, not READ",
        ),
        (
            "accounts:\n- accessKey: 1234567\n  secretKey: 7654321\n  topicPerms: [t]",
            "accessKey 1234567: topicPerms: t is not NAME=PERM",
        ),
        (
            "accounts:\n- accessKey: 1234567\n  secretKey: 7654321\n  groupPerms: t=PUB",
            "accessKey 1234567: groupPerms is a list of NAME=PERM",
        ),
        (
            "accounts:\n- accessKey: 1234567\n  secretKey: 7654321\n  whiteRemoteAddress: 10.1.1.300",
            "accessKey 1234567: whiteRemoteAddress: 10.1.1.300 is no address; write 10.1.1.1, 10.1.*.*, 10.1.1.1-9, 10.1.1.{1,2} or *",
        ),
    ],
)
def test_what_is_wrong_is_said(text: str, problem: str) -> None:
    assert problem in problems_of(text)


def test_a_key_that_is_there_twice() -> None:
    account = "- accessKey: 1234567\n  secretKey: 7654321\n"
    assert problems_of(f"accounts:\n{account}{account}") == ["accessKey 1234567 is there twice"]


def test_the_file_is_named_in_what_is_wrong_with_it(tmp_path: Path) -> None:
    assert make_gate("") is None
    file = tmp_path / "plain_acl.yml"
    with pytest.raises(ConfigError, match="cannot be read"):
        make_gate(str(file))
    file.write_text("accounts:\n- x\n")
    with pytest.raises(ConfigError) as caught:
        make_gate(str(file))
    assert caught.value.problems[0].startswith(f"rocketmq.acl_file: {file}: ")
    file.write_text(PLAIN_ACL)
    assert make_gate(str(file)) is not None
