from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from polymq.config_values import Address, TcpAddress, UnixAddress
from polymq.server.network import SocketListener, own_addresses

if TYPE_CHECKING:
    from pathlib import Path


def connect(listener: SocketListener) -> socket.socket:
    kind, _, path = listener.address.partition(":")
    if kind == "unix":
        client = socket.socket(socket.AF_UNIX)
        client.connect(path)
        return client
    host, _, port = listener.address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)))


def addresses(folder: Path) -> list[Address]:
    return [TcpAddress("127.0.0.1", 0), TcpAddress("::1", 0), TcpAddress("localhost", 0), UnixAddress(str(folder / "socket"))]


@pytest.mark.parametrize("which", range(4))
def test_a_connection_in_both_directions(which: int, tmp_path: Path) -> None:
    listener = SocketListener(addresses(tmp_path)[which], backlog=5)
    with pytest.raises(BlockingIOError):
        listener.accept()
    with connect(listener) as client:
        stream, peer = listener.accept()
        assert peer.listener == listener.address
        assert peer.host
        buffer = memoryview(bytearray(10))
        with pytest.raises(BlockingIOError):
            stream.recv_into(buffer)
        client.sendall(b"hello")
        assert stream.recv_into(buffer) == 5
        assert stream.send(memoryview(b"world")) == 5
        stream.end_output()
        assert client.recv(10) == b"world"
        assert client.recv(10) == b""
        stream.close()
    listener.close()


def test_every_interface_of_both_versions() -> None:
    listener = SocketListener(TcpAddress("::", 0), backlog=5)
    port = int(listener.address.rpartition(":")[2])
    for host in ("127.0.0.1", "::1"):
        with socket.create_connection((host, port)):
            stream, peer = listener.accept()
            assert peer.host == host, "nobody has to know that the listener is one of IPv6"
            stream.close()
    listener.close()


def test_answers_are_not_held_back_by_the_system() -> None:
    listener = SocketListener(TcpAddress("127.0.0.1", 0), backlog=5)
    with connect(listener):
        stream, peer = listener.accept()
        assert stream._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert peer.port > 0
        stream.close()
    listener.close()


def test_a_socket_file_that_was_left_behind_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    listener = SocketListener(UnixAddress(str(path)), backlog=5)
    with pytest.raises(OSError, match="in use"):
        SocketListener(UnixAddress(str(path)), backlog=5)
    listener.close()
    assert not path.exists()


def test_a_file_that_is_no_socket_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "letter"
    path.write_text("dear")
    with pytest.raises(OSError, match="in use"):
        SocketListener(UnixAddress(str(path)), backlog=5)
    assert path.read_text() == "dear"


def test_an_address_that_is_taken_is_an_error() -> None:
    listener = SocketListener(TcpAddress("127.0.0.1", 0), backlog=5)
    port = int(listener.address.rpartition(":")[2])
    with pytest.raises(OSError, match="in use"):
        SocketListener(TcpAddress("127.0.0.1", port), backlog=5)
    listener.close()


def test_this_machine_has_an_address() -> None:
    found = own_addresses()
    assert found
    assert len(found) == len(set(found))
    assert found == ("127.0.0.1",) or not any(host.startswith("127.") for host in found)


def test_a_peer_that_has_vanished_is_noticed() -> None:
    listener = SocketListener(TcpAddress("127.0.0.1", 0), backlog=5)
    with connect(listener):
        stream, _ = listener.accept()
        accepted = socket.socket(fileno=socket.dup(stream.fileno()))
        with accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            if hasattr(socket, "TCP_KEEPIDLE"):
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
        stream.close()
    listener.close()
