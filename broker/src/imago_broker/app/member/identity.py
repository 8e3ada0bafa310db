"""Who this broker is: the address others reach it by, and the name of its data folder."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from imago_broker.config.sections.relations import ANY_HOST
from imago_broker.errors import ExitCode, FatalError

if TYPE_CHECKING:
    from pathlib import Path

UUID_FILE = "uuid"
_ASK_AGAIN_SECONDS = 0.25


def advertised_host(configured: str, bind: str) -> str:
    """Return the address for clients: the configured, the bound, or this machine's.

    The machine's is the one it would use to reach another network; nothing is sent.
    """
    if configured or bind not in ANY_HOST:
        return configured or bind
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Documentation address: never a real host, and no packet leaves for it.
            probe.connect(("192.0.2.1", 9))
            address = str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
    return address


async def numeric_address(host: str, *, patience_seconds: float = 30.0) -> str:
    """Return a host's IP address, which is what records and message ids hold.

    The name of a pod is not always known yet when its broker starts: it is asked for again and
    again for as long as patience lasts. FatalError after that.
    """
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    loop = asyncio.get_running_loop()
    end = loop.time() + patience_seconds
    while True:
        try:
            found = await asyncio.to_thread(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            if loop.time() < end:
                await asyncio.sleep(_ASK_AGAIN_SECONDS)
                continue
            raise FatalError(
                f"broker.host: {host!r} cannot be resolved ({error}); set an address or fix DNS",
                exit_code=ExitCode.USAGE,
            ) from error
        return str(found[0][4][0])


def data_folder_uuid(data_dir: Path) -> str:
    """Return the name of a data folder for ever, made at its first use.

    A broker that comes back with an empty disk is thereby another member of its shard.
    """
    path = data_dir / UUID_FILE
    try:
        return str(UUID(path.read_text(encoding="ascii").strip()))
    except FileNotFoundError:
        pass
    except ValueError as error:
        raise FatalError(
            f"{path} holds no uuid; restore it, or delete it to make this a new member",
            exit_code=ExitCode.DATA,
        ) from error
    made = str(uuid4())
    temporary = path.with_suffix(".new")
    with temporary.open("w", encoding="ascii") as file:
        file.write(made + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(data_dir, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return made
