from __future__ import annotations

import pytest
from hypothesis import settings

from imago_testing.frames.twins import KINDS, Twin

# Other work on the machine must not fail a test.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(params=KINDS, scope="session")
def twin(request: pytest.FixtureRequest) -> Twin:
    """The hot functions, in plain Python and compiled."""
    return Twin(request.param)


@pytest.fixture(scope="session")
def reference() -> Twin:
    return Twin("python")


@pytest.fixture(scope="session")
def compiled() -> Twin:
    return Twin("compiled")
