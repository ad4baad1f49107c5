"""`polymq secret`: a new secret, and what a file of keys has to say of it."""

from __future__ import annotations

import hashlib
import secrets
import sys
from typing import Final

import typer

__all__ = ["app", "make_secret"]

# As many bits as the hash has. Nobody guesses it, so that a fast hash of it can be kept in a file.
_SIZE_BYTES: Final = 32
EXAMPLES: Final = """[bold]Examples[/bold]

[cyan]polymq secret[/cyan]
a secret for a client, and secret_hash for its key in the file that access.file names

[cyan]POLYMQ_ACCESS_SECRET_HASH=… POLYMQ_ACCESS_HTTP=login polymq serve[/cyan]
a broker that only the owner of that one secret can use
"""

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


def make_secret() -> tuple[str, str]:
    """Give a new secret and the SHA-256 by which it is known."""
    secret = secrets.token_urlsafe(_SIZE_BYTES)
    return secret, hashlib.sha256(secret.encode()).hexdigest()


@app.command(epilog=EXAMPLES)
def secret() -> None:
    """Make a new secret for AUTH or HTTP: it is shown once, its hash goes into the file of keys."""
    made, digest = make_secret()
    sys.stdout.write(f"secret = {made}\nsecret_hash = {digest}\n")
