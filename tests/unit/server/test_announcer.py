from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.config_values import TcpAddress
from polymq.protocols.nsqlookup.encode import response
from polymq.protocols.nsqlookup.identify import Identity, write_identity
from polymq.server.announcer import Announcer
from tests.unit.server.fake_dialer import FakeDialer
from tests.unit.server.fakes import World

if TYPE_CHECKING:
    import pytest

    from polymq.core.followers import CatalogueListener

SECOND_NS = 1_000_000_000
NODE = Identity("node", "vm", http_port=4151, tcp_port=4150)
DIRECTORY = Identity("directory", "vm", http_port=4161, tcp_port=4160)


class Catalogue:
    """A broker with one topic."""

    def __init__(self) -> None:
        self.followers: list[CatalogueListener] = []

    def follow(self, listener: CatalogueListener) -> None:
        self.followers.append(listener)

    def unfollow(self, listener: CatalogueListener) -> None:
        if listener in self.followers:
            self.followers.remove(listener)

    def tell(self, listener: CatalogueListener) -> None:
        listener.topic_created("", "t")


class Story:
    def __init__(self) -> None:
        self.world = World()
        self.dialer = FakeDialer(self.world.pump)
        self.catalogue = Catalogue()
        self.announcer = Announcer(self.dialer, self.world.pump, self.world.clock, self.catalogue, NODE)

    def wait(self, seconds: float) -> None:
        self.world.pass_time(int(seconds * SECOND_NS))


def test_each_directory_is_called_and_told() -> None:
    story = Story()
    story.announcer.announce_to(["one.invalid:4160", "two.invalid:4160", "one.invalid:4160"])
    assert [dial.address for dial in story.dialer.dials] == [TcpAddress("one.invalid", 4160), TcpAddress("two.invalid", 4160)]
    stream, connection = story.dialer.dials[0].connect()
    story.world.turn()
    assert stream.outgoing.startswith(b"  V1IDENTIFY\n")
    assert story.announcer.known() == []
    story.world.send(connection, response(write_identity(DIRECTORY)))
    assert stream.outgoing.endswith(b"REGISTER t\n")
    assert story.announcer.known() == [DIRECTORY]
    assert len(story.catalogue.followers) == 1


def test_a_directory_that_is_gone_is_called_again_and_told_everything_again() -> None:
    story = Story()
    story.announcer.announce_to(["one.invalid:4160"])
    for pause_s in (1, 2, 4, 8, 15, 15):
        [dial] = story.dialer.open
        dial.fail()
        story.wait(pause_s - 0.1)
        assert story.dialer.open == []
        story.wait(0.1)
    stream, connection = story.dialer.open[0].connect()
    story.world.send(connection, response(write_identity(DIRECTORY)), response(b"OK"))
    stream.input_ended = True
    story.world.pump.readable(connection)
    story.world.turn()
    assert story.announcer.known() == []
    assert story.catalogue.followers == []
    story.wait(1)
    stream, connection = story.dialer.open[0].connect()
    story.world.send(connection, response(write_identity(DIRECTORY)))
    assert stream.outgoing.endswith(b"REGISTER t\n")


def test_a_directory_that_says_who_it_is_and_then_nonsense_is_called_ever_more_slowly(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    story = Story()
    story.announcer.announce_to(["one.invalid:4160"])
    for pause_s in (1, 2, 4, 8, 15, 15):
        _, connection = story.dialer.open[0].connect()
        story.world.send(connection, response(write_identity(DIRECTORY)))
        story.world.send(connection, response(b"E_INVALID REGISTER limit of 7 registrations reached"))
        story.world.turn()
        story.wait(pause_s - 0.1)
        assert story.dialer.open == []
        story.wait(0.1)
    assert caplog.messages == [
        "nsqlookupd one.invalid:4160: it refuses a command: 'E_INVALID REGISTER limit of 7 registrations reached'; trying again"
    ]
    _, connection = story.dialer.open[0].connect()
    story.world.send(connection, response(write_identity(DIRECTORY)), response(b"OK"))
    assert caplog.messages[1:] == ["announced to nsqlookupd directory:4160", "nsqlookupd one.invalid:4160: connected again"]


def test_the_list_changes_at_run_time() -> None:
    story = Story()
    story.announcer.announce_to(["one.invalid:4160", "two.invalid:4160"])
    first, second = story.dialer.dials
    stream, connection = first.connect()
    story.world.send(connection, response(write_identity(DIRECTORY)))
    story.announcer.announce_to(["three.invalid:4160", "two.invalid:4160"])
    story.world.turn()
    assert stream.output_ended
    assert not second.cancelled
    assert [dial.address.host for dial in story.dialer.open if isinstance(dial.address, TcpAddress)] == ["two.invalid", "three.invalid"]
    assert story.catalogue.followers == []
    story.announcer.stop()
    assert story.dialer.open == []
    story.wait(100)
    assert story.dialer.open == []


def test_one_that_was_removed_may_come_back() -> None:
    story = Story()
    story.announcer.announce_to(["one.invalid:4160"])
    story.announcer.announce_to([])
    story.announcer.announce_to(["one.invalid:4160"])
    assert len(story.dialer.open) == 1


def test_what_is_no_address_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    story = Story()
    story.announcer.announce_to(["", "nonsense", "off", "one.invalid:4160"])
    assert len(story.dialer.open) == 1
    assert [message.partition(" cannot")[0] for message in caplog.messages] == [
        "nsqlookupd ''",
        "nsqlookupd 'nonsense'",
        "nsqlookupd 'off'",
    ]
