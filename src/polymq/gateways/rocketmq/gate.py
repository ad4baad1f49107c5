"""ACL 1.0: every request is signed with the secret of an access key, and done as whoever that is.

What may be done is decided twice: here by RocketMQ's own rules, for its words, and in the Session by the permissions that are
made of the same account. Requests that only ask where a broker is need no signature, as with RocketMQ's name server.
The file is read by `server/rocketmq_acl.py`. Source: PlainPermissionManager, PlainAccessResource, RocketMQ 4.9.8.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from polymq.core.access import STRANGER, Action, Permission, Principal
from polymq.core.patterns import EVERYTHING
from polymq.gateways.rocketmq.answers import Answer
from polymq.protocols.rocketmq.acl import is_signed_with
from polymq.protocols.rocketmq.codes import RequestCode, ResponseCode
from polymq.protocols.rocketmq.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, group_of, retry_topic, to_topic
from polymq.rocketmq_limits import KEYS_PER_CONNECTION_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from polymq.core.session import Session
    from polymq.gateways.rocketmq.client import RocketmqClient
    from polymq.protocols.rocketmq.events import Request

__all__ = ["ANYTHING", "Account", "AclGate", "Rights"]

PUB: Final = 1
SUB: Final = 2
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"

# Only administrators may ask these. Source: Permission.ADMIN_CODE.
_OF_ADMINISTRATORS: Final = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
    }
)
# Where a broker is: RocketMQ's name server tells everybody.
_OF_EVERYBODY: Final = frozenset({RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO})
_UNSIGNED: Final = "_UNIQUE_KEY_QUERY"
_ACL_EXCEPTION: Final = "org.apache.rocketmq.acl.common.AclException: "


@dataclass(frozen=True, slots=True)
class Rights:
    """What one account may do: PUB and SUB for some names, and for all others."""

    by_name: Mapping[str, int] = field(default_factory=dict)
    others: int = 0

    def of(self, name: str) -> int:
        """Give the bits for a name."""
        return self.by_name.get(name, self.others)


@dataclass(frozen=True, slots=True)
class Account:
    """One access key. `white` says of an address that it needs no signature and may do everything, with this key."""

    access_key: str
    secret_key: str = field(repr=False)
    admin: bool
    topics: Rights
    groups: Rights
    white: Callable[[str], bool]

    @property
    def is_boundless(self) -> bool:
        """Whether nothing is said of an administrator's topics and groups: he may do everything."""
        return self.admin and not self.topics.by_name and not self.groups.by_name

    def principal(self) -> Principal:
        """Give who that is for the core."""
        if self.is_boundless:
            return Principal(self.access_key)
        groups = _Groups(self.groups)
        permissions = [
            Permission(frozenset({Action.PUBLISH}), _Topics(self.topics, PUB), (EVERYTHING,)),
            Permission(frozenset({Action.SUBSCRIBE, Action.READ}), _Topics(self.topics, SUB), (groups,)),
            # What a group has sent back or given up is the group's.
            Permission(frozenset({Action.PUBLISH, Action.SUBSCRIBE, Action.READ}), _OfGroups(self.groups), (groups,)),
        ]
        if self.admin:
            permissions.append(Permission(frozenset({Action.MANAGE}), EVERYTHING, (EVERYTHING,)))
        return Principal(self.access_key, permissions=tuple(permissions))


ANYTHING: Final = Principal("white address")


@dataclass(frozen=True, slots=True)
class _Topics:
    """Topics of the core that an account has a right to, but for what belongs to groups. A `Pattern`."""

    rights: Rights
    needed: int

    def matches(self, name: str) -> bool:
        topic = to_topic(name)
        if topic is None or group_of(topic) is not None:
            return False
        return bool(self.rights.of(topic) & self.needed) or (topic == TRACE_TOPIC and self.needed == PUB)


@dataclass(frozen=True, slots=True)
class _OfGroups:
    """Retry and dead-letter topics of the groups that an account may be in. A `Pattern`."""

    rights: Rights

    def matches(self, name: str) -> bool:
        topic = to_topic(name)
        group = None if topic is None else group_of(topic)
        return group is not None and bool(self.rights.of(group) & SUB)


@dataclass(frozen=True, slots=True)
class _Groups:
    """Groups that an account may be in. A `Pattern`."""

    rights: Rights

    def matches(self, name: str) -> bool:
        return bool(self.rights.of(name) & SUB)


