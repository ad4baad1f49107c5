"""`make conversions`: write docs/CONVERSIONS.md again."""

from __future__ import annotations

from pathlib import Path

from tests.conversions.page import page

Path(__file__).parents[2].joinpath("docs", "CONVERSIONS.md").write_text(page(), encoding="utf-8")
