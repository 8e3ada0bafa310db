"""The store and the replication with limits so small that each of them is met.

What reads, copies or walks in pieces has its mistakes where one piece ends and the next begins. As
shipped a piece is megabytes, and no test writes so much. With `IMAGO_LIMITS=small` the modules of
`SMALL` are compiled with the numbers below in the place of their own, so that what is derived from
them, and defaults of arguments, follow.
"""

from __future__ import annotations

import ast
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import CodeType, ModuleType

_TIMES = {"MS", "SECONDS"}
PACKAGES = ("imago_log", "imago_wire.replication", "imago_broker.replication")

SMALL: dict[str, dict[str, int]] = {
    "imago_log.tier.index": {"CHUNK_BYTES": 700},
    "imago_log.tier.reader": {
        "DIRECTORIES_MAX": 1,
        "DIRECTORIES_BYTES_MAX": 900,
        "QUEUES_MAX": 1,
        "NEAR_MAX": 2,
        "NEAR_BYTES": 900,
    },
    "imago_log.commitlog.borders": {"CHUNK_BYTES": 300},
    "imago_log.offline.keys": {"_WINDOW_ENTRIES": 3},
    "imago_log.offline.records": {"CHUNK_BYTES": 300},
    "imago_log.offline.stopped": {"FILES_OPEN_MAX": 4},
    "imago_log.offline.queues": {"_WINDOW_UNITS": 3},
    "imago_log.commitlog.commit_log": {"PAGE_BYTES": 256, "STARTED_BYTES_MIN": 300},
    "imago_log.replica.realigning": {"_UNITS_AT_ONCE": 3},
    "imago_broker.replication.metaq.copied": {"FETCH_BYTES": 300},
    "imago_broker.replication.metaq.samsa": {"WAITING_BYTES_MAX": 100_000},
    "imago_broker.replication.metaq.slave": {"ASKED_AT_ONCE": 1},
    "imago_log.repair.healing": {"APPLY_BYTES": 900, "APPLY_UNITS_MAX": 3},
    "imago_log.repair.restoring": {"READ_BYTES": 900},
    "imago_log.lifecycle.forced": {"QUEUES_LOOKED_MAX": 2, "QUEUES_TOLD_MAX": 1},
    "imago_log.lifecycle.log_deleter": {"QUEUES_OPENED_MAX": 2},
    "imago_log.writing.write_behind": {
        "BLOCK_BYTES_MIN": 300,
        "KEYS_PENDING_BYTES": 300,
        "RELIEF_INTERVAL_BYTES": 3000,
    },
    "imago_log.commitlog.log_reader": {
        "CHUNK_BYTES": 300,
        "FIND_BYTES": 300,
        "LOOK_BACK_BYTES": 700,
    },
    "imago_log.repair.inspecting": {
        "MEND_BYTES_MAX": 9000,
        "NEIGHBOURS_MAX": 3,
        "UNITS_MAX": 4,
    },
    "imago_log.views.key_index": {"READ_ENTRIES": 3, "WAITING_BYTES_MAX": 300},
    "imago_log.replica.log_bytes": {"CHUNK_BYTES": 300},
    "imago_log.views.units.lost": {"UNITS_AT_ONCE": 3},
    "imago_log.views.directory": {"TAKEN_UP_MAX": 1},
    "imago_log.views.metaq.materialiser": {"LOOKED_AT_MAX": 2, "ROUND_BYTES_MAX": 900},
    "imago_log.views.metaq.metaq_writing": {"BLOCK_BYTES_MAX": 300},
    "imago_log.metadata.changes": {"RECORD_BYTES_MAX": 300},
    "imago_log.metadata.image": {"PIECE": 3},
    "imago_log.metadata.producers": {"STATED_QUEUES_MAX": 2},
    "imago_log.reading.position_reader": {"SLICE_BYTES_MIN": 300},
    "imago_log.views.metaq.metaq_archive": {"READ_BYTES": 100, "ROUND_BYTES_MAX": 900},
    "imago_log.views.metaq.metaq_batch": {"UNITS_AT_ONCE": 3},
    "imago_log.views.metaq.metaq_segments": {"VERIFIED_MAX": 2},
    "imago_log.lifecycle.opening": {"_LOOK_BEHIND_END": 64},
    "imago_log.state": {"RECENT_BYTES_MAX": 700},
    "imago_log.reading.by_reference": {"LOOKED_BYTES_MAX": 900, "REFERENCES_MAX": 3},
    "imago_log.reading.rereading": {"LOOKS_MAX": 64},
    "imago_log.views.queues.queues": {"LISTED_TOPICS_MAX": 2},
    "imago_log.views.queues.queue_writing": {"LOOKED_AT_MAX": 3, "WRITES_MAX": 2},
    "imago_log.reading.by_offset": {"FILTERED_UNITS_MAX": 5, "UNITS_AT_ONCE": 3},
    "imago_log.reading.by_properties": {
        "EXAMINED_MAX": 5,
        "EXAMINED_BYTES_MAX": 600,
        "WORK_MAX": 600,
        "UNITS_AT_ONCE": 3,
    },
    "imago_log.commitlog.records": {
        "BLOCK_BYTES": 700,
        "BLOCKS_MAX": 2,
        "OVERLAP_BYTES": 300,
        "GAP_BYTES_MAX": 200,
        "SHARED_BYTES_MIN": 300,
        "SHARED_GAP_MAX": 300,
        "WINDOW_BYTES_MAX": 500,
    },
    "imago_log.lifecycle.scrubbing": {"BLOCK_BYTES": 300, "STEP_BYTES_MIN": 300},
    "imago_log.lifecycle.view_sync": {"FILES_AT_ONCE": 2},
    "imago_log.views.units.unit_files": {"STEP": 60},
    "imago_broker.replication.leader.leader_session": {"METADATA_FRAME_BYTES": 300},
    "imago_broker.replication.links.link": {"RECEIVE_BYTES": 300},
    "imago_broker.replication.repair": {"CHUNK_BYTES": 300},
    "imago_broker.replication.links.secure_link": {"CHUNK_BYTES": 300, "READ_BYTES": 300},
    "imago_broker.replication.leader.sending": {
        "FAR_BYTES": 600,
        "FRAME_BYTES": 300,
        "TURN_BYTES": 600,
        "WINDOW_BYTES": 900,
    },
}
"""By module: constants and what they are here."""

