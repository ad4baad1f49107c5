"""`python -m polymq.cli` is `polymq`, also where the package is not installed."""

from __future__ import annotations

from polymq.cli.start import start

if __name__ == "__main__":
    start()
