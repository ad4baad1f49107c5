"""From a file on the disk to settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq import limits
from polymq.config_values import TcpAddress
from polymq.errors import ConfigError
from polymq.server.nats_files import load

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_with_all_that_it_includes(tmp_path: Path) -> None:
    (tmp_path / "users").mkdir()
    (tmp_path / "server.conf").write_text("port: $PORT\nauthorization { include users/all.conf }\n")
    (tmp_path / "users" / "all.conf").write_text("include password.conf\nuser: u\npassword: $secret\n")
    (tmp_path / "users" / "password.conf").write_text("secret: s\n")
    settings = load(tmp_path / "server.conf", environment={"PORT": "4333"})
    assert settings.listen == TcpAddress("0.0.0.0", 4333)
    assert (settings.authorization.user, settings.authorization.password) == ("u", "s")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"server.conf: there is no such file"):
        load(tmp_path / "server.conf", environment={})
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path, environment={})


def test_no_more_is_read_than_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NATS_CONF_SIZE_BYTES_MAX", 10)
    (tmp_path / "server.conf").write_text("# " + "x" * 100)
    with pytest.raises(ConfigError, match="the configuration has more than 10 bytes"):
        load(tmp_path / "server.conf", environment={})
