"""One real API server for all tests of this folder, with our definitions in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.kubernetes.api_server import ApiServerProcess, running_api_server

if TYPE_CHECKING:
    from collections.abc import Iterator

PEOPLE = ("operator", "nobody", "viewer", "orderer")


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    """An API server; these people may log in and have no rights yet."""
    with running_api_server(tmp_path_factory.mktemp("api") / "server", PEOPLE) as server:
        server.install_crds()
        yield server
