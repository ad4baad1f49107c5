"""What may be wrong with what a peer sends. PHPMQ has no frame that says so: the connection is closed, and it is counted by these."""

from __future__ import annotations

import enum

__all__ = ["Problem"]


class Problem(enum.Enum):
    """Why a connection is closed: the value is the label in statistics."""

    HEADER = "header"  # a message does not begin with H
    DIGITS = "digits"  # something else than digits in a head
    VERSION = "version"  # not 1
    TYPE = "type"  # no type, or one that only the other side sends
    COUNT = "count"  # a number of packets that the type does not have
    PACKET = "packet"  # a packet does not begin with P
    PACKET_TYPE = "packet-type"  # a packet that the type of message does not have
    DUPLICATE = "duplicate"  # a packet a second time
    LENGTH = "length"  # longer than such a packet may be
    NUMBER = "number"  # a TTL or a count that is no number, is negative or is out of its range
    NAME = "name"  # a queue's name that no topic can have
    SLOW = "slow"  # a message that is not complete in time
    REFUSED = "refused"  # the broker cannot, or may not
