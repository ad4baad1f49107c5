"""Heartbeats and what else is asked about groups: 34, 35, 38 and 207.

The real broker's answers: 34 says only that all went well, and what it cannot register is not registered; 35 never
fails; 38 of a group without members is an error.

Source: RocketMQ 4.9.8, ClientManageProcessor, ConsumerManageProcessor. Read next: `members.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.core.group import GroupKind
from polymq.errors import Refusal
from polymq.gateways.rocketmq.answers import Answer, RequestProblem, required, truth
from polymq.gateways.rocketmq.joining import read_body, require_group
from polymq.gateways.rocketmq.members import Joining, Subscription
from polymq.protocols.rocketmq.bodies import parse_heartbeat
from polymq.protocols.rocketmq.codes import Language, RequestCode, ResponseCode
from polymq.protocols.rocketmq.names import is_valid_group, is_valid_topic, retry_topic, tag_hash, to_core
from polymq.rocketmq_limits import (
    CLIENT_ID_SIZE_MAX,
    EXPRESSION_SIZE_MAX,
    GROUPS_DELETED_PER_REQUEST_MAX,
    GROUPS_PER_HEARTBEAT_MAX,
    HASHED_SIZE_PER_HEARTBEAT_MAX,
    SUBSCRIPTIONS_PER_HEARTBEAT_MAX,
    TAGS_PER_SUBSCRIPTION_MAX,
)

if TYPE_CHECKING:
    from polymq.gateways.rocketmq.answers import Handler
    from polymq.gateways.rocketmq.client import RocketmqClient
    from polymq.protocols.rocketmq.bodies import ConsumerData, Heartbeat
    from polymq.protocols.rocketmq.bodies import Subscription as Said
    from polymq.protocols.rocketmq.events import Request

__all__ = ["HANDLERS"]

_TAG: Final = "TAG"
_EVERYTHING: Final = frozenset({"", "*"})
_CLUSTERING: Final = "CLUSTERING"
_RETRY_QUEUES: Final = 1
# Words that are kept and shown: the longest real one has 58 characters.
_WORD_SIZE_MAX: Final = 64


def _heartbeat(client: RocketmqClient, request: Request) -> Answer:
    """Register a client in all its groups; nothing of it if it may not join one of them."""
    heartbeat = read_body(request, parse_heartbeat)
    if not heartbeat.client_id:
        return Answer()
    if len(heartbeat.client_id) > CLIENT_ID_SIZE_MAX:
        raise RequestProblem(ResponseCode.SYSTEM_ERROR, f"a client id has at most {CLIENT_ID_SIZE_MAX} characters")
    if len(heartbeat.producers) + len(heartbeat.consumers) > GROUPS_PER_HEARTBEAT_MAX:
        raise RequestProblem(ResponseCode.SYSTEM_ERROR, f"more than {GROUPS_PER_HEARTBEAT_MAX} groups in one heartbeat")
    if sum(len(said.subscriptions) for said in heartbeat.consumers) > SUBSCRIPTIONS_PER_HEARTBEAT_MAX:
        raise RequestProblem(ResponseCode.SYSTEM_ERROR, f"more than {SUBSCRIPTIONS_PER_HEARTBEAT_MAX} subscriptions in one heartbeat")
    if sum(_size(each) for said in heartbeat.consumers for each in said.subscriptions if not each.codes) > HASHED_SIZE_PER_HEARTBEAT_MAX:
        words = f"more than {HASHED_SIZE_PER_HEARTBEAT_MAX} characters of tags without their hashes in one heartbeat"
        raise RequestProblem(ResponseCode.SYSTEM_ERROR, words)
    consumers = [said for said in heartbeat.consumers if is_valid_group(said.group)]
    for said in consumers:
        require_group(client.session, said.group, (each.topic for each in said.subscriptions))
    problem = _produce(client, request, heartbeat)
    for said in consumers:
        problem = _consume(client, request, heartbeat.client_id, said) or problem
    return Answer() if problem is None else Answer(ResponseCode.SYSTEM_ERROR, problem)


def _produce(client: RocketmqClient, request: Request, heartbeat: Heartbeat) -> str | None:
    """Register a producer's groups; gives a problem."""
    problem, language = None, _language(request.language)
    for group in heartbeat.producers:
        if is_valid_group(group):
            joined = client.house.members.produce(heartbeat.client_id, client, group, language=language, version=request.version)
            problem = joined or problem
    return problem


