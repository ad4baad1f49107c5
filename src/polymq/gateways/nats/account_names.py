"""What accounts are called: by a configuration and other servers, and as namespaces of the core."""

from __future__ import annotations

from typing import Final

__all__ = ["GLOBAL_ACCOUNT", "SYSTEM_ACCOUNT", "account_name", "namespace_of"]

# The account of those who belong to no other: the namespace without a name.
GLOBAL_ACCOUNT: Final = "$G"
# The account of the servers themselves, if a configuration names no other for them.
SYSTEM_ACCOUNT: Final = "$SYS"


def namespace_of(account: str) -> str:
    """Give the namespace of an account: what belongs to no other is in the default one."""
    return "" if account == GLOBAL_ACCOUNT else account


def account_name(namespace: str) -> str:
    """Do the opposite."""
    return namespace or GLOBAL_ACCOUNT
