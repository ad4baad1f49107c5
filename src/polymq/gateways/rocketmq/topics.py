"""Topics: what they are called in the core, making them, and the requests that change them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.core.access import Action
from polymq.errors import Refusal, RefusalCode
from polymq.gateways.rocketmq.answers import SEE, Answer, RequestProblem, failed, required, small
from polymq.protocols.rocketmq.codes import RequestCode, ResponseCode
from polymq.protocols.rocketmq.header import dump_json
from polymq.protocols.rocketmq.names import group_of, is_system_topic, to_core, topic_problem
from polymq.protocols.rocketmq.places import Place
from polymq.rocketmq_limits import PLACES_REMEMBERED_MAX, QUEUES_PER_TOPIC_MAX, TOPICS_REMEMBERED_MAX

if TYPE_CHECKING:
    from polymq.core.session import Session
    from polymq.gateways.rocketmq.answers import Handler
    from polymq.gateways.rocketmq.client import RocketmqClient
    from polymq.gateways.rocketmq.house import House
    from polymq.protocols.rocketmq.events import Request

__all__ = ["HANDLERS", "Topics", "no_topic"]

# Of a group's retry and dead-letter topics, as the real broker has it.
_QUEUES_OF_GROUPS_TOPICS: Final = 1
# As the real broker has it.
_LIKENESS_QUEUES: Final = 8


class Topics:
    """Names and queues of topics, for all connections. What is remembered can be worked out again."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._core_names: dict[str, str] = {}
        self._sent_to: dict[str, tuple[str, int]] = {}
        self._places: dict[tuple[str, int, int, bytes], Place] = {}

    def core_name(self, topic: str) -> str:
        """Name the topic of the core; raises RequestProblem if no topic can be called that."""
        found = self._core_names.get(topic)
        if found is None:
            problem = topic_problem(topic)
            if problem is not None:
                raise RequestProblem(ResponseCode.SYSTEM_ERROR, problem)
            if len(self._core_names) >= TOPICS_REMEMBERED_MAX:
                self._core_names.clear()
            found = self._core_names[topic] = to_core(topic)
        return found

    def sent_to(self, topic: str) -> tuple[str, int]:
        """Name the topic of the core that a valid topic stands for, and say how many queues it gets if it is not there; 0: none is made."""
        found = self._sent_to.get(topic)
        if found is None:
            if len(self._sent_to) >= TOPICS_REMEMBERED_MAX:
                self._sent_to.clear()
            found = self._sent_to[topic] = (self.core_name(topic), self._usual_queues(topic))
        return found if self._house.auto_create_topics else (found[0], 0)

    def place(self, topic: str, queue_id: int, number: int, host: bytes) -> Place:
        """Say where the messages of a queue are, for those who know the broker by this address."""
        key = (topic, queue_id, number, host)
        found = self._places.get(key)
        if found is None:
            if len(self._places) >= PLACES_REMEMBERED_MAX:
                self._places.clear()
            facts = self._house.facts
            found = self._places[key] = Place(topic.encode(), queue_id, number, host, facts.port, self._house.settings.region.encode())
        return found

    def new_queues(self, topic: str) -> int:
        """Say how many queues a topic gets that somebody uses; 0: it is not made then."""
        return self._usual_queues(topic) if self._house.auto_create_topics else 0

    def _usual_queues(self, topic: str) -> int:
        return self._house.facts.queues if group_of(topic) is None else _QUEUES_OF_GROUPS_TOPICS

    def asked_for(self, usual: int, asked: int) -> int:
        """Say how many queues a topic gets that somebody sends to who asks for so many: those, in reason; 0 or fewer: as many as usual."""
        return min(asked, self.likeness_queues()) if asked > 0 else usual

    def likeness_queues(self) -> int:
        """Say how many queues TBW102 has, after whose likeness topics are made: no topic that a producer asks for gets more."""
        return max(_LIKENESS_QUEUES, self._house.facts.queues)

    def ensure(self, session: Session, topic: str, queues: int = 0, *, action: Action = Action.PUBLISH) -> int:
        """Make a topic if it is not there, for who may do `action` with it; gives how many queues it has. Raises Refusal, RequestProblem."""
        name = self.core_name(topic)
        made = queues or self._usual_queues(topic)
        session.ensure_topic(name, partitions=min(made, QUEUES_PER_TOPIC_MAX), action=action)
        return len(session.broker.catalogue.topics[session.principal.namespace, name].partitions)

    def queues(self, session: Session, topic: str) -> int | None:
        """Say how many queues a topic has; None: there is no such topic. Raises RequestProblem."""
        found = session.broker.catalogue.topics.get((session.principal.namespace, self.core_name(topic)))
        return None if found is None else len(found.partitions)


def no_topic(topic: str, *, gap: str = "") -> Answer:
    """Say that a topic is not there; the real broker leaves a gap where it is pulled from."""
    return Answer(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!{gap}{SEE}")


def _is_reserved(client: RocketmqClient, topic: str) -> bool:
    """Say whether a topic is the broker's own, which it has for its own name and its cluster's as well."""
    return is_system_topic(topic) or topic in {client.house.facts.cluster, client.house.facts.broker_name}


def _change(client: RocketmqClient, request: Request) -> Answer:
    """Make a topic, or give one more queues. None are taken away, which the answer says, and whatever else is asked for is as it is."""
    topic, kind = request.ext.get("topic", ""), request.ext.get("topicFilterType", "null")
    topics, session = client.house.topics, client.session
    if kind not in {"SINGLE_TAG", "MULTI_TAG"}:
        return failed(f"topicFilterType = [{kind}] value invalid")
    name = topics.core_name(topic)
    if _is_reserved(client, topic):
        return failed(f"The topic[{topic}] is conflict with system topic.")
    small(request, "perm")
    wanted = max(small(request, "readQueueNums"), small(request, "writeQueueNums"))
    if not 0 < wanted <= QUEUES_PER_TOPIC_MAX:
        return failed(f"a topic has 1 to {QUEUES_PER_TOPIC_MAX} queues")
    session.create_topic(name, partitions=wanted)
    queues = topics.queues(session, topic) or 0
    if wanted > queues:
        session.add_partitions(name, wanted - queues)
    remark = f"topic {topic} has {queues} queues, and none are taken away here" if wanted < queues else None
    return Answer(remark=remark, ticket=session.journaled())


def _delete(client: RocketmqClient, request: Request) -> Answer:
    topic = required(request, "topic")
    if _is_reserved(client, topic):
        return failed(f"The topic[{topic}] is conflict with system topic.")
    try:
        client.session.delete_topic(client.house.topics.core_name(topic))
    except Refusal as refusal:
        if refusal.code is not RefusalCode.TOPIC_NOT_FOUND:
            raise
        return Answer()
    return Answer(ticket=client.session.journaled())


def _show(client: RocketmqClient, request: Request) -> Answer:
    topic = required(request, "topic")
    session, name = client.session, client.house.topics.core_name(topic)
    try:
        queues = session.partition_count(name)
    except Refusal as refusal:
        if refusal.code is not RefusalCode.TOPIC_NOT_FOUND:
            raise
        return Answer(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
    config = {
        "order": False,
        "perm": 6,
        "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": topic,
        "topicSysFlag": 0,
        "writeQueueNums": queues,
    }
    return Answer(body=dump_json(config))


HANDLERS: Final[dict[int, Handler]] = {
    RequestCode.UPDATE_AND_CREATE_TOPIC: _change,
    RequestCode.DELETE_TOPIC_IN_BROKER: _delete,
    RequestCode.GET_TOPIC_CONFIG: _show,
}
