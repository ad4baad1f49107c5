from __future__ import annotations

import hashlib

from typer.testing import CliRunner

from polymq.cli.main import app
from polymq.cli.secret import make_secret


def test_a_secret_and_its_hash() -> None:
    secret, digest = make_secret()
    assert len(secret) >= 43
    assert hashlib.sha256(secret.encode()).hexdigest() == digest
    assert make_secret()[0] != secret


def test_the_command_prints_both() -> None:
    result = CliRunner().invoke(app, ["secret"])
    assert result.exit_code == 0
    lines = dict(line.split(" = ") for line in result.output.splitlines())
    assert lines["secret_hash"] == hashlib.sha256(lines["secret"].encode()).hexdigest()
