"""House rules that a machine can check. Each message says what to do instead."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from typing import TYPE_CHECKING

from tests.project.layout import ROOT, SOURCE, hot_modules, modules, unit_tests_of

from polymq import config

if TYPE_CHECKING:
    from pathlib import Path

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 600
PROTOCOL_NAMES = re.compile(r"nsq|rocketmq|nats\b|phpmq", re.IGNORECASE)
# Spelt so that this line is not itself a finding.
UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX")) + r")\b")
TEXT_SUFFIXES = {".py", ".pxd", ".pyi", ".md", ".toml", ".sh", ".txt", ".c", ".go", ".js", ".php", ""}

# Modules without a test file of their own name, with the reason.
UNTESTED = {
    "polymq.__init__": "covered by tests/unit/test_build.py",
    "polymq.cli.__main__": "run by tests/unit/cli/test_main.py",
    "polymq.clients.broker_nats": "run by tests/interop/test_connect.py, and what it refuses by tests/unit/clients/test_broker.py",
    "polymq.clients.broker_nsq": "run by tests/interop/test_connect.py, and what it refuses by tests/unit/clients/test_broker.py",
    "polymq.clients.broker_rocketmq": "run by tests/interop/test_connect.py, and what it refuses by tests/unit/clients/test_broker.py",
    "polymq.clients.broker_sync": "run by tests/interop/test_connect.py",
    "polymq.core.catalogue": "covered by tests/unit/core/test_session.py, test_work_group.py and test_recovery.py",
    "polymq.core.group": "covered by the tests of the three kinds of groups",
    "polymq.core.journal_entries": "covered by tests/unit/core/test_recovery.py, which reads back all of them",
    "polymq.core.kernel": "covered by every test of tests/unit/core",
    "polymq.core.ports": "protocols only",
    "polymq.core.prepared_commit": "covered by tests/unit/core/test_prepared.py and test_prepared_on_the_store.py",
    "polymq.core.prepared_door": "covered by tests/unit/core/test_prepared.py",
    "polymq.core.prepared_state": "covered by tests/unit/core/test_prepared.py, which compares it behind restarts",
    "polymq.core.settings": "values only",
    "polymq.core.share": "covered by tests/unit/core/test_work_group.py",
    "polymq.core.topic": "covered by tests/unit/core/test_session.py and test_work_group.py",
    "polymq.core.view_making": "covered by tests/unit/core, which looks at the broker through views",
    "polymq.gateways.effects": "data only; carried out in tests/unit/server/test_pump.py",
    "polymq.gateways.nsq.refusals": "covered by tests/unit/gateways/nsq/test_tcp.py",
    "polymq.server.door_mount": "covered by tests/unit/server/test_mounts.py, which mounts everything",
    "polymq.server.http_mount": "covered by tests/unit/server/test_mounts.py, which mounts everything",
    "polymq.server.lookup_mount": "covered by tests/unit/server/test_mounts.py, which mounts everything",
    "polymq.server.mount": "covered by tests/unit/server/test_mounts.py, which mounts everything",
    "polymq.server.nsq_mount": "covered by tests/unit/server/test_mounts.py, which mounts everything",
    "polymq.server.ports": "protocols only",
    "polymq.spark.sinks.nats": "covered by tests/unit/spark/sinks/test_foreign.py, run by tests/interop/test_spark_sinks.py",
    "polymq.spark.sinks.nsq": "covered by tests/unit/spark/sinks/test_foreign.py, run by tests/interop/test_spark_sinks.py",
    "polymq.spark.sinks.phpmq": "covered by tests/unit/spark/sinks/test_foreign.py, run by tests/interop/test_spark_sinks.py",
    "polymq.spark.sinks.rocketmq": "covered by tests/unit/spark/sinks/test_foreign.py, run by tests/interop/test_spark_sinks.py",
    "polymq.spark.sinks.polymq": "run by tests/spark/test_sink_polymq.py: it needs Spark's tasks",
    "polymq.spool.settings": "values only",
    "polymq.spark.pipeline.bronze": "run by tests/spark/test_pipeline_functions.py: it needs a session",
    "polymq.spark.pipeline.declared": "run by tests/interop/test_pipeline.py: it needs a process of Spark's own",
    "polymq.spark.pipeline.gold": "run by tests/spark/test_pipeline_functions.py: it needs a session",
    "polymq.spark.pipeline.runner": "run by tests/spark/test_pipeline_runner.py: it needs a session and a broker",
    "polymq.spark.pipeline.session": "run by tests/interop/test_pipeline.py, which starts the command",
    "polymq.spark.pipeline.silver": "run by tests/spark/test_pipeline_functions.py: it needs a session",
    "polymq.spark.pipeline.source": "run by tests/spark/test_pipeline_functions.py: it needs a session",
    "polymq.spark.pipeline.steps": "run by tests/spark/test_pipeline_runner.py: it needs a session",
    "polymq.testing.__init__": "names only, looked up by tests/interop/test_pytest_plugin.py",
    "polymq.testing.clients": "a part of the simulator: covered by tests/sim, where planted bugs prove that it sees them",
    "polymq.testing.deliveries": "a part of the ledger: covered by its test",
    "polymq.testing.faults": "a part of the simulator: covered by tests/sim, where planted bugs prove that it sees them",
    "polymq.testing.nsq_wire": "a part of the simulator: covered by tests/sim, where planted bugs prove that it sees them",
    "polymq.testing.pytest_plugin": "run by tests/interop/test_pytest_plugin.py: it starts a real process",
    "polymq.testing.server": "run by tests/interop/test_pytest_plugin.py: it is a real process",
    "polymq.testing.operators": "a part of the simulator: covered by tests/sim, where planted bugs prove that it sees them",
    "polymq.testing.options": "a part of the simulator: covered by tests/sim, where planted bugs prove that it sees them",
    "polymq.testing.process": "a part of the simulator: covered by tests/sim, where planted bugs prove that it sees them",
    "polymq.testing.other_ports": "a part of the simulator: covered by tests/sim, where planted bugs prove that it sees them",
    "polymq.testing.others": "a part of the simulator: covered by tests/sim, where planted bugs prove that it sees them",
    "polymq.testing.phpmq_clients": "clients of the crash test and of the simulator, whose judges are tested",
    "polymq.testing.rocketmq_clients": "clients of the crash test and of the simulator, whose judges are tested",
    "polymq.testing.sectors": "a part of the simulator: covered by tests/sim, where planted bugs prove that it sees them",
    "polymq.testing.simulate": "a part of the simulator: covered by tests/sim, where planted bugs prove that it sees them",
    "polymq.testing.trace": "a part of the simulator: covered by tests/sim, where planted bugs prove that it sees them",
    "polymq.testing.witness": "puts together what has tests of its own",
    "polymq.testing.world": "a part of the simulator: covered by tests/sim, where planted bugs prove that it sees them",
    "polymq.wire.tickets": "one enumeration",
}


def tracked_files() -> list[Path]:
    """List the files that are, or are about to be, in the repository; all files where there is no git."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def functions_too_long(text: str, name: str) -> list[str]:
    """Find functions of more than 60 lines, not counting the docstring."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        assert node.end_lineno is not None
        lines = node.end_lineno - node.lineno + 1
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            assert first.end_lineno is not None
            lines -= first.end_lineno - first.lineno + 1
        if lines > FUNCTION_LINES_MAX:
            found.append(f"{name}:{node.lineno} {node.name} has {lines} lines, {FUNCTION_LINES_MAX} is the limit: split it")
    return found


def python_files() -> list[Path]:
    return [path for path in tracked_files() if path.suffix == ".py"]


def test_functions_fit_a_screen() -> None:
    found = [line for path in python_files() for line in functions_too_long(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))]
    assert found == []


def test_a_long_function_is_found_and_a_long_docstring_is_not() -> None:
    body = "    x = 1\n"
    assert functions_too_long("def f():\n" + body * 59, "m") == []
    assert functions_too_long("def f():\n" + body * 60, "m") == ["m:1 f has 61 lines, 60 is the limit: split it"]
    docstring = '    """' + "text\n" * 50 + '    """\n'
    assert functions_too_long("def f():\n" + docstring + body * 59, "m") == []


def test_files_are_not_too_long() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in python_files()}
    assert [f"{path.relative_to(ROOT)} has {lines} lines: split it" for path, lines in lengths.items() if lines > FILE_LINES_MAX] == []


def test_the_core_names_no_protocol() -> None:
    found = [
        f"{module.path.relative_to(ROOT)}:{number}: {line.strip()}"
        for module in modules()
        if module.name.startswith("polymq.core")
        for number, line in enumerate(module.path.read_text(encoding="utf-8").splitlines(), 1)
        if PROTOCOL_NAMES.search(line)
    ]
    assert found == [], "the core belongs to no protocol: say it in the words of docs/GLOSSARY.md"


def test_nothing_is_left_unfinished() -> None:
    found = []
    for path in tracked_files():
        if path.suffix not in TEXT_SUFFIXES or path.stat().st_size > 1_000_000:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if UNFINISHED.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert found == [], "finish it, or make it an entry of docs/CAPABILITIES.md"


def test_every_module_has_its_test_file() -> None:
    missing = []
    for module in modules():
        is_empty = all(isinstance(node, ast.Expr | ast.Import | ast.ImportFrom | ast.Assign) for node in module.tree.body)
        if (module.path.name == "__init__.py" and is_empty) or unit_tests_of(module.name):
            continue
        name = f"{module.name}.__init__" if module.path.name == "__init__.py" else module.name
        if name not in UNTESTED:
            missing.append(name)
    assert missing == [], "each needs tests/unit/<package>/test_<module>.py, or a line in UNTESTED with the reason"


def test_the_list_of_untested_modules_is_current() -> None:
    names = {f"{module.name}.__init__" if module.path.name == "__init__.py" else module.name for module in modules()}
    assert [name for name in UNTESTED if name not in names or unit_tests_of(name)] == []


def test_hot_modules_are_the_same_everywhere() -> None:
    listed = set(hot_modules())
    marked = {
        ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        for path in SOURCE.rglob("*.pxd")
        if path != SOURCE / "wire" / "inline.pxd"
    }
    assert marked == listed, "a hot module is listed in hot_modules.txt and has a .pxd beside it"
    assert {name for name in listed if not SOURCE.parent.joinpath(*name.split(".")).with_suffix(".py").exists()} == set()
    assert set(mypy_override()) == listed, "pyproject.toml: [[tool.mypy.overrides]] of the hot modules"


def mypy_override() -> list[str]:
    """Read the list of the mypy override that knows typed memoryviews."""
    document = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text(encoding="utf-8"))
    (override,) = [each for each in document["tool"]["mypy"]["overrides"] if "untyped-decorator" in each.get("disable_error_code", ())]
    names = override["module"]
    assert isinstance(names, list)
    return names


def test_hot_modules_take_the_same_helpers_in_both_builds() -> None:
    different = []
    for name in hot_modules():
        path = SOURCE.parent.joinpath(*name.split(".")).with_suffix(".py")
        imported = {
            alias.name
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.ImportFrom) and node.module == "polymq.wire.inline"
            for alias in node.names
        }
        lines = re.findall(r"^from polymq\.wire\.inline cimport (.+)$", path.with_suffix(".pxd").read_text(encoding="utf-8"), re.MULTILINE)
        cimported = {part.strip() for line in lines for part in line.split(",")}
        if imported != cimported:
            different.append(f"{name}: only one of .py and .pxd names {', '.join(sorted(imported ^ cimported))}")
    assert different == []


# A fragment of the changelog: changes/<what>.<kind>.md, one sentence or more for users.
CHANGE_KINDS = ("added", "changed", "fixed", "removed", "security")


def test_change_fragments_are_well_formed() -> None:
    problems = []
    for path in sorted(ROOT.joinpath("changes").glob("*")):
        if path.name == "README.md":
            continue
        match = re.fullmatch(r"[a-z0-9-]+\.(\w+)\.md", path.name)
        text = path.read_text(encoding="utf-8").strip()
        if not match or match[1] not in CHANGE_KINDS:
            problems.append(f"{path.name}: the name must be <what>.<{'|'.join(CHANGE_KINDS)}>.md")
        elif not text.endswith(".") or len(text) < 20:
            problems.append(f"{path.name}: a fragment is a sentence for users, with its full stop")
    assert problems == []


def test_decisions_are_numbered_and_complete() -> None:
    numbers = []
    for path in sorted(ROOT.joinpath("docs", "adr").glob("*.md")):
        match = re.fullmatch(r"(\d{4})-[a-z0-9-]+\.md", path.name)
        assert match, f"{path.name}: NNNN-title.md"
        numbers.append(int(match[1]))
        text = path.read_text(encoding="utf-8")
        for heading in ("## Context", "## Options", "## Decision", "## Consequences"):
            assert heading in text, f"{path.name} lacks {heading}"
    assert numbers == list(range(1, len(numbers) + 1))


def test_the_example_configuration_is_what_the_generator_writes() -> None:
    assert ROOT.joinpath("polymq.example.toml").read_text(encoding="utf-8") == config.example(), "make example writes it again"


def test_links_in_the_documents_lead_somewhere() -> None:
    broken = []
    for path in tracked_files():
        if path.suffix != ".md":
            continue
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
            if "://" not in target and not (path.parent / target).exists():
                broken.append(f"{path.relative_to(ROOT)}: {target}")
    assert broken == []


def test_links_lead_to_what_is_in_the_repository() -> None:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    links = [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_symlink()]
    outside = [str(link.relative_to(ROOT)) for link in links if not link.resolve().is_relative_to(ROOT.resolve())]
    assert not outside, f"these links lead out of the repository, where others have nothing: {outside}; take them out of git"