class AclGate:
    """Looks at every request before it is carried out, and gives it the session of who has signed it."""

    def __init__(self, accounts: Mapping[str, Account], white: Callable[[str], bool]) -> None:
        """`white`: addresses that need no key at all, and may do everything."""
        self._accounts = {key: (account, account.principal()) for key, account in accounts.items()}
        self._white = white
        # By the identity of their principals, which are kept as long as this is.
        self._sessions: dict[RocketmqClient, dict[int, Session]] = {}

    def admit(self, client: RocketmqClient, request: Request) -> Answer | None:
        """Let a request pass, or say why not."""
        if self._white(client.peer.remote_host):
            return self._enter(client, ANYTHING)
        found = self._recognize(client, request)
        if isinstance(found, str):
            # Whoever has a wrong key is told so where it matters.
            return self._enter(client, STRANGER) if request.code in _OF_EVERYBODY else _no(found)
        account, principal = found
        if principal is ANYTHING:
            return self._enter(client, ANYTHING)
        problem = _problem(account, request)
        return _no(problem) if problem else self._enter(client, principal)

    def _recognize(self, client: RocketmqClient, request: Request) -> tuple[Account, Principal] | str:
        """Find out who asks; a text says why that is nobody."""
        key = request.ext.get("AccessKey", "")
        if not key:
            return "No accessKey is configured"
        found = self._accounts.get(key)
        if found is None:
            return f"No acl config for {key}"
        account, principal = found
        if account.white(client.peer.remote_host):
            return account, ANYTHING
        return (account, principal) if _is_signed(account, request) else f"Check signature failed for accessKey={key}"

    def departed(self, client: RocketmqClient) -> None:
        """A connection has ended: so do the sessions of all who have spoken by it."""
        for session in self._sessions.pop(client, {}).values():
            session.close()

    def _enter(self, client: RocketmqClient, principal: Principal) -> Answer | None:
        """Have the request done as somebody. What he had begun before goes on as his."""
        if client.session.principal is principal:
            return None
        sessions = self._sessions.setdefault(client, {})
        sessions.setdefault(id(client.session.principal), client.session)
        session = sessions.get(id(principal))
        if session is None:
            if len(sessions) > KEYS_PER_CONNECTION_MAX:
                return _no(f"more than {KEYS_PER_CONNECTION_MAX} access keys on one connection")
            session = sessions[id(principal)] = client.house.broker.session(principal)
        client.session = session
        return None


def _is_signed(account: Account, request: Request) -> bool:
    """Say whether a request is signed with an account's secret. Who asks by key marks that by a field that may not be signed."""
    if is_signed_with(account.secret_key, request.ext, request.body):
        return True
    if _UNSIGNED not in request.ext:
        return False
    ext = {name: value for name, value in request.ext.items() if name != _UNSIGNED}
    return is_signed_with(account.secret_key, ext, request.body)


def _no(text: str) -> Answer:
    return Answer(ResponseCode.SYSTEM_ERROR, _ACL_EXCEPTION + text)


def _problem(account: Account, request: Request) -> str:
    """Say what an account must not do of a request; "" if it may do everything in it."""
    if request.code in _OF_ADMINISTRATORS and not account.admin:
        return f"Need admin permission for request code={request.code}, but accessKey={account.access_key} is not"
    if account.is_boundless:
        return ""
    needed = list(_needed(request))
    if (TRACE_TOPIC, PUB) in needed:
        return ""
    for topic, right in needed:
        group = topic.removeprefix(RETRY_PREFIX) if topic.startswith(RETRY_PREFIX) else None
        rights, name = (account.topics, topic) if group is None else (account.groups, group)
        if topic.startswith(DEAD_LETTER_PREFIX):
            # RocketMQ has these as topics like others; here they are the group's, as retry topics are.
            rights, name = account.groups, topic.removeprefix(DEAD_LETTER_PREFIX)
        if not rights.of(name) & right:
            word = "No permission for" if name in rights.by_name else "No default permission for"
            return f"{word} topic:{topic}" if group is None else f"{word} group:{group}"
    return ""


# Which fields of a request name topics and groups. A group stands for its retry topic.
_SENDS: Final[Mapping[int, str]] = {
    RequestCode.SEND_MESSAGE: "topic",
    RequestCode.SEND_REPLY_MESSAGE: "topic",
    RequestCode.SEND_MESSAGE_V2: "b",
    RequestCode.SEND_BATCH_MESSAGE: "b",
    RequestCode.SEND_REPLY_MESSAGE_V2: "b",
}
_TOPICS: Final = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.QUERY_MESSAGE,
        RequestCode.UPDATE_CONSUMER_OFFSET,
    }
)
_GROUPS: Final[Mapping[int, str]] = {
    RequestCode.PULL_MESSAGE: "consumerGroup",
    RequestCode.LITE_PULL_MESSAGE: "consumerGroup",
    RequestCode.UPDATE_CONSUMER_OFFSET: "consumerGroup",
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: "consumerGroup",
    RequestCode.UNREGISTER_CLIENT: "consumerGroup",
    RequestCode.CONSUMER_SEND_MSG_BACK: "group",
}


def _needed(request: Request) -> Iterator[tuple[str, int]]:
    """List the rights that a request needs. What its body names (heartbeats, locks) the session decides."""
    if request.code in _SENDS:
        topic = request.ext.get(_SENDS[request.code], "")
        yield topic, SUB if group_of(topic) is not None else PUB
    if request.code in _TOPICS:
        yield request.ext.get("topic", ""), SUB
    if request.code in _GROUPS:
        group = request.ext.get(_GROUPS[request.code])
        # A producer leaves with no group, or with a nameless one; nobody reads as one of a nameless group without a right to all others.
        if group or (group is not None and request.code != RequestCode.UNREGISTER_CLIENT):
            yield retry_topic(group), SUB
