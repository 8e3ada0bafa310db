"""What every test here goes by."""

from __future__ import annotations

import os

from hypothesis import settings

from imago_testing import small_limits

# No example may fail for being slow: machines are, now and then. What is tried is the same in
# every run, so that a change is judged by what it changed; IMAGO_EXAMPLES=random tries others.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None)
settings.register_profile("few", deadline=None, derandomize=True, max_examples=20)
settings.load_profile(os.environ.get("IMAGO_EXAMPLES", "same"))

# The store and the replication in small pieces: `make test` runs their tests in both ways.
if os.environ.get("IMAGO_LIMITS") == "small":
    small_limits.install()