def _consume(client: RocketmqClient, request: Request, client_id: str, said: ConsumerData) -> str | None:
    """Register a consumer in one group, and make the topic of what the group will send back; gives a problem."""
    problem = _excess(said) or _clash(client, said)
    if problem is not None:
        return problem
    wanted = {each.topic: _subscription(each) for each in said.subscriptions if is_valid_topic(each.topic)}
    members = client.house.members
    known = members.group(said.group)
    if said.message_model == _CLUSTERING and known is None:
        try:
            client.house.topics.ensure(client.house.inner, retry_topic(said.group), _RETRY_QUEUES)
        except Refusal as refusal:
            return refusal.text
    kind, model, begin = (word[:_WORD_SIZE_MAX] for word in (said.consume_type, said.message_model, said.consume_from_where))
    joining = Joining(said.group, kind, model, begin, wanted)
    return members.join(client_id, client, joining, language=_language(request.language), version=request.version)


def _size(said: Said) -> int:
    """Count the characters in which a subscription is said."""
    return max(len(said.expression), sum(map(len, said.tags)))


def _excess(said: ConsumerData) -> str | None:
    """Say what there is too much of in a subscription, before it is looked at closely."""
    for each in said.subscriptions:
        if max(len(each.codes), len(each.tags), each.expression.count("||") + 1) > TAGS_PER_SUBSCRIPTION_MAX:
            return f"more than {TAGS_PER_SUBSCRIPTION_MAX} tags in one subscription of group {said.group}"
        if _size(each) > EXPRESSION_SIZE_MAX:
            return f"more than {EXPRESSION_SIZE_MAX} characters in one subscription of group {said.group}"
    return None


def _clash(client: RocketmqClient, said: ConsumerData) -> str | None:
    """Say which group of another kind has the name already, at one of the topics."""
    session, topics = client.session, client.house.broker.catalogue.topics
    for each in said.subscriptions:
        topic = topics.get((session.principal.namespace, to_core(each.topic)))
        group = None if topic is None else topic.groups.get(said.group)
        if group is not None and group.kind is not GroupKind.CURSOR:
            kind = "a work group (an NSQ channel)" if group.kind is GroupKind.WORK else "a group of another kind"
            return f"group {said.group} of topic {each.topic} is {kind}: consumers of RocketMQ need another name"
    return None


def _subscription(said: Said) -> Subscription:
    """Work out which tags are wanted, as the real broker reads it: the client's hashes, if it has given any."""
    everything = said.class_filter or said.expression in _EVERYTHING or said.expression_type not in ("", _TAG)
    codes = None
    if not everything:
        tags = said.tags or tuple(tag.strip() for tag in said.expression.split("||"))
        codes = frozenset(said.codes or (tag_hash(tag) for tag in tags if tag))
    return Subscription(said.topic, said.expression, said.expression_type[:_WORD_SIZE_MAX], said.version, codes, said.class_filter)


def _language(number: int) -> str:
    try:
        return Language(number).name
    except ValueError:
        return Language.OTHER.name


def _unregister(client: RocketmqClient, request: Request) -> Answer:
    """Let a client go from a group of each kind."""
    ext = request.ext
    client.house.members.leave(
        ext.get("clientID", ""), client, consumers=ext.get("consumerGroup", ""), producers=ext.get("producerGroup", "")
    )
    return Answer()


def _consumer_list(client: RocketmqClient, request: Request) -> Answer:
    """Name the members of a group, for everybody in the same order."""
    name = required(request, "consumerGroup")
    if is_valid_group(name):
        require_group(client.session, name)
    group = client.house.members.group(name)
    if group is None:
        return Answer(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
    return Answer(body=group.consumer_list())


def _delete_group(client: RocketmqClient, request: Request) -> Answer:
    """Forget where a group is in each topic, if that is asked for, so that its topics need not wait for it any more."""
    name = required(request, "groupName")
    if not is_valid_group(name):
        return Answer()
    # As 4.9 calls it, and as 5.x does.
    if not (truth(request, "removeOffset") or truth(request, "cleanOffset")):
        return Answer()
    session = client.session
    left = GROUPS_DELETED_PER_REQUEST_MAX
    for (namespace, topic), found in list(client.house.broker.catalogue.topics.items()):
        group = found.groups.get(name)
        if namespace != session.principal.namespace or group is None or group.kind is not GroupKind.CURSOR:
            continue
        if not left:
            return Answer(
                ResponseCode.SYSTEM_BUSY,
                f"group {name} is gone from {GROUPS_DELETED_PER_REQUEST_MAX} topics: ask again",
                ticket=session.journaled(),
            )
        session.delete_group(topic, name)
        left -= 1
    return Answer(ticket=session.journaled())


HANDLERS: Final[dict[int, Handler]] = {
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.UNREGISTER_CLIENT: _unregister,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _consumer_list,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _delete_group,
}
