"""Layers on top of one another."""

from __future__ import annotations

from polymq.wire.layers import LayerStack
from tests.unit.wire.rot import Rot


def test_layers_nest() -> None:
    stack = LayerStack()
    for layer in (Rot(1), Rot(10)):
        stack.push_input(layer)
        stack.push_output(layer)
    assert stack.send(b"a") == b"l"
    assert stack.receive(b"l") == b"a"
    assert stack.established
