"""Brokers that are open to other machines say so, or do not start."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp
import pytest

from imago_broker.config import ConfigError, load
from imago_broker.model.access.users import User
from imago_broker.service.access.access_edits import Actor
from imago_client.blocking import Client
from imago_client.config import ClientConfig
from imago_client.errors import ClientError
from imago_testing.clusters.brokers import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    from imago_broker.app import Broker

ANYWHERE = '[broker]\nbind = "0.0.0.0"\n'


def test_what_is_refused_and_what_is_not() -> None:
    load(ANYWHERE)
    load(f"{ANYWHERE}[security]\nallow_open = true\n")
    load("[security]\nallow_open = false\n")  # loopback
    closed = f'{ANYWHERE}[acl]\nenabled = true\n[admin]\ntoken_file = "t"\n'
    load(f"{closed}[security]\nallow_open = false\n")
    with pytest.raises(ConfigError, match=r"^security\.allow_open: .* set acl\.enabled = true"):
        load(f"{ANYWHERE}[security]\nallow_open = false\n")
    with pytest.raises(ConfigError, match=r"^acl\.enabled: .* set admin\.token_file"):
        load("[acl]\nenabled = true\n")


@pytest.mark.parametrize(("bind", "is_open"), [("127.0.0.1", False), ("0.0.0.0", True)])
async def test_status_and_metrics_say_whether_it_is_open(
    tmp_path: Path, bind: str, is_open: bool
) -> None:
    settings = (f"broker.bind={bind}", "broker.host=127.0.0.1", "admin.loopback_trusted=true")
    async with running_broker(tmp_path, *settings) as broker, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{broker.ports.admin_port}"
        async with session.get(f"{url}/admin/v1/status") as answer:
            assert (await answer.json())["access"]["open"] is is_open
        async with session.get(f"{url}/metrics") as answer:
            text = await answer.text()
            [line] = [one for one in text.splitlines() if one.startswith("imago_access_open")]
            assert float(line.split()[-1]) == is_open


def _use(port: int, **settings: str) -> list[str]:
    config = ClientConfig(bootstrap=(f"127.0.0.1:{port}",), **settings)  # type: ignore[arg-type]
    with Client(config) as client:
        return list(client.admin.groups())


async def test_our_client_with_a_user(broker: Broker, tmp_path: Path) -> None:
    by = Actor("the tests", "nowhere")
    broker.core.access.put_user(User(name="ann", is_super=True, secret="password"), by)
    file = tmp_path / "password"
    file.write_text("password\n")
    port = broker.ports.namesrv_port
    await asyncio.to_thread(_use, port, user="ann", password_file=str(file))
    with pytest.raises(ClientError, match="username cannot be null"):
        await asyncio.to_thread(_use, port)
    with pytest.raises(ClientError, match="check signature failed"):
        await asyncio.to_thread(_use, port, user="ann", password="passwore")
