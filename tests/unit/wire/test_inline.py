"""The helpers that are included into compiled modules do what their Python originals do.

Where the hot modules are compiled there is a C compiler, and the comparison is with C; elsewhere it is with the
interpreted probe, which still proves inline.py against `struct`.
"""

from __future__ import annotations

import importlib.util
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.wire import inline, records

if TYPE_CHECKING:
    from types import ModuleType

HERE = Path(__file__).parent
SOURCE = Path(inline.__file__).parents[2]


def compiled_probe(folder: Path) -> Path:
    """Compile the probe in a folder of its own; a second process keeps the compiler's warnings out of this one."""
    for name in ("inline_probe.py", "inline_probe.pxd"):
        shutil.copy(HERE / name, folder / name)
    script = (
        "from Cython.Build import cythonize; from setuptools import Extension, setup;"
        "setup(name='probe', script_args=['-q', 'build_ext', '--inplace'], ext_modules=cythonize([Extension('inline_probe', ['inline_probe.py'])],"
        f"include_path=[{str(SOURCE)!r}], language_level=3, quiet=True, compiler_directives=dict(wraparound=False, boundscheck=False)))"
    )
    subprocess.run([sys.executable, "-c", script], cwd=folder, check=True, capture_output=True)
    return next(path for path in folder.iterdir() if path.suffix in {".so", ".pyd"})


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    compiled = not str(records.__file__).endswith(".py")
    path = compiled_probe(tmp_path_factory.mktemp("probe")) if compiled else HERE / "inline_probe.py"
    spec = importlib.util.spec_from_file_location("inline_probe", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LOADS = [("load_u32", "<I"), ("load_i64", "<q"), ("load_u32_be", ">I")]
STORES = [("store_u32", "<I"), ("store_u32_be", ">I"), ("store_i64", "<q"), ("store_i64_be", ">q")]


@pytest.mark.parametrize(("name", "layout"), LOADS)
@given(data=st.binary(min_size=12, max_size=16), at=st.integers(0, 4))
def test_loads_agree(probe: ModuleType, name: str, layout: str, data: bytes, at: int) -> None:
    expected = struct.unpack_from(layout, data, at)[0]
    assert getattr(inline, name)(data, at) == expected
    assert getattr(probe, f"run_{name}")(data, at) == expected


@given(size=st.sampled_from([0, 1, 5, 6, 7, 2**31, 2**32 - 1]), at=st.integers(0, 3), stop=st.integers(0, 16))
def test_ends_of_what_has_a_size_agree(probe: ModuleType, size: int, at: int, stop: int) -> None:
    data = bytearray(16)
    struct.pack_into("<I", data, at, size)
    expected = at + 4 + size if stop >= at + 4 + size else -1
    assert inline.sized_end(data, at, stop) == expected
    assert probe.run_sized_end(data, at, stop) == expected


@pytest.mark.parametrize("value", [0, 1, 0x7F, 0x80, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, -1, -(2**31), -(2**63)])
@pytest.mark.parametrize(("name", "layout"), STORES)
def test_stores_agree(probe: ModuleType, name: str, layout: str, value: int) -> None:
    if layout[1] == "I":
        value &= 2**32 - 1
    expected = b"\xaa" * 3 + struct.pack(layout, value)
    expected += b"\xaa" * (16 - len(expected))
    for store in (getattr(inline, name), getattr(probe, f"run_{name}")):
        target = bytearray(b"\xaa" * 16)
        store(target, 3, value)
        assert target == expected


@given(source=st.binary(max_size=40), target=st.binary(max_size=40), data=st.data())
def test_copies_agree(probe: ModuleType, source: bytes, target: bytes, data: st.DataObject) -> None:
    size = data.draw(st.integers(0, min(len(source), len(target))))
    start, at = data.draw(st.integers(0, len(source) - size)), data.draw(st.integers(0, len(target) - size))
    expected = target[:at] + source[start : start + size] + target[at + size :]
    for copy in (inline.copy, probe.run_copy):
        changed = bytearray(target)
        copy(changed, at, source, start, size)
        assert changed == expected


words = st.lists(
    st.one_of(st.binary(max_size=20), st.sampled_from([b" ", b"!", b"\x7f\x80\xa0\xa1\xff" * 5, b"a" * 30, b"\0"])), max_size=5
).map(b"".join)


@given(source=words, data=st.data())
def test_blanks_are_found(probe: ModuleType, source: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(source)))
    end = data.draw(st.integers(at, len(source)))
    expected = next((place for place in range(at, end) if source[place] <= 32), end)
    assert inline.find_blank(source, at, end) == expected
    assert inline.find_blank(memoryview(source), at, end) == expected
    assert probe.run_find_blank(source, at, end) == expected


@given(source=st.binary(max_size=60), data=st.data())
def test_hashes_agree_and_know_nothing_of_what_is_around(probe: ModuleType, source: bytes, data: st.DataObject) -> None:
    size = data.draw(st.integers(0, len(source)))
    at = data.draw(st.integers(0, len(source) - size))
    code = inline.hash_bytes(source, at, size)
    assert 0 <= code < 1 << 32
    assert probe.run_hash_bytes(source, at, size) == code
    assert inline.hash_bytes(source[at : at + size], 0, size) == code


@pytest.mark.parametrize(
    "pattern", [b"%d", b"often.%d", b"a.%d.b", b"sensors.north.%d", b"_REPLY.long-name-of-a-client.%08d", b"%08d.x.y.z.w"]
)
def test_names_that_differ_in_a_few_places_spread_over_a_table(probe: ModuleType, pattern: bytes) -> None:
    names = [pattern % number for number in range(4096)]
    for mask, expected in ((0xFFF, 4096 * 0.632), (0xFFF << 20, 4096 * 0.632)):
        used = {probe.run_hash_bytes(name, 0, len(name)) & mask for name in names}
        assert expected * 0.93 < len(used)


@given(text=st.binary(max_size=20), source=st.binary(max_size=40), data=st.data())
def test_comparisons_and_copies_out_agree(probe: ModuleType, text: bytes, source: bytes, data: st.DataObject) -> None:
    size = data.draw(st.integers(0, len(source)))
    at = data.draw(st.integers(0, len(source) - size))
    piece = source[at : at + size]
    for equal, copy_out in ((inline.equal_bytes, inline.bytes_at), (probe.run_equal_bytes, probe.run_bytes_at)):
        assert copy_out(memoryview(source), at, size) == piece
        for one in (text, piece, piece[:-1] + b"x"):
            assert equal(one, memoryview(source), at, size) == (one == piece)
