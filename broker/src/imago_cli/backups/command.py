"""`imago backup`: take, show, check, restore and delete backups of a cluster."""

from __future__ import annotations

import sys
import time
from pathlib import Path  # noqa: TC003  a type of what the command takes
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

from imago_cli.backups.buckets import (
    BucketPlace,
    CaFile,
    Credentials,
    Endpoint,
    From,
    OptionalFrom,
    Region,
    manifest,
    print_backups,
    run,
)
from imago_cli.clusters.admin_http import DEFAULT_ADMIN, Admin, ask
from imago_cli.connect import AsJson, Yes, confirm
from imago_cli.exits import CommandError, CommandUsageError, Exit
from imago_cli.line.declared import Argument, CommandGroup, Option
from imago_cli.output import counted, print_json, print_line, print_table, say
from imago_cli.times import TIME_HELP, second, time_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from imago_backup.format import BackupManifest
    from imago_backup.verifying import BadObject
    from imago_objects import Objects

PATH: Final = "/admin/v1/cluster/backups"
LOOK_SECONDS: Final = 1.0
TRIES: Final = 5
"""How often a part is given to a member again, of those that were interrupted."""
_DAY_MS: Final = 86_400_000

Name = Annotated[str, Argument(help="Name of the backup.")]
NameOrLatest = Annotated[
    str, Argument(help="Name of the backup; `latest`: the newest complete one.")
]


def attach(root: CommandGroup) -> None:
    """Add the group of commands."""
    group = CommandGroup("Take, show, check, restore and delete backups of a cluster.")
    group.add("create", create)
    group.add("list", list_backups)
    group.add("show", show)
    group.add("verify", verify)
    group.add("restore", restore)
    group.add("delete", delete)
    group.add("prune", prune)
    root.add("backup", group)


def create(
    name: Annotated[str | None, Argument(help="Its name; by default the time, UTC.")] = None,
    rate: Annotated[
        str, Option(help="How fast each member may read: 20MiB a second; 0: no bound.")
    ] = "",
    wait: Annotated[bool, Option(help="Wait until it is complete.")] = True,
    admin: Admin = DEFAULT_ADMIN,
    as_json: AsJson = False,
) -> None:
    """Take a backup of the running cluster into what its brokers have as backup.url.

    A member of each shard that follows in sync sends its log up to what is readable now, if there
    is one, else the master does; what earlier backups hold is not sent again. The same name once
    more goes on with a backup that was interrupted.
    """
    name = name or time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    body = {} if not rate else {"bytesASecond": _bytes(rate)}
    answer = ask(admin, f"{PATH}/{quote(name, safe='')}", body)
    tries = 0
    while wait and answer["state"] in ("running", "interrupted"):
        if answer["state"] == "interrupted":
            tries += 1
            if tries > TRIES:
                break
            answer = ask(admin, f"{PATH}/{quote(name, safe='')}", body)
        _progress(answer)
        time.sleep(LOOK_SECONDS)
        answer = ask(admin, f"{PATH}/{quote(name, safe='')}")
    if as_json:
        print_json(answer)
    else:
        _print(answer)
        _say_lacking(
            [
                f"{name} {each['lacks']}"
                for name, each in answer["shards"].items()
                if each.get("lacks")
            ]
        )
    if wait and answer["state"] != "done":
        failed = next((each["error"] for each in answer["shards"].values() if each["error"]), "")
        raise CommandError(
            f"the backup {name} is not complete: {failed or 'its members have gone'}",
            cure=f"imago backup create {name}: it goes on where it was",
        )


def list_backups(
    source: OptionalFrom = None,
    endpoint: Endpoint = "",
    region: Region = "",
    credentials_folder: Credentials = None,
    ca_file: CaFile = None,
    admin: Admin = DEFAULT_ADMIN,
    as_json: AsJson = False,
) -> None:
    """List the backups of a cluster, or those in a bucket or folder, the oldest first."""
    if source is None:
        answer = ask(admin, PATH)
    else:
        place = BucketPlace(source, endpoint, region, credentials_folder, ca_file)
        answer = run(place, _listed)
    if as_json:
        print_json(answer)
    else:
        print_backups(answer["items"], answer["incomplete"])


def show(
    name: Name,
    source: OptionalFrom = None,
    endpoint: Endpoint = "",
    region: Region = "",
    credentials_folder: Credentials = None,
    ca_file: CaFile = None,
    admin: Admin = DEFAULT_ADMIN,
    as_json: AsJson = False,
) -> None:
    """Show a backup: its shards, from when to when, and how far one is that is being taken."""
    if source is None:
        answer = ask(admin, f"{PATH}/{quote(name, safe='')}")
    else:
        place = BucketPlace(source, endpoint, region, credentials_folder, ca_file)

        async def shown(bucket: Objects) -> dict[str, Any]:
            return (await manifest(bucket, name)).to_json() | {"state": "done"}

        answer = run(place, shown)
    if as_json:
        print_json(answer)
    else:
        _print(answer)