_FORMAT = "part of a format"
_COUNT = "a count that nothing is cut by"
KEPT: dict[str, dict[str, str]] = {
    "imago_log.commitlog.borders": {"_PLACE_AT": _FORMAT},
    "imago_log.commitlog.checkpoint": {"MAGIC": _FORMAT, "SLOT_SIZE": _FORMAT},
    "imago_log.lifecycle.formats": {"_HEAD_BYTES": _FORMAT},
    "imago_log.offline.findings": {"PER_FILE_MAX": _COUNT},
    "imago_log.offline.queues": {"UNITS_PER_FILE": _FORMAT},
    "imago_log.commitlog.commit_log": {
        "FILES_MAX": "what a log can span at most",
        "STARTED_PARTS_MAX": _COUNT,
    },
    "imago_log.tier.manifest": {"SEGMENTS_MAX": "what a log can span at most"},
    "imago_log.config": {
        "FILES_OPEN_MAX": _COUNT,
        "SEGMENT_BYTES_MIN": "what the tests' files have",
    },
    "imago_log.views.units.unit_lookup": {"READ_ENDS_MAX": _COUNT},
    "imago_log.disk.files": {
        "OFFSET_DIGITS": _FORMAT,
        "ROOM_BYTES": "a block of a file system",
    },
    "imago_log.lifecycle.view_sync": {"SYNC_REST": "a ratio"},
    "imago_log.repair.inspecting": {"JOBS_MAX": _COUNT, "POLLS_MAX": _COUNT},
    "imago_log.views.key_index": {"ENTRIES_PER_FILE": _FORMAT},
    "imago_log.views.metaq.materialiser": {
        "BACKLOG_BYTES_MAX": "what is older is left out, not cut"
    },
    "imago_log.metadata.changes": {
        "CHANGE_BYTES_MAX": "what nothing may pass",
        "NAME_BYTES_MAX": _FORMAT,
        "UNIQUE_FROM": _FORMAT,
    },
    "imago_log.commitlog.watermark": {"ALL_VISIBLE": "no limit"},
    "imago_log.metadata.known_producers": {"RUNS_MAX": _COUNT, "QUEUES_MAX": _COUNT},
    "imago_log.views.dispatcher": {"REVIVED_QUEUES_MAX": "what no topic passes"},
    "imago_log.views.units.found_ends": {"PLACE_MAX": "behind the end of any log"},
    "imago_log.views.units.witness": {"ALL_UNITS": "no limit"},
    "imago_log.disk.space": {"PROBE_BYTES": "what a disk is asked for"},
    "imago_log.views.units.unit_files": {"BLANK_SIZE_FIELD": _FORMAT, "UNITS_PER_FILE": _FORMAT},
    "imago_log.disk.vfs": {"OTHERS": "bits of a mode"},
    "imago_wire.replication.frames": {
        "EPOCHS_MAX": _FORMAT,
        "HANDSHAKE_BYTES_MAX": _FORMAT,
        "PAYLOAD_BYTES_MAX": _FORMAT,
        "SMALL_BYTES_MAX": _FORMAT,
        "TEXT_BYTES_MAX": _FORMAT,
    },
    "imago_broker.replication.links.addresses": {"NAMES_MAX": _COUNT, "OWN_MAX": _COUNT},
    "imago_broker.replication.effect_executor": {"NOTES_MAX": _COUNT},
    "imago_broker.replication.failures": {"REASON_CHARS_MAX": _COUNT},
    "imago_broker.replication.follower.follower_session": {
        "SNAPSHOT_BYTES_MAX": "what nothing may pass",
    },
    "imago_broker.replication.leader.buffer_pool": {"ENDS_KEPT": _COUNT},
    "imago_broker.replication.links.link": {
        "BUFFERS_MAX": _COUNT,
        "UNREAD_BYTES_MAX": "what nothing may pass",
    },
    "imago_broker.replication.links.member_tls": {"NAMED_MAX": _COUNT},
    "imago_broker.replication.metaq.copied": {"FETCH_BYTES_MAX": "what no message may pass"},
    "imago_broker.replication.metaq.samsa": {
        "BODY_BYTES_MAX": "what no answer may pass",
        "LINE_BYTES_MAX": "what no answer may pass",
        "_OPAQUE_MAX": _FORMAT,
    },
    "imago_broker.replication.links.port": {
        "BACKLOG": _COUNT,
        "CONNECTIONS_MAX": _COUNT,
        "NAMED_MAX": _COUNT,
        "SILENT_MAX": _COUNT,
        "SILENT_MEMBERS_MAX": _COUNT,
        "SILENT_PER_ADDRESS_MAX": _COUNT,
    },
    "imago_broker.replication.follower.receiving": {
        "UNFINISHED_BYTES_MAX": "what nothing may pass"
    },
    "imago_broker.replication.repair": {
        "WHOLE_BYTES_MAX": "what no record may pass",
    },
    "imago_broker.replication.shell": {"REQUESTS_MAX": _COUNT},
    "imago_log.reading.by_properties": {"FIXED_WORK": "a weight, nothing that is read at once"},
}
"""By module: constants that stay, and why."""


