from __future__ import annotations

import pytest

from polymq.gateways.nats.account_names import account_name, namespace_of


@pytest.mark.parametrize(("account", "namespace"), [("$G", ""), ("A", "A"), ("$SYS", "$SYS")])
def test_the_account_of_those_who_have_none_is_the_default_namespace(account: str, namespace: str) -> None:
    assert namespace_of(account) == namespace
    assert account_name(namespace) == account
