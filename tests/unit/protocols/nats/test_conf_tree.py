"""What holds the tree says where things are, and does not show what they are."""

from __future__ import annotations

from polymq.protocols.nats.conf_tree import Place
from tests.unit.protocols.nats.conf_writer import read


def test_a_place_is_a_file_and_a_line() -> None:
    assert str(Place("/etc/nats/server.conf", 7)) == "/etc/nats/server.conf:7"


def test_values_do_not_show_themselves() -> None:
    document = read("authorization { password: planted, list: [planted], token: $planted }\n", environment={"planted": "planted2"})
    shown = [document, document.root, document.root.entries["authorization"], dict(document.root.entries)]
    assert "planted" not in "".join(map(repr, shown))
