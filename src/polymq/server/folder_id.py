"""What a node's log is called by those who read several: 16 hexadecimal digits in a file of the data folder.

They belong to the data and not to the machine: they stay over restarts and under other addresses, and go where the folder goes.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FOLDER_ID_NAME", "folder_id"]

FOLDER_ID_NAME: Final = "node-id"
_SIZE_BYTES: Final = 8
_FORM: Final = re.compile(rf"[0-9a-f]{{{2 * _SIZE_BYTES}}}")

log = logging.getLogger(__name__)


def folder_id(folder: Path) -> str:
    """Read the id of a data folder that is ours alone, or give it one, durably: readers keep it in their checkpoints.

    Empty if it can be neither read nor kept: then nobody can read this node together with others.
    """
    path = folder.expanduser() / FOLDER_ID_NAME
    try:
        found = path.read_text(encoding="ascii").strip() if path.exists() else ""
        if _FORM.fullmatch(found):
            return found
        if found:
            log.error("%s is not 16 hexadecimal digits: give it back what it had, or remove it and begin new checkpoints", path)
            return ""
        made = secrets.token_hex(_SIZE_BYTES)
        fresh = path.with_suffix(".new")
        with fresh.open("w", encoding="ascii") as file:
            file.write(f"{made}\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except (OSError, UnicodeDecodeError) as error:
        log.warning("%s cannot be used, so Spark cannot read this node together with others: %s", path, error)
        return ""
    return made
