"""The reference of the client is whole, and its maker refuses names that say nothing."""

from __future__ import annotations

import re

import pytest

import imago_client
from imago_tools import client_api


def test_the_reference_has_every_public_name() -> None:
    page = client_api.page()
    headings = set(re.findall(r"^### (\w+)$", page, re.MULTILINE))
    assert set(imago_client.__all__) <= headings
    assert "- `async submit(message: Message, *, queue" in page
    assert "Sends under way at once; more wait their turn" in page, "of a setting"


def test_what_says_nothing_is_refused() -> None:
    class Silent:
        def speak(self) -> None: ...

    with pytest.raises(ValueError, match="Silent has no docstring"):
        list(client_api._section("Silent", Silent))