class _Loader(SourceFileLoader):
    """Compiles a module with other numbers; nothing of it is kept on disk."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        tree = ast.parse(self.get_data(path), path)
        small = dict(SMALL[fullname])
        for name, node in assigned(tree):
            if name in small:
                node.value = ast.copy_location(ast.Constant(small.pop(name)), node)
        assert not small, f"{fullname} has no {', '.join(small)}: take it out of SMALL"
        return compile(tree, path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in SMALL:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin)
        return spec


def install() -> None:
    """Compile what is imported from now on with the numbers of `SMALL`."""
    loaded = sys.modules.keys() & SMALL.keys()
    assert not loaded, f"imported already: {', '.join(sorted(loaded))}"
    sys.meta_path.insert(0, _Finder())


def constants() -> Iterator[tuple[str, str, int]]:
    """Yield each number that a module names, times aside: module, name, value."""
    for package in PACKAGES:
        spec = find_spec(package)
        assert spec is not None
        assert spec.submodule_search_locations is not None
        for module in walk_packages(spec.submodule_search_locations, f"{package}."):
            found = find_spec(module.name)
            assert found is not None
            assert found.origin is not None
            if not found.origin.endswith(".py"):
                continue
            for name, node in assigned(ast.parse(Path(found.origin).read_text())):
                value = _number(node.value)
                if value is not None and not _TIMES.intersection(name.split("_")):
                    yield module.name, name, value


def assigned(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    """Yield the names in capitals that a module assigns, and the statements."""
    for node in tree.body:
        target: ast.expr | None = None
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
        elif isinstance(node, ast.AnnAssign):
            target = node.target
        if isinstance(target, ast.Name) and target.id.isupper():
            yield target.id, node


def _number(node: ast.expr | None) -> int | None:
    """Return the value of an expression of whole numbers, else None."""
    kinds = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    if node is None or not all(isinstance(part, kinds) for part in ast.walk(node)):
        return None
    value = eval(compile(ast.Expression(node), "<constant>", "eval"))
    return value if isinstance(value, int) and not isinstance(value, bool) else None
