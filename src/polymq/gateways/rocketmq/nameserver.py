"""The name server's role: who has which topic, and who is there. Answered on every port, for this node and for others.

Read next: `registry.py` (the others), `registering.py` (this node at other name servers).
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Final

import orjson

from polymq.core.access import Action
from polymq.errors import Refusal
from polymq.gateways.rocketmq.answers import SEE, Answer, RequestProblem, integer, required, truth
from polymq.gateways.rocketmq.registry import MASTER, SILENCE_NS, BrokerEntry
from polymq.protocols.rocketmq.codes import RequestCode, ResponseCode
from polymq.protocols.rocketmq.names import AUTO_CREATE_TOPIC, NOT_TO_BE_SENT_TO, is_valid_topic, to_topic
from polymq.protocols.rocketmq.registration import DataVersion, RegistrationProblem, parse_registration
from polymq.rocketmq_limits import (
    NAMED_SILENCE_NS_MAX,
    NAMED_VERSION_SIZE_BYTES_MAX,
    REGISTRATION_NAME_SIZE_MAX,
    TOPIC_LIST_MAX,
    TOPIC_LISTS_REMEMBERED_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from polymq.gateways.rocketmq.answers import Handler
    from polymq.gateways.rocketmq.client import RocketmqClient
    from polymq.protocols.rocketmq.events import Request

__all__ = ["HANDLERS", "NO_ROUTE", "own_address"]

# Read, write, and (the template) inherited by new topics.
_PERM: Final = 6
_PERM_TEMPLATE: Final = 7
NO_ROUTE: Final = "No topic route info in name server for the topic: %s" + SEE
_ADDRESS: Final = re.compile(r"[\[\]A-Za-z0-9._:-]{1,255}:[0-9]{1,5}")
_NAME: Final = re.compile(r"[ -~]+")
_NS_PER_MS: Final = 1_000_000
_CRC_MASK: Final = 0x7FFFFFFF


def own_address(client: RocketmqClient) -> str:
    """Say where the peer of a connection finds this broker: as the settings say, or where it has come in."""
    facts = client.house.facts
    host = facts.host or client.peer.local_host or client.own_host
    return f"[{host}]:{facts.port}" if ":" in host else f"{host}:{facts.port}"


# -- routes ----------------------------------------------------------------------------------------------------------


def _route(client: RocketmqClient, request: Request) -> Answer:
    """105: where a topic is; it is made first, if the settings say so."""
    topic = request.ext.get("topic")
    if topic is None:
        return Answer(ResponseCode.TOPIC_NOT_EXIST, NO_ROUTE % "null")
    registry = client.house.registry
    masters = registry.masters(topic)
    queues, made = _own_queues(client, topic, elsewhere=bool(masters))
    if not queues and not masters:
        return Answer(ResponseCode.TOPIC_NOT_EXIST, NO_ROUTE % topic)
    facts = client.house.facts
    brokers = {entry.name: _broker(entry.name, entry.cluster, registry.addresses(entry.name)) for entry in masters}
    shares = {entry.name: entry.topics[topic] for entry in masters}
    told = [_queues(name, share.read_queues, share.write_queues, share.perm, share.sys_flag) for name, share in shares.items()]
    if queues:
        brokers[facts.broker_name] = _broker(facts.broker_name, facts.cluster, {MASTER: own_address(client)})
        told.append(_queues(facts.broker_name, queues, queues, _PERM_TEMPLATE if topic == AUTO_CREATE_TOPIC else _PERM))
    body = {"brokerDatas": list(brokers.values()), "filterServerTable": {}, "queueDatas": told}
    return Answer(body=orjson.dumps(body), ticket=client.session.journaled() if made else None)


def _own_queues(client: RocketmqClient, topic: str, *, elsewhere: bool) -> tuple[int, bool]:
    """Say how many queues this node has of a topic, and whether they were made just now."""
    house = client.house
    if topic == AUTO_CREATE_TOPIC:
        return (house.topics.likeness_queues() if house.auto_create_topics else 0), False
    found = house.topics.queues(client.session, topic) if is_valid_topic(topic) else 0
    if found is not None:
        return found, False
    if topic in _fixed_topics(client):
        return 1, False
    if elsewhere or not house.auto_create_on_route:
        return 0, False
    try:
        return house.topics.ensure(client.session, topic), True
    except Refusal:
        return 0, False


def _fixed_topics(client: RocketmqClient) -> frozenset[str]:
    """List what always has a route and is stored only if somebody makes it: RocketMQ's own topics, and where replies go."""
    facts = client.house.facts
    return NOT_TO_BE_SENT_TO | {facts.cluster, facts.broker_name, f"{facts.cluster}_REPLY_TOPIC"}


