"""Who may call from another machine: whoever has the token, and nobody else, whatever the route."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imago_broker.admin import access
from imago_broker.admin.rights import open_to_all
from imago_broker.admin.routes import ROUTES
from imago_testing.peers.admin import TOKEN

if TYPE_CHECKING:
    from imago_testing.peers.admin import Admin

EPOCH = "/admin/v1/pipelines/lake.orders/epoch"
GUARDED = [
    (method, re.sub(r"\{[a-z]+\}", "0", path))
    for method, path, _, right in ROUTES
    if right is not open_to_all
]
WRONG = ("", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x", TOKEN, "Bearer ", f"Basic {TOKEN}")


@pytest.fixture(name="far", autouse=True)
def _far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all callers come from another machine."""
    monkeypatch.setattr(access, "is_loopback", lambda _: False)


@pytest.mark.parametrize("given", WRONG)
async def test_the_epoch_of_a_pipeline_is_raised_by_nobody_without_the_token(
    admin: Admin, given: str
) -> None:
    headers = {"Authorization": given} if given else {}
    status, body = await admin.call("POST", EPOCH, {"epoch": 3}, **headers)
    assert (status, body["error"]) == (401, "unauthorized")
    right = {"Authorization": f"Bearer {TOKEN}"}
    assert (await admin.call("GET", EPOCH.removesuffix("/epoch"), **right))[1]["epoch"] == 0
    assert (await admin.call("POST", EPOCH, {"epoch": 3}, **right))[0] == 200


async def test_no_route_but_the_open_ones_answers_without_the_token(admin: Admin) -> None:
    answers = {(method, path): (await admin.call(method, path, {}))[0] for method, path in GUARDED}
    assert set(answers.values()) == {401}, answers
    assert ("POST", "/admin/v1/pipelines/0/epoch") in answers


async def test_health_and_metrics_are_open(admin: Admin) -> None:
    for path in ("/healthz", "/readyz", "/writez", "/metrics"):
        url = f"http://127.0.0.1:{admin.broker.ports.admin_port}{path}"
        async with admin.session.get(url) as answer:
            assert answer.status == 200


def write_token(admin: Admin, text: str) -> None:
    Path(admin.broker.config.admin.token_file).write_text(text)


async def test_an_empty_token_is_matched_by_nobody(admin: Admin) -> None:
    write_token(admin, "\n")
    for given in ("Bearer ", "Bearer", ""):
        assert (await admin.call("POST", EPOCH, {"epoch": 3}, Authorization=given))[0] == 401
