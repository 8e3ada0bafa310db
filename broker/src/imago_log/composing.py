"""Opening a store: its state first, then recovery, then the parts that work on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.components import Components, StoreEvents
from imago_log.disk.folder import DataFolder
from imago_log.disk.space import Space
from imago_log.disk.worker import Background, InlineWorker, ThreadWorker
from imago_log.lifecycle.formats import refuse_later
from imago_log.lifecycle.opening import StoreOpening
from imago_log.state import Ground, StoreState
from imago_log.status import StoreStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_log.config import StoreConfig
    from imago_log.disk.vfs import Vfs
    from imago_log.disk.worker import Worker


def open_components(
    config: StoreConfig,
    vfs: Vfs,
    *,
    clock: Callable[[], int],
    monotonic: Callable[[], int],
    threaded: bool,
    worker: Worker | None,
    lead: bool,
    draw: Callable[[], int] | None,
) -> Components:
    """Open the data folder, then start: see `MessageStore.open`."""
    events = StoreEvents.make()
    status = StoreStatus(events.on_failure, leading=lead)

    def make_worker() -> Worker:
        if worker is not None:
            return worker
        return ThreadWorker(status.fail) if threaded else InlineWorker()

    folder = DataFolder(config.data_dir, vfs)
    space = Space(vfs, folder.probe)
    background = Background(space, make_worker)
    folder.take()
    storage: StoreState | None = None
    try:
        refuse_later(vfs, folder)
        ground = Ground(
            vfs=vfs,
            folder=folder,
            background=background,
            space=space,
            clock=clock,
            monotonic=monotonic,
        )
        storage = StoreState(config, ground, status, events.on_damage)
        opened = StoreOpening(storage, lead=lead).run()
    except BaseException:
        if storage is not None:
            storage.release()
        folder.release()
        raise
    background.start()
    return Components(opened, events, threaded=threaded, draw=draw)
