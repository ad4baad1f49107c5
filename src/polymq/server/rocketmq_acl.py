"""Who may do what in RocketMQ: a file in the form of its plain_acl.yml, read into what `gateways/rocketmq/gate.py` asks.

globalWhiteRemoteAddresses: [10.10.103.*]      # need no key
accounts:
- accessKey: orders-service
  secretKey: 0123456789abcdef
  whiteRemoteAddress:                          # needs no signature, with this key
  admin: false
  defaultTopicPerm: DENY                       # DENY, PUB, SUB, PUB|SUB
  defaultGroupPerm: SUB
  topicPerms: [orders=PUB|SUB]
  groupPerms: [billing=DENY]
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from polymq.errors import ConfigError
from polymq.gateways.rocketmq.gate import PUB, SUB, Account, AclGate, Rights
from polymq.protocols.rocketmq.names import is_valid_topic
from polymq.server.yaml_lists import YamlProblem, read_yaml

if TYPE_CHECKING:
    from polymq.server.yaml_lists import Tree

__all__ = ["Addresses", "make_gate", "parse_acl"]

_SETTING: Final = "rocketmq.acl_file"
_TOP: Final = frozenset({"globalWhiteRemoteAddresses", "accounts"})
_FIELDS: Final = frozenset(
    {"accessKey", "secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm", "defaultGroupPerm", "topicPerms", "groupPerms"}
)
_PERMS: Final = {"DENY": 0, "PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB, "ANY": PUB | SUB}
_TRUTHS: Final = {"true": True, "false": False}
# RocketMQ refuses shorter ones.
_KEY_SIZE_MIN: Final = 7
_OCTETS: Final = 4
_OCTET_MAX: Final = 255
_OCTET: Final = re.compile(r"\*|(\d{1,3})(?:-(\d{1,3}))?|\{(\d{1,3}(?:,\d{1,3})*)\}", re.ASCII)
_COMMA_OUTSIDE: Final = re.compile(r",(?![^{]*\})")


def make_gate(file: str) -> AclGate | None:
    """Read the file that the settings name; None: nobody has to sign anything. Raises ConfigError with every problem."""
    if not file:
        return None
    try:
        text = Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{_SETTING}: {file} cannot be read: {error}"]) from error
    problems: list[str] = []
    accounts, white = parse_acl(text, problems)
    if problems:
        raise ConfigError([f"{_SETTING}: {file}: {problem}" for problem in problems])
    return AclGate(accounts, white.match)


def parse_acl(text: str, problems: list[str]) -> tuple[dict[str, Account], Addresses]:
    """Read accounts by their access key, and the addresses that need none; what is wrong is added to the problems."""
    try:
        document = read_yaml(text)
    except YamlProblem as problem:
        problems.append(str(problem))
        return {}, Addresses(())
    if not isinstance(document, dict):
        problems.append("there are no accounts; write accounts: and a list below it")
        return {}, Addresses(())
    problems += [f"there is no {key}; there are {' and '.join(sorted(_TOP))}" for key in document if key not in _TOP]
    white = _addresses(document.get("globalWhiteRemoteAddresses"), "globalWhiteRemoteAddresses", problems)
    entries = document.get("accounts")
    accounts: dict[str, Account] = {}
    for entry in entries if isinstance(entries, list) else []:
        account = _account(entry, problems)
        if account is not None and account.access_key in accounts:
            problems.append(f"accessKey {account.access_key} is there twice")
        elif account is not None:
            accounts[account.access_key] = account
    if not accounts and not white.rules and not problems:
        problems.append("there are no accounts; write accounts: and a list below it")
    return accounts, white


def _account(entry: Tree, problems: list[str]) -> Account | None:
    if not isinstance(entry, dict):
        problems.append("an account is a map: - accessKey: …")
        return None
    key, secret = entry.get("accessKey"), entry.get("secretKey")
    if not isinstance(key, str) or not isinstance(secret, str):
        problems.append("an account needs an accessKey and a secretKey")
        return None
    found: list[str] = []
    found += [
        f"{name} has fewer than {_KEY_SIZE_MIN} characters"
        for name, text in (("accessKey", key), ("secretKey", secret))
        if len(text) < _KEY_SIZE_MIN
    ]
    found += [f"there is no {name}; there are {', '.join(sorted(_FIELDS))}" for name in entry if name not in _FIELDS]
    admin = _TRUTHS.get(str(entry.get("admin") or "false").lower())
    if admin is None:
        found.append(f"admin is true or false, not {entry.get('admin')}")
    account = Account(
        key,
        secret,
        bool(admin),
        Rights(_rights(entry.get("topicPerms"), "topicPerms", found), _perm(entry.get("defaultTopicPerm"), "defaultTopicPerm", found)),
        Rights(_rights(entry.get("groupPerms"), "groupPerms", found), _perm(entry.get("defaultGroupPerm"), "defaultGroupPerm", found)),
        _addresses(entry.get("whiteRemoteAddress"), "whiteRemoteAddress", found).match,
    )
    problems += [f"accessKey {key}: {problem}" for problem in found]
    return None if found else account


def _perm(value: Tree, name: str, problems: list[str]) -> int:
    """Read DENY, PUB, SUB or PUB|SUB; nothing is DENY."""
    text = "DENY" if value is None else str(value).upper().replace(" ", "")
    if text not in _PERMS:
        problems.append(f"{name} is DENY, PUB, SUB or PUB|SUB, not {value}")
    return _PERMS.get(text, 0)


def _rights(value: Tree, name: str, problems: list[str]) -> dict[str, int]:
    """Read a list of NAME=PERM."""
    if value is not None and not isinstance(value, list):
        problems.append(f"{name} is a list of NAME=PERM")
        return {}
    found: dict[str, int] = {}
    for entry in value or []:
        topic, equals, perm = str(entry).partition("=")
        if not equals or not is_valid_topic(topic.strip()):
            problems.append(f"{name}: {entry} is not NAME=PERM")
        else:
            found[topic.strip()] = _perm(perm.strip(), f"{name}: {topic.strip()}", problems)
    return found


# -- addresses -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses, as RocketMQ's patterns say: for each number of one of IPv4 the set that it may be in, or one of IPv6, or all."""

    rules: tuple[tuple[frozenset[int] | None, ...] | str, ...]

    def match(self, host: str) -> bool:
        """Say whether an address is one of them. "" (a Unix socket) is none."""
        if not self.rules or not host:
            return False
        numbers = host.split(".")
        for rule in self.rules:
            if isinstance(rule, str):
                if rule in ("*", _normal(host)):
                    return True
            elif len(numbers) == _OCTETS and all(
                allowed is None or (number.isdigit() and int(number) in allowed) for number, allowed in zip(numbers, rule, strict=True)
            ):
                return True
        return False


