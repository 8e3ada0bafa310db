"""Commands that a person types beside a broker."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from imago_broker.app import Broker


@dataclass
class Shell:
    """Runs commands in a folder, with the admin token."""

    folder: Path
    broker: Broker

    async def run(self, *words: str, code: int = 0, **more: str) -> str:
        """Return what the command prints on both streams; `more`: of its environment."""
        process = await self.start(*words, **more)
        out, _ = await process.communicate()
        assert process.returncode == code, out.decode()
        return out.decode()

    async def start(self, *words: str, **more: str) -> asyncio.subprocess.Process:
        """Start the command; its output is in one pipe."""
        ports = self.broker.ports
        settings = {
            "IMAGO_ADMIN": f"http://127.0.0.1:{ports.admin_port}",
            "IMAGO_ADMIN_TOKEN_FILE": self.broker.config.admin.token_file,
            "IMAGO_BOOTSTRAP": f"127.0.0.1:{ports.namesrv_port}",
            "COLUMNS": "200",
        }
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "imago_cli", *words),
            cwd=self.folder,
            env=os.environ | settings | more,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
