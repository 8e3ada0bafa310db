"""The small files: checkpoint, epochs, marks, and leftovers of interrupted work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.commitlog.checkpoint import FILE_SIZE, SLOT_SIZE, Checkpoint, decode_slot
from imago_log.commitlog.damage import decode_ranges
from imago_log.commitlog.epochs import damaged_path, decode_epochs
from imago_log.disk.folder import LastStop
from imago_log.offline.findings import REBUILD, RESTORE, START, Severity

if TYPE_CHECKING:
    from imago_log.offline.findings import Findings
    from imago_log.offline.log_files import LogCheck
    from imago_log.offline.stopped import StoppedStore

_SLOT_USED = 16 + 8 * len(Checkpoint.__slots__) + 4
"""Bytes of a slot before its zeros, checksum included."""
_COPIED_AGAIN = ": the log begins a new epoch, a follower copies its leader's log again"


def check_marks(store: StoppedStore, findings: Findings) -> None:
    """How the last broker stopped, and its leftovers."""
    root = store.root
    if store.last_stop is LastStop.KILLED:
        findings.note(root / "abort", "the last broker was killed: the next start recovers")
    elif store.last_stop is LastStop.POWER_LOST:
        what = "the last broker did not stop in order, and the machine was started again since"
        findings.note(root / "abort", what)
    if not store.vfs.exists(root / "lock"):
        what = "there is no lock file: a copy, or a folder that no broker has opened"
        findings.note(root / "lock", what)
    if store.checkpoint is not None and not store.vfs.exists(store.folder.config / "views"):
        what = "is missing: the next start builds all views again"
        findings.note(store.folder.config / "views", what)
    elif store.checkpoint is not None and store.clean and not store.folder.views_agree():
        what = "folders of queues have come or gone since the last stop"
        findings.warn(store.folder.config / "views", None, f"{what}: views are built again")
    _check_damage_note(store, findings)
    _check_leftovers(store, findings)


def _check_damage_note(store: StoppedStore, findings: Findings) -> None:
    path = store.folder.damage
    data = store.whole(path)
    if data is None:
        return
    try:
        for start, end, _, reason in decode_ranges(data):
            findings.note(path, f"log offsets {start} to {end} are out of service: {reason}")
    except (ValueError, KeyError, TypeError) as error:
        what = f"is damaged ({error}): the whole log is read at the next start"
        findings.error(path, None, what, START)


def _check_leftovers(store: StoppedStore, findings: Findings) -> None:
    for folder in (store.root, store.folder.config):
        for name in store.vfs.names(folder):
            if name.endswith(".new") and any(store.whole(folder / name) or b""):
                findings.note(folder / name, "left by a write that was interrupted")
    if store.vfs.names(store.folder.trash):
        findings.note(store.folder.trash, "holds deleted topics that are not removed yet")


def check_checkpoint(store: StoppedStore, findings: Findings) -> None:
    """Both slots of the checkpoint."""
    path, data = store.folder.checkpoint, store.checkpoint_data
    if not data:
        cure = "none needed: the next start reads the whole log and builds all views again"
        severity = Severity.ERROR if data is None and store.log.sizes else Severity.NOTE
        findings.add(severity, path, None, "there is no checkpoint", cure)
        return
    if len(data) not in (FILE_SIZE, FILE_SIZE - SLOT_SIZE):
        findings.error(path, min(len(data), FILE_SIZE), f"{len(data)} bytes", REBUILD)
    severity = Severity.ERROR if store.clean else Severity.WARNING
    for at in range(0, min(len(data), FILE_SIZE), SLOT_SIZE):
        slot = data[at : at + SLOT_SIZE]
        decoded = decode_slot(slot)
        if decoded is None and any(slot):
            what = "this half of the checkpoint is damaged: the other one counts"
            findings.add(severity, path, at, what, START)
        elif any(slot[_SLOT_USED:]):
            behind = next(place for place in range(_SLOT_USED, SLOT_SIZE) if slot[place])
            findings.error(path, at + behind, "not zero behind the checksum", START)
    if store.checkpoint is None and any(data):
        cure = "none needed: the next start reads the whole log and builds all views again"
        findings.error(path, None, "no half of the checkpoint is whole", cure)


def check_against_log(store: StoppedStore, findings: Findings, log: LogCheck) -> None:
    """Checkpoint and epochs, against the log."""
    checkpoint, path = store.checkpoint, store.folder.checkpoint
    if checkpoint is not None:
        ends = {
            "durable_end": checkpoint.durable_end,
            "views_synced": checkpoint.views_synced,
            "keys_end": checkpoint.keys_end,
        }
        for name, end in ends.items():
            if end > log.end:
                what = f"{name} is {end}, the log ends at {log.end}"
                findings.error(path, None, what, RESTORE)
        if checkpoint.store_ms > log.store_ms and log.records and store.clean:
            what = f"newest store time {checkpoint.store_ms}, in the log it is {log.store_ms}"
            findings.error(path, None, what, START)
        elif (
            store.clean
            and store.keeps_views
            and (checkpoint.store_ms, checkpoint.metaq_id) < (log.store_ms, log.metaq_id)
        ):
            what = f"newest MetaQ id {checkpoint.metaq_id}, in the log it is {log.metaq_id}"
            findings.error(path, None, what, REBUILD)
    _check_epochs(store, findings, log)


def _check_epochs(store: StoppedStore, findings: Findings, log: LogCheck) -> None:
    path, data = store.folder.epochs, store.whole(store.folder.epochs)
    aside = damaged_path(path)
    if store.vfs.exists(aside):
        what = "an epoch file that could not be used: the log went on without what it said"
        findings.note(aside, f"{what}; remove it when you have looked into it")
    if data is None:
        if store.checkpoint is not None:
            findings.error(path, None, f"the epoch file is missing{_COPIED_AGAIN}", START)
        return
    try:
        epochs, promised = decode_epochs(data)
    except ValueError as error:
        findings.error(path, 0, f"the epoch file is damaged ({error}){_COPIED_AGAIN}", START)
        return
    if epochs and epochs[-1][1] > log.end:
        what = f"epoch {epochs[-1][0]} begins at {epochs[-1][1]}, the log ends at {log.end}"
        findings.error(path, None, what, RESTORE)
    if epochs and epochs[0][1] > log.start:
        what = f"the first epoch begins at {epochs[0][1]}, the log at {log.start}"
        findings.error(path, None, what, RESTORE)
    if store.checkpoint is not None and promised < store.checkpoint.epoch:
        what = f"promises epoch {promised}, the checkpoint is of epoch {store.checkpoint.epoch}"
        findings.error(path, None, what, RESTORE)