def _broker(name: str, cluster: str, addresses: Mapping[int, str]) -> dict[str, object]:
    return {"brokerAddrs": {str(key): addresses[key] for key in sorted(addresses)}, "brokerName": name, "cluster": cluster}


def _queues(name: str, read: int, write: int, perm: int, sys_flag: int = 0) -> dict[str, object]:
    return {"brokerName": name, "perm": perm, "readQueueNums": read, "topicSysFlag": sys_flag, "writeQueueNums": write}


# -- lists -----------------------------------------------------------------------------------------------------------


def _clusters(client: RocketmqClient, _request: Request) -> Answer:
    """106: every broker, by name and by cluster."""
    facts, registry = client.house.facts, client.house.registry
    table = {facts.broker_name: _broker(facts.broker_name, facts.cluster, {MASTER: own_address(client)})}
    clusters = {facts.cluster: {facts.broker_name: None}}
    for entry in registry.brokers():
        table[entry.name] = _broker(entry.name, entry.cluster, registry.addresses(entry.name))
        clusters.setdefault(entry.cluster, {})[entry.name] = None
    body = {"brokerAddrTable": table, "clusterAddrTable": {cluster: list(names) for cluster, names in clusters.items()}}
    return Answer(body=orjson.dumps(body))


def _own_topics(client: RocketmqClient) -> list[str]:
    """List this node's topics, as RocketMQ spells them, but no more than may be told at once."""
    names = client.house.broker.catalogue.names.page(client.session.principal.namespace, "", TOPIC_LIST_MAX + 1)
    return [topic for topic in map(to_topic, names) if topic is not None]


def _list_answer(names: Iterable[str]) -> Answer:
    found = list(dict.fromkeys(names))
    shown = found[:TOPIC_LIST_MAX]
    remark = f"only the first {TOPIC_LIST_MAX} topics: there are more" if len(found) > TOPIC_LIST_MAX else None
    return Answer(remark=remark, body=orjson.dumps({"topicList": shown}))


def _topics(client: RocketmqClient, _request: Request) -> Answer:
    """206: every topic, here and elsewhere. Worked out anew only when there are others: a list can take 10 ms."""
    house = client.house
    names, registry, namespace = house.broker.catalogue.names, house.registry, client.session.principal.namespace
    state = (names.changes, registry.changes, house.auto_create_topics)
    told = registry.told.get(namespace)
    if told is None or told[0] != state:
        template = [AUTO_CREATE_TOPIC] if house.auto_create_topics else []
        answer = _list_answer([*template, *_own_topics(client), *registry.some_topics(TOPIC_LIST_MAX + 1)])
        if len(registry.told) >= TOPIC_LISTS_REMEMBERED_MAX:
            registry.told.clear()
        told = registry.told[namespace] = (state, answer)
    return told[1]


def _topics_of_cluster(client: RocketmqClient, request: Request) -> Answer:
    """224: every topic of one cluster."""
    cluster = request.ext.get("cluster")
    own = _own_topics(client) if cluster == client.house.facts.cluster else []
    others = client.house.registry.some_topics(TOPIC_LIST_MAX + 1, cluster) if cluster else []
    return _list_answer([*own, *others])


def _system_topics(client: RocketmqClient, _request: Request) -> Answer:
    """304: topics that come of themselves with clusters and brokers."""
    facts = client.house.facts
    names = dict.fromkeys((facts.cluster, facts.broker_name))
    for entry in client.house.registry.brokers():
        names |= dict.fromkeys((entry.cluster, entry.name))
    return Answer(body=orjson.dumps({"brokerAddr": own_address(client), "topicList": list(names)}))


# -- other brokers ---------------------------------------------------------------------------------------------------


def _require_manager(client: RocketmqClient) -> None:
    """Raise RequestProblem unless whoever asks may change what everybody sees."""
    if not client.session.principal.may_everywhere(Action.MANAGE):
        raise RequestProblem(ResponseCode.NO_PERMISSION, "registering brokers needs an administrator's key, or a global white address")


def _named(request: Request) -> tuple[str, int, str, str]:
    """Read who registers: name, id, address, cluster. Raises RequestProblem."""
    name, cluster, address = (required(request, key) for key in ("brokerName", "clusterName", "brokerAddr"))
    broker_id = integer(request, "brokerId")
    for key, text, pattern in (("brokerName", name, _NAME), ("clusterName", cluster, _NAME), ("brokerAddr", address, _ADDRESS)):
        if len(text) > REGISTRATION_NAME_SIZE_MAX or not pattern.fullmatch(text):
            raise RequestProblem(ResponseCode.SYSTEM_ERROR, f"the custom field <{key}> is illegal")
    if broker_id < 0:
        raise RequestProblem(ResponseCode.SYSTEM_ERROR, "the custom field <brokerId> is negative")
    return name, broker_id, address, cluster


