"""Everything that runs polymq without an operating system: fake clock, disk, worker and network, and the simulator.

Shipped to users, because whoever embeds a broker or writes a gateway wants the same tools. The four fakes stand
behind the ports that the real ones implement (`store/files.py`, `store/workers.py`, `server/ports.py`) and take every
decision from a seed, so a run can be repeated exactly. Start reading at `disk.py`; the whole broker under one seed is
`simulate.py`, what it may never do is in `ledger.py`.
"""

from polymq.testing.clock import FakeClock
from polymq.testing.disk import DiskFault, FakeFiles, SimulatedKill
from polymq.testing.network import FakeNetwork, FakeStream, NetworkConditions
from polymq.testing.worker import FakeWorker

__all__ = ["DiskFault", "FakeClock", "FakeFiles", "FakeNetwork", "FakeStream", "FakeWorker", "NetworkConditions", "SimulatedKill"]
