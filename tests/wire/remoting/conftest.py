"""Examples may take as long as a busy machine makes them take: no test here measures time."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
