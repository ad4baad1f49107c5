"""Gateways: one protocol's events turned into calls on the core's Session, and deliveries into frames.

A gateway does no I/O. It is handed bytes and deliveries and returns effects (`effects.py`) for the pump to carry
out. `contract.py` is what the pump asks of every gateway.
"""
