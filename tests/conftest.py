"""For all tests: no time decides whether one passes, hypothesis' deadline of 200 ms included (a busy machine takes longer now and then)."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("untimed", parent=settings(), deadline=None)
settings.load_profile("untimed")
