"""Tests of the network over memory: order, segmentation, delays, limits, and the ways a connection ends."""

from random import Random

import pytest

from polymq.testing.clock import FakeClock
from polymq.testing.network import FakeNetwork, FakeStream, NetworkConditions

WILD = NetworkConditions(delay_ns_max=1000, window_size_bytes=100, partial_send_percent=50, partial_receive_percent=50)


def receive(stream: FakeStream, size: int = 1000) -> bytes:
    buffer = bytearray(size)
    return bytes(buffer[: stream.recv_into(buffer)])


def network(conditions: NetworkConditions | None = None) -> FakeNetwork:
    return FakeNetwork(FakeClock(), 1, conditions)


def test_bytes_arrive_in_order() -> None:
    client, server = network().pair()
    assert client.send(b"one") == 3
    client.send(b"two")
    assert receive(server) == b"onetwo"


def test_nothing_there_blocks() -> None:
    client, _ = network().pair()
    assert not client.readable
    with pytest.raises(BlockingIOError):
        receive(client)


@pytest.mark.parametrize("seed", range(20))
def test_any_segmentation_gives_the_same_bytes(seed: int) -> None:
    random = Random(seed)
    net = FakeNetwork(FakeClock(), random, WILD)
    client, server = net.pair()
    expected = random.randbytes(2000)
    left, received, reads = expected, b"", 0
    while len(received) < len(expected):
        if left and client.writable:
            left = left[client.send(left) :]
        if server.readable:
            received += receive(server)
            reads += 1
        elif server.wakes_at_ns is not None:
            net.clock.advance_to(server.wakes_at_ns)
    assert received == expected
    assert reads > 20


def test_delayed_bytes_are_not_there_before_their_time() -> None:
    net = network(NetworkConditions(delay_ns_max=1_000_000))
    client, server = net.pair()
    client.send(b"x")
    at = server.wakes_at_ns
    assert at is not None
    assert at > net.clock.monotonic_ns()
    net.clock.advance_to(at - 1)
    with pytest.raises(BlockingIOError):
        receive(server)
    net.clock.advance(1)
    assert server.readable
    assert receive(server) == b"x"


def test_a_full_window_blocks_until_the_peer_reads() -> None:
    client, server = network(NetworkConditions(window_size_bytes=4)).pair()
    assert client.send(b"abcdef") == 4
    assert not client.writable
    with pytest.raises(BlockingIOError):
        client.send(b"ef")
    receive(server, 1)
    assert client.send(b"ef") == 1


def test_end_output_is_read_after_the_rest_and_the_other_direction_goes_on() -> None:
    client, server = network().pair()
    client.send(b"x")
    client.end_output()
    assert receive(server) == b"x"
    assert receive(server) == b""
    server.send(b"y")
    assert receive(client) == b"y"
    with pytest.raises(BrokenPipeError):
        client.send(b"z")


def test_close_fails_what_the_peer_sends() -> None:
    client, server = network().pair()
    client.close()
    assert receive(server) == b""
    assert server.writable
    with pytest.raises(ConnectionResetError):
        server.send(b"x")


def test_reset_loses_what_is_under_way() -> None:
    client, server = network().pair()
    client.send(b"x")
    client.reset()
    for end in (client, server):
        assert end.readable
        assert end.writable
        with pytest.raises(ConnectionResetError):
            receive(end)
        with pytest.raises(ConnectionResetError):
            end.send(b"x")


def test_stall_keeps_back_bytes_and_end() -> None:
    net = network()
    client, server = net.pair()
    client.send(b"x")
    client.end_output()
    server.stall(500)
    assert not server.readable
    net.clock.advance(500)
    assert receive(server) == b"x"
    assert receive(server) == b""


def test_all_that_is_under_way_can_be_taken_before_it_arrives() -> None:
    client, server = network(NetworkConditions(delay_ns_max=1000)).pair()
    server.send(b"one")
    server.send(b"two")
    assert client.take_all() == b"onetwo"
    assert client.take_all() == b""
    assert client.wakes_at_ns is None
