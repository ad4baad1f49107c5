"""RocketMQ's remoting protocol, as a server and as a client: frames to events, answers to frames, stored messages.

Start at `decode.py` and `events.py` for what comes in, `encode.py` and `stored.py` for what goes out. Nothing here knows the
broker, a clock or a socket. Facts come from RocketMQ 4.9.8 and 5.3.3 on the wire.
"""
