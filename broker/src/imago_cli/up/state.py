"""What a data folder remembers of the cluster in it, and who may use the folder."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imago_cli.exits import CommandError, CommandUsageError, Exit
from imago_cli.output import NO_ROOM, counted
from imago_cli.up.access import TOKEN_FILE
from imago_cli.up.configs import CONFIGS
from imago_cli.up.plan import OWN_ZOOKEEPER, ClusterPlan
from imago_log.disk.vfs import make_private
from imago_wire.errors import in_our_words

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_DATA = Path("imago-data")
FORMAT = 1
_FILE = "cluster.json"
_LOCK = "up.lock"
_BEFORE_A_START = {_LOCK, CONFIGS, TOKEN_FILE}
"""What is written before the first process starts."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder for as long as the block lasts; UsageError when another process has it.

    A folder that a refused command made is removed.
    """
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except (FileExistsError, NotADirectoryError) as error:
        raise CommandUsageError(
            f"--data {folder}: is no folder", cure="give another --data"
        ) from error
    except OSError as error:
        raise CommandUsageError(
            f"--data {folder}: {error.strerror}", cure="give a folder that you may write to"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CommandUsageError(
                f"{folder} is locked by another imago up",
                cure=f"stop that one (imago down --data {folder}), or give another --data",
            ) from error
        if (folder / _FILE).exists():
            make_private(folder)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, b"%d\n" % os.getpid())
        yield
    except CommandUsageError:
        if made and {path.name for path in folder.iterdir()} <= _BEFORE_A_START:
            shutil.rmtree(folder)
        raise
    finally:
        os.close(descriptor)


def runner(folder: Path) -> int | None:
    """Return the process that holds the folder; None when none does."""
    try:
        with (folder / _LOCK).open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(lock.read() or b"0") or None  # it has just come: not a cluster yet
    except FileNotFoundError:
        return None
    return None


@contextmanager
def room(folder: Path) -> Iterator[None]:
    """Name the folder where its disk takes nothing more: the system does not say which file."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno not in NO_ROOM:
            raise
        raise CommandError(
            f"--data {folder}: {error.strerror}",
            cure="free space on its disk, or give another --data",
        ) from error


def plan(
    folder: Path,
    *,
    shards: int | None,
    replicas: int | None,
    cluster: str | None,
    zookeeper: str | None,
    port_base: int | None,
) -> ClusterPlan:
    """Return the cluster that is in the folder, or the new one that was asked for.

    What is not given is as it was; what contradicts the data is refused.
    """
    before = _read(folder / _FILE)
    if before:
        _refuse_other_cluster(folder, before, cluster, shards=shards, replicas=replicas)
    return ClusterPlan(
        data=folder,
        cluster=_given(cluster, before.get("cluster", "imago")),
        shards=_given(shards, before.get("shards", 1)),
        replicas=_given(replicas, before.get("replicas", 1)),
        zookeeper=_given(zookeeper, before.get("zookeeper", OWN_ZOOKEEPER)),
        port_base=_given(port_base, before.get("port_base")),
    )


def remembered(folder: Path) -> ClusterPlan:
    """Return the cluster that is in the folder, or the usual one."""
    return plan(folder, shards=None, replicas=None, cluster=None, zookeeper=None, port_base=None)


def remember(plan: ClusterPlan) -> None:
    """Write down what is in the folder."""
    value = {
        "format": FORMAT,
        "cluster": plan.cluster,
        "shards": plan.shards,
        "replicas": plan.replicas,
        "zookeeper": plan.zookeeper,
        "port_base": plan.port_base,
    }
    path = plan.data / _FILE
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(value) + "\n")
    temporary.replace(path)


def _given(value: object, otherwise: Any) -> Any:
    return otherwise if value is None else value


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise _damaged(path, in_our_words(error, "no JSON")) from error
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise _damaged(path, f"not of format {FORMAT}")
    value.setdefault("replicas", 1)
    kinds = {"cluster": str, "zookeeper": str, "port_base": int | None}
    kinds |= {"shards": int, "replicas": int}
    if wrong := [key for key, kind in kinds.items() if not isinstance(value.get(key), kind)]:
        raise _damaged(path, f"{wrong[0]} is missing or of the wrong kind")
    return value


def _damaged(path: Path, reason: str) -> CommandError:
    return CommandError(
        f"{path} cannot be understood: {reason}",
        cure="restore it, or delete it: shards and ports must then be given again",
        code=Exit.DATA,
    )


def _refuse_other_cluster(
    folder: Path,
    before: dict[str, Any],
    cluster: str | None,
    *,
    shards: int | None,
    replicas: int | None,
) -> None:
    if cluster not in (None, before["cluster"]):
        raise CommandUsageError(
            f"{folder} holds cluster {before['cluster']}, not {cluster}",
            cure="give another --data for another cluster",
        )
    surplus = range(before["shards"] if shards is None else shards, before["shards"])
    if any(path for shard in surplus for path in _folders(folder, shard)):
        raise CommandUsageError(
            f"{folder} holds {counted(before['shards'], 'shard')}: with {shards}, their messages "
            "would be lost",
            cure=f"--shards {before['shards']}; or drain those that shall go, and delete their "
            "folders once they are drained",
        )
    if replicas is not None and replicas < before["replicas"]:
        raise CommandUsageError(
            f"{folder} holds {counted(before['replicas'], 'member')} of each shard: a missing "
            "one may be the one with all that was acknowledged",
            cure=f"--replicas {before['replicas']}",
        )


def _folders(folder: Path, shard: int) -> Iterator[Path]:
    """Yield the data folders of a shard's members."""
    yield from folder.glob(f"shard-{shard}")
    yield from folder.glob(f"shard-{shard}-*")


def running_folders() -> list[Path]:
    """Return the folders of the clusters that `imago up` runs on this machine, as Linux shows."""
    found: set[Path] = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended, or is somebody else's
        if b"imago_cli" not in words or b"--config" not in words[:-1]:
            continue
        config = Path(os.fsdecode(words[words.index(b"--config") + 1]))
        if config.is_absolute() and (config.parent.parent / _FILE).is_file():
            found.add(config.parent.parent)
    return sorted(found)
