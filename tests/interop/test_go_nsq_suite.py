"""go-nsq's own tests, as they come with the library, with the server under test in the place of the nsqd that they want.

They expect nsqd on its standard ports, with the certificates that lie beside them; only the ports are changed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.interop.conftest import chosen_kinds
from tests.interop.servers import ROOT, running

if TYPE_CHECKING:
    from pathlib import Path

MODULE = "github.com/nsqio/go-nsq"
RESULT = re.compile(r"^--- (\w+): (\w+)", re.MULTILINE)
# A consumer of its mock tests may say something when its test is over, which ends the whole run: seen with nsqd on a busy machine.
LATE_WORDS = "panic: Log in goroutine after TestConsumerBackoff"
TRIES = 3
# Those that talk to a server; the others test the library against itself.
TALKING = {
    *(
        f"TestConsumer{name}"
        for name in ("", "TLS", "Deflate", "Snappy", "TLSDeflate", "TLSSnappy", "TLSClientCert", "TLSClientCertViaSet")
    ),
    *(
        f"TestProducer{name}"
        for name in ("Connection", "Ping", "Publish", "MultiPublish", "PublishAsync", "MultiPublishAsync", "Heartbeat")
    ),
}


def run(folder: Path, *words: str, timeout: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["go", *words], cwd=folder, capture_output=True, text=True, timeout=timeout, check=False)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the version that the other tests use."""
    found = run(ROOT / "peers" / "go-nsq", "list", "-m", "-f", "{{.Dir}}", MODULE, timeout=120)
    assert found.returncode == 0, found.stderr
    target = tmp_path_factory.mktemp("go-nsq") / "source"
    shutil.copytree(found.stdout.strip(), target, copy_function=shutil.copyfile)
    return target


@pytest.mark.parametrize("kind", chosen_kinds())
def test_the_librarys_own_tests(kind: str, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "source"
    shutil.copytree(source, target)
    certificates = {"tls_cert": "server.pem", "tls_key": "server.key", "tls_root_ca_file": "ca.pem"}
    options = {name: str(target / "test" / file) for name, file in certificates.items()}
    (tmp_path / "server").mkdir()
    with running(kind, tmp_path / "server", options=options) as server:
        for path in target.glob("*_test.go"):
            text = path.read_text(encoding="utf-8")
            for standard, address in (("4150", server.tcp), ("4151", server.http)):
                port = address.rpartition(":")[2]
                text = re.sub(rf"(?<!1\.2\.3\.4:)\b{standard}\b", port, text)
            path.write_text(text, encoding="utf-8")
        for _ in range(TRIES):
            done = run(target, "test", "-v", "-count=1", "-timeout", "120s", ".", timeout=300)
            if LATE_WORDS not in done.stdout:
                break
    results = {name: verdict for verdict, name in RESULT.findall(done.stdout)}
    assert {name for name, verdict in results.items() if verdict != "PASS"} == set(), done.stdout[-5000:]
    assert set(results) >= TALKING
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
