"""The hot modules can be run from their source although they are compiled, and the report says what runs."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from typing import TYPE_CHECKING

import pytest

from polymq import _build

if TYPE_CHECKING:
    from pathlib import Path


def run_python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(each for each in sys.path if each)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("POLYMQ_", "PYTHON"))}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env={**clean, "PYTHONPATH": path, **environment}, capture_output=True, text=True, check=False)


def make_package(folder: Path) -> Path:
    (folder / "wire").mkdir(parents=True)
    for name in ("wire/hot.py", "wire/hot.pxd", "wire/plain.py", "wire/inline.py", "wire/inline.pxd", "wire/orphan.pxd"):
        (folder / name).write_text("")
    return folder


def test_a_hot_module_is_one_with_a_pxd(tmp_path: Path) -> None:
    assert _build.hot_modules(make_package(tmp_path)) == ("polymq.wire.hot",)


def test_the_package_has_hot_modules() -> None:
    assert "polymq.wire.records" in _build.hot_modules()


def test_the_finder_prefers_the_source_of_a_hot_module(tmp_path: Path) -> None:
    folder = make_package(tmp_path) / "wire"
    folder.joinpath(f"hot{EXTENSION_SUFFIXES[0]}").write_bytes(b"not a library")
    spec = _build.PureFinder().find_spec("polymq.wire.hot", [str(folder)])
    assert spec is not None
    assert spec.origin == str(folder / "hot.py")


@pytest.mark.parametrize("name", ["polymq.wire.plain", "polymq.wire.absent", "other.wire.hot"])
def test_the_finder_leaves_everything_else_alone(tmp_path: Path, name: str) -> None:
    assert _build.PureFinder().find_spec(name, [str(make_package(tmp_path) / "wire")]) is None
    assert _build.PureFinder().find_spec("polymq.wire.hot", None) is None


def test_the_finder_is_installed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    _build.install_pure_finder()
    first = list(sys.meta_path)
    _build.install_pure_finder()
    assert sys.meta_path == first
    assert isinstance(first[0], _build.PureFinder)


def test_the_environment_variable_runs_the_sources() -> None:
    program = "import polymq.wire.records as r, polymq._build as b; print(r.__file__.endswith('.py'), b.report().compiled)"
    done = run_python("-c", program, POLYMQ_PURE="1")
    assert (done.stdout, done.stderr) == ("True ()\n", "")


@pytest.mark.parametrize("value", ["0", ""])
def test_the_environment_variable_can_say_no(value: str) -> None:
    program = "import polymq, sys; print('polymq._build' in sys.modules)"
    assert run_python("-c", program, POLYMQ_PURE=value).stdout == "False\n"


def test_optimized_python_is_refused() -> None:
    for done in (run_python("-O", "-c", "import polymq"), run_python("-c", "import polymq", PYTHONOPTIMIZE="1")):
        assert done.returncode == 1
        assert "start Python without -O" in done.stderr


def test_the_report_covers_every_hot_module_once() -> None:
    report = _build.report()
    assert sorted(report.compiled + report.interpreted) == list(_build.hot_modules())


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (_build.BuildReport("fast", ("a", "b"), (), ()), "compiled (fast): all 2 hot modules"),
        (_build.BuildReport("checked", ("a", "b"), (), ("b",)), "compiled (checked): all 2 hot modules; OUT OF DATE, run make setup: b"),
        (_build.BuildReport("fast", ("a",), ("b",), ()), "partly compiled (fast): 1 of 2 hot modules, not b"),
        (_build.BuildReport("fast", (), ("a", "b"), ()), "interpreted: none of the 2 hot modules is compiled"),
    ],
)
def test_the_report_in_words(report: _build.BuildReport, text: str) -> None:
    assert str(report) == text


def test_an_extension_older_than_its_source_is_stale(tmp_path: Path) -> None:
    source, extension = tmp_path / "hot.py", tmp_path / f"hot{EXTENSION_SUFFIXES[0]}"
    source.write_text("")
    extension.write_bytes(b"")
    in_the_future = _build.FOLDER.joinpath("wire", "inline.pxd").stat().st_mtime + 10**6
    os.utime(extension, (in_the_future, in_the_future))
    os.utime(source, (in_the_future - 1, in_the_future - 1))
    assert not _build._is_stale(extension)
    os.utime(source, (in_the_future + 1, in_the_future + 1))
    assert _build._is_stale(extension)


def test_an_extension_older_than_the_helpers_is_stale_if_it_includes_them(tmp_path: Path) -> None:
    declarations, extension = tmp_path / "hot.pxd", tmp_path / f"hot{EXTENSION_SUFFIXES[0]}"
    extension.write_bytes(b"")
    for text, stale in (("cdef class Rows:\n", False), ("from polymq.wire.inline cimport copy\n", True)):
        declarations.write_text(text)
        os.utime(declarations, (1, 1))
        os.utime(extension, (2, 2))
        assert _build._is_stale(extension) is stale
