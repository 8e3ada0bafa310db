"""The metadata: what the log says, and whether the snapshot says the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.metadata.changes import META_TOPIC, decode_changes
from imago_log.metadata.state import Metadata
from imago_log.offline.findings import REBUILD

if TYPE_CHECKING:
    from imago_log.metadata.changes import JSON
    from imago_log.offline.findings import Findings
    from imago_log.offline.stopped import StoppedStore
    from imago_wire.records.record import RecordView

_META = META_TOPIC.encode()
_NAMED_MAX = 3


class MetadataCheck:
    """Replays the changes in the log; compares with the snapshot where that one ends."""

    def __init__(self, store: StoppedStore, findings: Findings) -> None:
        self._store, self._findings = store, findings
        self._replayed = Metadata()
        self._kept = self._load()
        self._log_start = store.checkpoint.log_start if store.checkpoint else 0
        """A snapshot older than what restates the log's deleted part is compared at the end."""
        self._compared = self._kept is None
        self._uncertain = False
        """Whether damage may have hidden changes from the replay."""

    def doubt(self) -> None:
        """Note that damage may have hidden changes from the replay."""
        self._uncertain = True

    def _load(self) -> Metadata | None:
        path = self._store.folder.metadata
        data = self._store.whole(path)
        if data is None:
            if self._store.checkpoint is not None and self._store.keeps_views:
                self._findings.error(path, None, "the metadata snapshot is missing", REBUILD)
            return None
        try:
            kept = Metadata.from_snapshot(data)
        except (ValueError, KeyError, TypeError) as error:
            self._findings.error(path, 0, f"the metadata snapshot is damaged: {error}", REBUILD)
            return None
        checkpoint = self._store.checkpoint
        if checkpoint is not None:  # a snapshot is written only when there was a change
            kept.reach(max(kept.end, checkpoint.metadata_end))
        return kept

    def take(self, data: bytes, view: RecordView) -> str:
        """Take a record of the log, in order; return what is wrong with it, or ""."""
        if view.topic != _META:
            return ""
        place = view.physical_offset
        try:
            changes = decode_changes(data[view.body_at : view.body_at + view.body_size])
            if self._kept is not None and place >= self._kept.end:
                if self._kept.restated >= self._log_start:
                    self._compare()
                self._kept.apply(changes, place)
            self._replayed.apply(changes, place)
        except (ValueError, KeyError, TypeError) as error:
            return f"no metadata changes: {error}"
        return ""

    def finish(self, log_end: int) -> Metadata:
        """Compare what was not compared yet; return the metadata that holds at the log's end."""
        kept = self._kept
        if kept is not None and kept.end > log_end:
            what = f"holds the metadata up to log offset {kept.end}, the log ends at {log_end}"
            self._findings.error(self._store.folder.metadata, None, what, REBUILD)
        self._compare()
        return kept if self._uncertain and kept is not None else self._replayed

    def _compare(self) -> None:
        if self._compared or self._kept is None:
            return
        self._compared = True
        said, is_so = _flat(self._kept), _flat(self._replayed)
        wrong = sorted(key for key in said.keys() | is_so.keys() if said.get(key) != is_so.get(key))
        if not wrong:
            return
        path = self._store.folder.metadata
        names = ", ".join(f"{kind} {key}" for kind, key in wrong[:_NAMED_MAX])
        what = f"differs from the log's replay in {len(wrong)} values: {names}"
        if self._uncertain:
            self._findings.note(path, f"{what}; the log is damaged", "keep the snapshot")
        else:
            self._findings.error(path, None, what, REBUILD)


def _flat(metadata: Metadata) -> dict[tuple[str, str], JSON]:
    return {(kind, key): value for kind, key, value in metadata.whole()}