def verify(
    source: From,
    name: NameOrLatest = "latest",
    quick: Annotated[bool, Option(help="Only that everything is there, with its size.")] = False,
    endpoint: Endpoint = "",
    region: Region = "",
    credentials_folder: Credentials = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Read a backup in its bucket, each record's checksum too, and say what is not whole.

    Asks no broker. Exit code 3: something is damaged or missing; a restore would stop there.
    """
    from imago_backup import verifying

    async def checked(bucket: Objects) -> tuple[BackupManifest, list[BadObject]]:
        backup, found = await manifest(bucket, name), []
        async for step in verifying.verify(bucket, backup, quick=quick):
            found += step.found
            _show_bytes(f"{step.shard}: checked", step.done, step.total)
        return backup, found

    place = BucketPlace(source, endpoint, region, credentials_folder, ca_file)
    backup, found = run(place, checked)
    lacks = lacking(backup)
    if as_json:
        print_json(
            {
                "backup": backup.name,
                "ok": not found,
                "lacks": lacks,
                "findings": [
                    {
                        "object": each.name,
                        "position": each.position,
                        "file": each.file,
                        "filePosition": each.file_position,
                        "what": each.reason,
                    }
                    for each in found
                ],
            }
        )
    elif found:
        rows = [
            (each.name if each.position is None else f"{each.name}:{each.position}",
             f"{each.file}:{each.file_position}" if each.file else "", each.reason)
            for each in found
        ]  # fmt: skip
        print_table(backup.name, ("object", "file of the log", "what"), rows)
    else:
        print_line(f"{backup.name}: everything is whole")
    _say_lacking(lacks)
    sys.exit(Exit.DATA if found else Exit.DONE)


def restore(
    source: From,
    to: Annotated[Path, Option("--to", help="Empty folder to restore into.")],
    name: NameOrLatest = "latest",
    shard: Annotated[
        str | None,
        Option(help="This shard alone, --to being its data folder; else a folder for each."),
    ] = None,
    until: Annotated[
        str | None, Option(help=f"Nothing that was stored later: {TIME_HELP}.")
    ] = None,
    once: Annotated[
        bool, Option(help="Do nothing, and well, where there is a data folder already.")
    ] = False,
    endpoint: Endpoint = "",
    region: Region = "",
    credentials_folder: Credentials = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Make data folders of a backup, for one member of each shard of a new cluster.

    Asks no broker, and writes over nothing. The same command goes on where it was interrupted; no
    broker starts on a folder before it is whole. Begin with an empty ZooKeeper, start these members
    alone, and add the others when they lead.
    """
    from imago_backup.restoring import Restored, RestoreOrder, ShardRestore

    until_ms = None if until is None else _time(until)

    async def restored(bucket: Objects) -> list[Restored]:
        backup = await manifest(bucket, name)
        lacks.extend(lacking(backup))
        if shard is not None and shard not in backup.shards:
            known = ", ".join(backup.shards)
            raise CommandError(f"the backup {backup.name} has no {shard}", cure=f"one of {known}")
        done = []
        for each in backup.shards if shard is None else [shard]:
            folder = to if shard is not None else to / each
            if once and is_data_folder(folder):
                say(f"{folder} is a data folder already: nothing was done")
                continue
            order = RestoreOrder(backup=backup, shard=each, folder=folder, until_ms=until_ms)
            done.append(await ShardRestore(bucket, order, _show_bytes).run())
        return done

    lacks: list[str] = []
    place = BucketPlace(source, endpoint, region, credentials_folder, ca_file)
    try:
        done = run(place, restored)
    except OSError as error:
        raise CommandError(
            f"{error.filename or to}: {error.strerror}",
            cure="see to the disk, empty the folder, and repeat the command",
            code=Exit.IO,
        ) from error
    if as_json:
        print_json([
            {"shard": each.shard, "folder": str(each.folder), "logEnd": each.end,
             "newestAt": each.newest_ms, "segmentBytes": each.segment_bytes}
            for each in done
        ])  # fmt: skip
        return
    for each in done:
        print_line(
            f"{each.folder}: {each.shard} up to {second(each.newest_ms)}; its files have"
            f" store.segment_bytes_max={each.segment_bytes}"
        )
    _say_lacking(lacks)


def delete(
    name: Name,
    admin: Admin = DEFAULT_ADMIN,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete a backup, or what was begun of one. What other backups hold too stays."""
    confirm(f"Delete the backup {name}?", yes=yes)
    answer = ask(admin, f"{PATH}/{quote(name, safe='')}", method="DELETE")
    if as_json:
        print_json(answer)
    else:
        say(f"{name} is gone; what no other backup holds goes now")


def prune(
    keep: Annotated[int, Option(least=1, help="The newest so many stay.")],
    keep_days: Annotated[
        float, Option(least=0, help="Those of the last so many days stay, too.")
    ] = 0,
    admin: Admin = DEFAULT_ADMIN,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete the old backups of a cluster: all but the newest, and those of the last days.

    What was begun more than a day ago and never completed goes as well.
    """
    answer = ask(admin, PATH, seconds_max=60)
    since_ms = time.time_ns() // 1_000_000 - int(keep_days * _DAY_MS)
    gone = [*expired(answer["items"], keep=keep, since_ms=since_ms), *answer["abandoned"]]
    if gone:
        confirm(f"Delete {counted(len(gone), 'backup')}: {', '.join(gone)}?", yes=yes)
    for name in gone:
        ask(admin, f"{PATH}/{quote(name, safe='')}", method="DELETE")
    if as_json:
        print_json({"deleted": gone})
    else:
        say(f"{counted(len(gone), 'backup')} deleted")


def expired(items: Iterable[Mapping[str, Any]], *, keep: int, since_ms: int) -> list[str]:
    """Return which complete backups go: all but the newest, and those begun since then."""
    newest = sorted(items, key=lambda each: (each["startedAt"], each["backup"]), reverse=True)
    return [each["backup"] for each in newest[keep:] if each["startedAt"] < since_ms]


def is_data_folder(folder: Path) -> bool:
    """Whether a broker has, or could have, begun on it: never to be written over."""
    from imago_log.disk.folder import RESTORING

    return (folder / "commitlog").is_dir() and not (folder / RESTORING).exists()


async def _listed(bucket: Objects) -> dict[str, Any]:
    from imago_backup import shelf

    there = await shelf.shelved(bucket)
    return {
        "items": [each.to_json() for each in await shelf.complete(bucket)],
        "incomplete": [each.name for each in there if not each.complete],
    }


def _print(answer: Mapping[str, Any]) -> None:
    rows = [
        (
            shard,
            each.get("state", "done"),
            second(each.get("firstAt")),
            second(each.get("cutAt")),
            each.get("size", ""),
            _share(each),
            "; ".join(filter(None, (each.get("error"), _damaged(each), each.get("lacks")))),
        )
        for shard, each in answer["shards"].items()
    ]
    columns = ("shard", "state", "from", "until", "bytes", "done", "remarks")
    print_table(f"{answer['backup']}: {answer['state']}", columns, rows)


def lacking(backup: BackupManifest) -> list[str]:
    """Return what a backup lacks, shard by shard: what its members' disks had no more."""
    return [f"{name} {each.lacks}" for name, each in backup.shards.items() if each.lacks]


def _say_lacking(lacks: list[str]) -> None:
    for each in lacks:
        say(f"warning: {each}: keep that bucket; what is restored needs another tier.url")


def _share(part: Mapping[str, Any]) -> str:
    if not part.get("bytes"):
        return ""
    return f"{part['bytesDone'] / part['bytes']:.0%}, {part['bytesSent']} sent"


def _damaged(part: Mapping[str, Any]) -> str:
    count = part.get("damaged", 0)
    return f"{counted(count, 'part')} of the log out of service" if count else ""


def _progress(answer: Mapping[str, Any]) -> None:
    shards = answer["shards"].values()
    done, total = sum(each["bytesDone"] for each in shards), sum(each["bytes"] for each in shards)
    _show_bytes("sent", done, total)


def _show_bytes(what: str, done: int, total: int) -> None:
    """Show how far it is where somebody looks."""
    if sys.stderr.isatty() and total:
        sys.stderr.write(f"\r{what} {done / total:.0%} of {total >> 20} MiB ")
        sys.stderr.write("\n" if done >= total else "")
        sys.stderr.flush()


def _bytes(text: str) -> int:
    from imago_broker.config.units import SIZE, measured

    found = int(text) if text.isascii() and text.isdecimal() else measured("rate_bytes", text)
    if found is None:
        raise CommandUsageError(f"--rate {text}: must be a number of bytes, or {SIZE}")
    return found


def _time(text: str) -> int:
    try:
        return time_of(text, time.time_ns() // 1_000_000)
    except ValueError as error:
        raise CommandUsageError(f"--until {text}: must be {TIME_HELP}") from error