def _register(client: RocketmqClient, request: Request) -> Answer:
    """103: another broker says where it is and what it has."""
    _require_manager(client)
    name, broker_id, address, cluster = _named(request)
    house = client.house
    if name == house.facts.broker_name:
        words = f"this name server is itself the broker {name}: give the other one a name of its own (or do not have it register here)"
        raise RequestProblem(ResponseCode.SYSTEM_ERROR, words)
    told_crc = integer(request, "bodyCrc32", 0)
    if told_crc and told_crc != zlib.crc32(request.body) & _CRC_MASK:
        return Answer(ResponseCode.SYSTEM_ERROR, "crc32 not match")
    try:
        registration = parse_registration(request.body, compressed=truth(request, "compressed"))
    except RegistrationProblem as problem:
        return Answer(ResponseCode.SYSTEM_ERROR, f"Failed to decode RegisterBrokerBody: {problem}")
    silence_ns = integer(request, "heartbeatTimeoutMillis", 0) * _NS_PER_MS
    entry = BrokerEntry(
        name,
        broker_id,
        cluster,
        address,
        request.ext.get("haServerAddr", "")[:REGISTRATION_NAME_SIZE_MAX],
        client,
        house.clock.monotonic_ns(),
        min(silence_ns, NAMED_SILENCE_NS_MAX) if silence_ns > 0 else SILENCE_NS,
    )
    refused = house.registry.register(entry, registration)
    if refused is None:
        return Answer(ResponseCode.SYSTEM_ERROR, "this name server has as many brokers as it can keep")
    left_out = refused + registration.skipped
    master = house.registry.addresses(name).get(MASTER, "") if broker_id != MASTER else ""
    ext = {"masterAddr": master} if master else {}
    return Answer(remark=f"{left_out} topics are left out: illegal, or too many" if left_out else None, ext=ext)


def _unregister(client: RocketmqClient, request: Request) -> Answer:
    """104: another broker goes."""
    _require_manager(client)
    name, broker_id, address, _ = _named(request)
    client.house.registry.unregister(name, broker_id, address)
    return Answer()


def _query_version(client: RocketmqClient, request: Request) -> Answer:
    """322: whether another broker has to register anew; a sign of life as well."""
    _require_manager(client)
    name, broker_id, address, _ = _named(request)
    if len(request.body) > NAMED_VERSION_SIZE_BYTES_MAX:
        return Answer(ResponseCode.SYSTEM_ERROR, f"a version of more than {NAMED_VERSION_SIZE_BYTES_MAX} bytes")
    try:
        asked = DataVersion.of(orjson.loads(request.body or b"null"))
    except orjson.JSONDecodeError:
        return Answer(ResponseCode.SYSTEM_ERROR, "the body is no version")
    known = client.house.registry.heard(name, broker_id, address)
    ext = {"changed": "false" if known == asked else "true"}
    return Answer(ext=ext, body=b"" if known is None else orjson.dumps(known.fields()))


def _delete_topic(client: RocketmqClient, request: Request) -> Answer:
    """216: a topic is gone everywhere. This node's own is not touched: 215 deletes that."""
    _require_manager(client)
    client.house.registry.delete_topic(required(request, "topic"))
    return Answer()


# -- configuration that nobody has put there -------------------------------------------------------------------------


def _no_value(_client: RocketmqClient, request: Request) -> Answer:
    """101: there are no values."""
    namespace, key = request.ext.get("namespace", "null"), request.ext.get("key", "null")
    return Answer(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace} Key: {key}")


def _no_values(_client: RocketmqClient, request: Request) -> Answer:
    """219: there are no values."""
    return Answer(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {request.ext.get('namespace', 'null')}")


HANDLERS: Final[dict[int, Handler]] = {
    RequestCode.GET_KV_CONFIG: _no_value,
    RequestCode.REGISTER_BROKER: _register,
    RequestCode.UNREGISTER_BROKER: _unregister,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: _route,
    RequestCode.GET_BROKER_CLUSTER_INFO: _clusters,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _topics,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: _delete_topic,
    RequestCode.GET_KVLIST_BY_NAMESPACE: _no_values,
    RequestCode.GET_TOPICS_BY_CLUSTER: _topics_of_cluster,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: _system_topics,
    RequestCode.QUERY_DATA_VERSION: _query_version,
}
