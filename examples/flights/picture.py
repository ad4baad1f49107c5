"""The picture: what happened over time, and the gold table as a map of delays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

__all__ = ["Timeline", "draw"]


@dataclass
class Timeline:
    """Counts over time, in seconds since the first publish, and when the broker was away."""

    seconds: list[float] = field(default_factory=list)
    published: list[int] = field(default_factory=list)
    settled: list[int] = field(default_factory=list)
    archived: list[int] = field(default_factory=list)
    killed: float | None = None
    back: float | None = None

    def add(self, second: float, *, published: int, settled: int, archived: int) -> None:
        """Note one moment."""
        self.seconds.append(second)
        self.published.append(published)
        self.settled.append(settled)
        self.archived.append(archived)


def draw(timeline: Timeline, gold: pd.DataFrame, path: Path, *, total: int) -> None:
    """Draw both into one PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(15, 6), width_ratios=(1, 1.3), layout="constrained")
    for name, counts in (
        ("published", timeline.published),
        ("settled on the channel", timeline.settled),
        ("archived in Parquet", timeline.archived),
    ):
        left.plot(timeline.seconds, counts, label=name, linewidth=2)
    if timeline.killed is not None and timeline.back is not None:
        left.axvspan(timeline.killed, timeline.back, color="crimson", alpha=0.2, label="broker killed and gone")
    left.set(title=f"{total:,} flights through the broker", xlabel="seconds", ylabel="flights")
    left.yaxis.set_major_formatter("{x:,.0f}")
    left.legend(loc="lower right")
    left.grid(alpha=0.3)

    cells = gold.pivot_table(index="carrier", columns="hour", values="delay_p95", dropna=False)
    image = right.imshow(cells.to_numpy(dtype="float64"), aspect="auto", cmap="inferno", vmin=0, vmax=180)
    right.set_xticks(range(len(cells.columns)), [str(hour) for hour in cells.columns])
    right.set_yticks(range(len(cells.index)), list(cells.index))
    right.set(title="Departure delay, 95th percentile, minutes (New York 2013)", xlabel="scheduled hour", ylabel="carrier")
    figure.colorbar(image, ax=right, extend="max")
    figure.savefig(path, dpi=110)
    plt.close(figure)
