"""A member that is fenced: it keeps its log as it is, and serves nobody until somebody lifts that.

Whoever fences a member has its broker write so into the data folder and end in order: a leader
hands over first, and whoever stays has what was acknowledged. What begins there again, in this
process or in another, opens neither log nor registry. It answers its admin port alone, and goes on
as a broker once the mark is gone. A mark that cannot be read counts: its disk may be why somebody
set it.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imago_broker.app.kept_settings.checked_file import CheckedFile
from imago_broker.app.member.identity import data_folder_uuid
from imago_broker.app.ports.listeners import Ports
from imago_broker.model.registry.cluster import ClusterView
from imago_broker.server.http_session import note_allowed
from imago_log.errors import LogIOError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_broker.config import BrokerConfig
    from imago_broker.ports import Clock

FILE = "fenced"
ANSWER_SECONDS = 0.2
"""Who lifts it gets his answer before the port is closed."""


logger = logging.getLogger(__name__)


class FenceMark:
    """What a data folder says of it."""

    def __init__(self, data_dir: str, clock: Clock) -> None:
        self._file, self._clock = CheckedFile(Path(data_dir) / FILE), clock
        self.lifted = asyncio.Event()

    def said(self) -> Mapping[str, Any] | None:
        """Return since when and why; None: the member is not fenced."""
        try:
            return self._file.read()
        except (ValueError, LogIOError) as error:
            return {"since": None, "why": f"{self._file.path} cannot be read: {error}"}

    def set(self, why: str) -> None:
        """Have whoever begins here serve nobody; LogIOError where that cannot be kept."""
        self._file.write({"since": self._clock.epoch_ms(), "why": why})

    def lift(self) -> None:
        """Have the member serve again; OSError where the mark cannot be taken away."""
        self._file.remove()
        self.lifted.set()


async def held(config: BrokerConfig, clock: Clock, stopped: asyncio.Event) -> bool:
    """Wait while the member is fenced; False: somebody wants the process to end meanwhile."""
    mark = FenceMark(config.broker.data_dir, clock)
    said = mark.said()
    if said is None:
        return True
    logger.warning("broker_fenced data=%s why=%s", config.broker.data_dir, said["why"])
    ports = Ports(config, lambda: ClusterView(cluster=config.broker.cluster), _nobody, clock)
    waits = [asyncio.create_task(event.wait()) for event in (mark.lifted, stopped)]
    try:
        ports.bind(admin_alone=True)
        if config.admin.enabled:
            uuid = data_folder_uuid(Path(config.broker.data_dir))
            await ports.admin.serve(partial(_application, config, mark, uuid))
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(ANSWER_SECONDS)
    finally:
        for wait in waits:
            wait.cancel()
        await ports.stop(drain_seconds=0)
    return mark.lifted.is_set()


def _nobody() -> Any:
    raise AssertionError("a member that is fenced is nobody in the registry")


def _application(config: BrokerConfig, mark: FenceMark, uuid: str) -> Any:
    from imago_broker.admin.shards.fencing import build_held  # noqa: PLC0415  loaded beside the loop

    return build_held(config, mark, uuid, note_allowed)
