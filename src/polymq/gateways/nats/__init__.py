"""NATS: clients (`client.py`) and what all of their connections share (`house.py`)."""
