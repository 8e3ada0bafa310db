"""Show the records of a stopped store, offline and without changing anything.

Read from the log itself, so records are seen also where a queue's files are damaged. What cannot
be read is passed over and named.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_log.metadata.changes import META_TOPIC, SECRET_KINDS, decode_changes, encode_changes
from imago_log.offline.records import blocks, look_behind
from imago_log.offline.stopped import NotADataFolderError, StoppedStore
from imago_wire.compression import inflate
from imago_wire.errors import ProtocolError, WrongError
from imago_wire.record_format.layout import BODY_BYTES_MAX, SYS_COMPRESSED
from imago_wire.record_format.properties import METAQ_ID, METAQ_POS
from imago_wire.records.record import ScanStop, StoredMessage, decode_record, host_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imago_log.metadata.changes import JSON
    from imago_log.offline.records import Block
    from imago_wire.records.record import RecordView

__all__ = ["NotADataFolderError", "Unreadable", "dump", "readable_body", "to_json"]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Where records were and are not whole: from one log offset to another."""

    start: int
    end: int
    file: Path
    reason: str


def dump(
    data_dir: Path,
    *,
    topic: str | None = None,
    queue_id: int | None = None,
    start: int = 0,
    count: int | None = None,
) -> Iterator[StoredMessage | Unreadable]:
    """Return records in log order, at most `count`, all or those of a topic or a queue.

    `start` is a log offset, and the queue offset of the first record where a queue is given. The
    broker's own records (`IMAGO_META`) are among them when no topic is given. Errors: as `check`.
    """
    if queue_id is not None and topic is None:
        raise WrongError("a queue is a topic's: a topic is needed too")
    store = StoppedStore(data_dir)
    return _Dump(store, topic, queue_id, start).run(count)


class _Dump:
    """One walk through the log."""

    def __init__(
        self, store: StoppedStore, topic: str | None, queue_id: int | None, start: int
    ) -> None:
        self._store, self._log = store, store.log
        self._topic = None if topic is None else topic.encode()
        self._queue_id, self._start = queue_id, start

    def run(self, count: int | None) -> Iterator[StoredMessage | Unreadable]:
        try:
            left = -1 if count is None else count
            for found in self._records() if left else ():
                yield found
                left -= isinstance(found, StoredMessage)
                if not left:
                    return
        finally:
            self._store.close()

    def _records(self) -> Iterator[StoredMessage | Unreadable]:
        checkpoint = self._store.checkpoint
        log_start = checkpoint.log_start if checkpoint else 0
        by_offset = self._queue_id is None
        for base in self._log.bases(max(log_start, self._start if by_offset else 0)):
            yield from self._file(base)

    def _file(self, base: int) -> Iterator[StoredMessage | Unreadable]:
        at, limit = base, base + self._log.segment_size
        while at < limit:
            last: Block | None = None
            for block in blocks(self._log, at, limit):
                for view in block.views:
                    if self._wanted(view):
                        yield decode_record(block.data, view.at)
                last = block
            assert last is not None, "there is always a block"
            if last.stop is ScanStop.BLANK:
                return
            place, written = look_behind(self._log, last.end, limit)
            if place is None and not written:
                return
            at = limit if place is None else place
            yield Unreadable(last.end, at, self._log.path(base), last.reason or "a cut record")

    def _wanted(self, view: RecordView) -> bool:
        if self._topic is not None and view.topic != self._topic:
            return False
        if self._queue_id is None:
            return view.physical_offset >= self._start
        return view.queue_id == self._queue_id and view.queue_offset >= self._start


def to_json(found: StoredMessage | Unreadable) -> dict[str, JSON]:
    """Return what `imago log dump --json` prints of a record, or of a place without one.

    A body that is UTF-8 is `body`, any other `bodyBase64`; a compressed one is inflated.
    """
    if isinstance(found, Unreadable):
        return {
            "logOffset": found.start,
            "unreadableTo": found.end,
            "file": str(found.file),
            "reason": found.reason,
        }
    properties = found.properties
    value: dict[str, JSON] = {
        "logOffset": found.physical_offset,
        "size": found.size,
        "topic": found.topic,
        "queue": found.queue_id,
        "queueOffset": found.queue_offset,
        "storeMs": found.store_ms,
        "bornMs": found.born_ms,
        "bornHost": host_text(found.born_host),
        "storeHost": host_text(found.store_host),
        "flag": found.flag,
        "sysFlag": found.sys_flag,
        "reconsumeTimes": found.reconsume_times,
        "preparedOffset": found.prepared_offset,
        "messageId": found.offset_message_id,
        "properties": properties,
    }
    for name, key in (("metaqPosition", METAQ_POS), ("metaqId", METAQ_ID)):
        if key in properties:
            value[name] = int(properties[key], 16)
    body = readable_body(found)
    try:
        value["body"] = body.decode()
    except UnicodeDecodeError:
        value["bodyBase64"] = b64encode(body).decode()
    return value


def readable_body(found: StoredMessage) -> bytes:
    """Return the body, inflated where it is compressed and can be; secrets are left out."""
    if found.topic == META_TOPIC:
        return _without_secrets(found.body)
    if not found.sys_flag & SYS_COMPRESSED:
        return found.body
    try:
        return inflate(found.body, found.sys_flag, BODY_BYTES_MAX)
    except ProtocolError:
        return found.body


def _without_secrets(body: bytes) -> bytes:
    """Return changes of metadata with "hidden" for the values that let somebody in."""
    try:
        changes = decode_changes(body)
    except ValueError:
        return body
    if not any(kind in SECRET_KINDS for kind, _, _ in changes):
        return body
    shown = [
        (kind, key, "hidden" if kind in SECRET_KINDS else value) for kind, key, value in changes
    ]
    return b"\n".join(encode_changes(shown))
