"""Close a store: sync what is left, say that all is synced, give the folder back."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_log.commitlog.flusher import Flusher
    from imago_log.lifecycle.housekeeping import Housekeeper
    from imago_log.state import StoreState


class StoreClosing:
    """The end of one store; the second call does nothing."""

    def __init__(self, s: StoreState, flusher: Flusher, keeper: Housekeeper) -> None:
        self._state, self._status, self._flusher, self._keeper = s, s.status, flusher, keeper
        self._released = False

    def run(self, *, clean: bool = True) -> None:
        """Sync and stop. With `clean` the next start reads nothing again."""
        if self._released:
            return
        state, status = self._state, self._status
        status.close()
        self._flusher.stop()
        if clean and status.failure is None:
            clean = self._keeper.close()
        state.background.stop()
        if clean and status.failure is None:
            state.log.close()
            state.folder.note_views()
            state.folder.mark_clean()
        self._released = True
        state.release()
