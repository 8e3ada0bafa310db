"""What strangers may do with the nodes of a cluster in ZooKeeper, asked for and tried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kazoo.exceptions import NoAuthError, NoNodeError
from kazoo.security import OPEN_ACL_UNSAFE, Permissions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kazoo.client import KazooClient

ROOTS: Final = ("/imago", "/meta")
READ: Final[int] = Permissions.READ
EXTEND: Final[int] = Permissions.READ | Permissions.CREATE
ALL: Final[int] = Permissions.ALL


def allowed(path: str) -> int:
    """Return the rights that everybody is to have on a node."""
    if path in ROOTS:
        return EXTEND
    if path.startswith("/imago/"):
        return 0
    return READ if f"{path}/".startswith("/meta/brokers/") else ALL


def nodes_below(client: KazooClient, path: str) -> Iterator[str]:
    """Walk a node and all below it."""
    try:
        names = client.get_children(path)
    except NoNodeError:
        return
    yield path
    for name in names:
        yield from nodes_below(client, f"{path}/{name}")


def wrong_rights(insider: KazooClient, paths: Iterable[str], user: str = "brokers") -> list[str]:
    """Return which nodes others may do more or less with than they are to, or our user less."""
    wrong = []
    for path in paths:
        try:
            acls, _ = insider.get_acls(path)
        except NoNodeError:
            continue  # of a session that has ended meanwhile
        everybody = sum(acl.perms for acl in acls if acl.id.scheme == "world")
        ours = [acl.perms for acl in acls if acl.id.id.startswith(f"{user}:")]
        others = [acl for acl in acls if acl.id.scheme not in ("world", "digest")]
        whole = everybody == ALL or ours == [ALL]
        if everybody != allowed(path) or others or not whole:
            wrong.append(f"{path}: {acls}")
    return wrong


def taken(stranger: KazooClient, paths: Iterable[str]) -> list[str]:
    """Try all that nobody else may do with nodes; return what was not refused."""
    done = []
    for path in paths:
        for name, attempt in _attempts(stranger, path).items():
            try:
                attempt()
            except (NoAuthError, NoNodeError):
                continue
            done.append(f"{name} {path}")
    return done


def _attempts(stranger: KazooClient, path: str) -> dict[str, Callable[[], object]]:
    rights = allowed(path)
    attempts: dict[str, Callable[[], object]] = {
        "write": lambda: stranger.set(path, b"mine"),
        "delete": lambda: stranger.delete(path),
        "extend": lambda: stranger.create(f"{path}/mine", b""),
        "read": lambda: stranger.get(path),
        "list": lambda: stranger.get_children(path),
        "give": lambda: stranger.set_acls(path, OPEN_ACL_UNSAFE),
    }
    if path in ROOTS:
        del attempts["delete"]  # the root above is anybody's; what has nodes below it stays anyway
    if rights & READ:
        del attempts["read"], attempts["list"]
    if rights & Permissions.CREATE:
        del attempts["extend"]
    return attempts if rights != ALL else {}
