"""What goes wrong is explained in words that say what to do, with the exit status that scripts rely on."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from polymq import __version__
from polymq.cli import main as main_module
from polymq.cli.main import app, main
from polymq.errors import ConfigError


def test_the_version_says_which_build_runs() -> None:
    output = CliRunner().invoke(app, ["--version"]).output
    assert re.fullmatch(rf"polymq {re.escape(__version__)} \(Python 3\.\d+\.\d+\), (partly compiled|compiled|interpreted).*\n", output)


def test_the_module_can_be_run() -> None:
    done = subprocess.run([sys.executable, "-m", "polymq.cli", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"polymq {__version__}")


def test_without_arguments_it_shows_help() -> None:
    assert "First steps" in CliRunner().invoke(app, []).output


@pytest.mark.parametrize(("raised", "status", "stderr"), [(ConfigError(["bad"]), 1, "polymq: bad\n"), (KeyboardInterrupt(), 130, "")])
def test_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], raised: BaseException, status: int, stderr: str
) -> None:
    def fail(**_: object) -> None:
        raise raised

    monkeypatch.setattr(main_module, "app", fail)
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == status
    assert capsys.readouterr().err == stderr


def test_a_reader_that_goes_away_is_no_error() -> None:
    program = "import sys\nfrom polymq.cli import main as m\ndef app(**_):\n    sys.stdout.write('x' * 10**6); sys.stdout.flush()\nm.app = app\nm.main()"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0
