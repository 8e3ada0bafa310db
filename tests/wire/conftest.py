from __future__ import annotations

import pytest

from imago_testing.twins import KINDS, Twin


@pytest.fixture(params=KINDS, scope="session")
def twin(request: pytest.FixtureRequest) -> Twin:
    """The hot functions, in plain Python and compiled."""
    return Twin(request.param)
