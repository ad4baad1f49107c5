"""Everything that runs polymq without an operating system: fake clock, disk, worker and network, and the simulator.

Shipped to users, because whoever embeds a broker or writes a gateway wants the same tools. The four fakes stand
behind the ports that the real ones implement (`store/files.py`, `store/workers.py`, `server/ports.py`) and take every
decision from a seed, so a run can be repeated exactly. Start reading at `disk.py`; the whole broker under one seed is
`simulate.py`, what it may never do is in `ledger.py`. `server.py` is the contrary: a real process, for tests of clients.

What is named here is imported when it is asked for: every run of pytest imports this package for its plugin.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from polymq.testing.clock import FakeClock
    from polymq.testing.disk import DiskFault, FakeFiles, SimulatedKill
    from polymq.testing.network import FakeNetwork, FakeStream, NetworkConditions
    from polymq.testing.worker import FakeWorker

__all__ = ["DiskFault", "FakeClock", "FakeFiles", "FakeNetwork", "FakeStream", "FakeWorker", "NetworkConditions", "SimulatedKill"]

_MODULES: Final = {
    "DiskFault": "disk",
    "FakeClock": "clock",
    "FakeFiles": "disk",
    "FakeNetwork": "network",
    "FakeStream": "network",
    "FakeWorker": "worker",
    "NetworkConditions": "network",
    "SimulatedKill": "disk",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for by its name."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
