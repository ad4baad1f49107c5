"""What the package gives by itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

import polymq.spark
from polymq.spark.lag import LagListener


def test_the_listener_is_there_when_it_is_asked_for() -> None:
    assert polymq.spark.LagListener is LagListener
    with pytest.raises(AttributeError, match="nothing_else"):
        _ = polymq.spark.nothing_else


def test_workers_do_not_pay_for_it() -> None:
    command = "import sys, polymq.spark; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"
