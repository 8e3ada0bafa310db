"""`imago cluster report`: what brokers say of a cluster, in one file for who was not there."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

from imago_cli import distribution
from imago_cli.clusters.admin_http import DEFAULT_ADMIN, Admin, ask
from imago_cli.clusters.archive import as_text, lacking, write
from imago_cli.exits import CommandError
from imago_cli.line.declared import Option
from imago_cli.output import counted, print_line, say

if TYPE_CHECKING:
    from collections.abc import Iterator

WHOLE: Final = {
    "cluster.json": "/admin/v1/cluster",
    "brokers.json": "/admin/v1/cluster/brokers",
}
PAGED: Final = {
    "topics.json": "/admin/v1/cluster/topics?limit=500",
    "groups.json": "/admin/v1/cluster/groups?limit=500",
}
OF_EACH: Final = ("config", "shard", "restart-check")
"""Routes that tell of the one broker that is asked."""
PAGES_MAX: Final = 200
"""Of one list: 100,000 topics are enough to understand a cluster."""


def report(
    admin: Admin = DEFAULT_ADMIN,
    file: Annotated[
        Path | None,
        Option("--file", "-f", help="File to write; CLUSTER-report-TIME.tar.gz unless given."),
    ] = None,
) -> None:
    """Write what all brokers say of themselves, topics and groups into one file to hand on.

    No message and no secret is in it; read the file before you pass it on all the same. What could
    not be read is listed in missing.txt. On Kubernetes `kubectl imago report` has the logs, too.
    """
    name = str(ask(admin, WHOLE["cluster.json"])["cluster"])
    now = datetime.now(UTC)
    path = file or Path(f"{name}-report-{now:%Y%m%dT%H%M%SZ}.tar.gz")
    missing: list[str] = []
    files = dict(_files(admin, missing))
    written = write(path, f"{name}-report", files, missing, now)
    for line in missing:
        say(f"missing: {line}")
    print_line(f"{path}: {counted(written, 'file')}{lacking(missing)}")


def _files(admin: str, missing: list[str]) -> Iterator[tuple[str, str]]:
    yield "version.txt", f"imago {distribution.version()}\n"
    found: dict[str, Any] = {}
    for name, path in WHOLE.items():
        found[name] = _asked(admin, path, name, missing)
        yield name, as_text(found[name])
    for name, path in PAGED.items():
        yield name, as_text(list(_pages(admin, path, name, missing)))
    for shard in (found["cluster.json"] or {}).get("shards", ()):
        for member in shard["members"]:
            place = f"brokers/{shard['name']}-{member['replica']}"
            for route in OF_EACH:
                name = f"{place}/{route}.json"
                said = _asked(member["admin"], f"/admin/v1/{route}", name, missing, found=True)
                if said is not None:
                    yield name, as_text(said)


def _asked(
    admin: str, path: str, name: str, missing: list[str], *, found: bool = False
) -> dict[str, Any] | None:
    try:
        return ask(admin, path, found=found)
    except CommandError as error:
        missing.append(f"{name}: {error.message}")
        return None


def _pages(admin: str, path: str, name: str, missing: list[str]) -> Iterator[object]:
    following = ""
    for _ in range(PAGES_MAX):
        said = _asked(admin, path + following, name, missing)
        if said is None:
            return
        yield from said["items"]
        missing.extend(f"{name}: {one['shard']}: {one['why']}" for one in said.get("missing", ()))
        if not said.get("next"):
            return
        following = f"&next={quote(said['next'], safe='')}"
    missing.append(f"{name}: what is behind page {PAGES_MAX}")
