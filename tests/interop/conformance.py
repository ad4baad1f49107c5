"""The conformance material, which is kept beside the repository: probes, transcripts, a server that speaks routes.

POLYMQ_CONFORMANCE names its folder; else it is ../shared/conformance. What needs it is left out by `.ci/run` where it is not there.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.interop.servers import ROOT

__all__ = ["material"]

CONFORMANCE = Path(os.environ.get("POLYMQ_CONFORMANCE", ROOT.parent / "shared" / "conformance"))


def material(name: str) -> Path:
    """Find a file of it."""
    path = CONFORMANCE / name
    if not path.exists():
        pytest.fail(f"{path} is missing: set POLYMQ_CONFORMANCE to the folder of the conformance material")
    return path