def _normal(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        return host


def _addresses(value: Tree, name: str, problems: list[str]) -> Addresses:
    """Read `10.1.*.*`, `10.1.1.1-9`, `10.1.1.{1,2}`, several with commas, addresses of IPv6, or `*`; nothing is none."""
    texts = value if isinstance(value, list) else [value]
    rules: list[tuple[frozenset[int] | None, ...] | str] = []
    for text in texts:
        for part in _COMMA_OUTSIDE.split(text) if isinstance(text, str) else ():
            rule = _rule(part.strip())
            if rule is None:
                problems.append(f"{name}: {part.strip()} is no address; write 10.1.1.1, 10.1.*.*, 10.1.1.1-9, 10.1.1.{{1,2}} or *")
            else:
                rules.append(rule)
    return Addresses(tuple(rules))


def _rule(text: str) -> tuple[frozenset[int] | None, ...] | str | None:
    if text in ("*", "*.*.*.*"):
        return "*"
    if ":" in text:
        try:
            return str(ipaddress.IPv6Address(text.strip("[]")))
        except ValueError:
            return None
    numbers = text.split(".")
    if len(numbers) != _OCTETS:
        return None
    found = [_octet(number) for number in numbers]
    return None if any(each is not None and not each for each in found) else tuple(found)


def _octet(text: str) -> frozenset[int] | None:
    """Read one number of an address: None is all, an empty set is nothing that could be one."""
    match = _OCTET.fullmatch(text)
    if match is None:
        return frozenset()
    if text == "*":
        return None
    if match[3] is not None:
        numbers = frozenset(map(int, match[3].split(",")))
    else:
        numbers = frozenset(range(int(match[1]), int(match[2] or match[1]) + 1))
    return numbers if all(number <= _OCTET_MAX for number in numbers) else frozenset()
