"""polymq: one message broker with one durable log that speaks four wire protocols.

Start reading at docs/ARCHITECTURE.md; the README says in which order to read the source.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0.dev0"
