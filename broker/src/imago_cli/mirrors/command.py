"""`imago mirror`: copy topics of one cluster to another, fail over to it, and back."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from imago_cli.connect import AsJson, Yes, client_errors, confirm
from imago_cli.exits import CommandError, CommandUsageError, Exit
from imago_cli.line.declared import CommandGroup, Option
from imago_cli.output import print_json, print_line, print_table, say

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from imago_mirror.core.notes import MirrorNote
    from imago_mirror.settings import MirrorSettings

ANSWER_S: Final = 20.0
"""How long a running mirror has to take an order; then the command does it itself."""
_WAIT_S: Final = 60.0

Config = Annotated[Path, Option(help="TOML file; docs/mirror.md shows one.")]


def attach(root: CommandGroup) -> None:
    """Add the group of commands."""
    group = CommandGroup("Copy topics to another cluster; fail over to it, and back.")
    group.add("run", run)
    group.add("status", status)
    group.add("failover", failover)
    group.add("resume", resume)
    root.add("mirror", group)


def run(
    config: Config,
    log_level: Annotated[str, Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Copy topics, and the places of groups, from one cluster to another until SIGTERM.

    Each message is at the target once and in its queue's order, whoever is killed in between. It
    may be started anywhere, also twice: the target itself says what it has. While a side is away
    it waits.
    """
    settings = _settings(config)
    import logging

    import uvloop

    if log_level.upper() not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise CommandUsageError(
            f"--log-level: {log_level!r}, must be debug, info, warning or error"
        )
    logging.basicConfig(
        level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    uvloop.run(_run(settings))
    sys.exit(Exit.DONE)


async def _run(settings: MirrorSettings) -> None:
    import asyncio
    import signal

    from imago_mirror.mirror import RunningMirror
    from imago_mirror.web import MirrorWeb

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    mirror = RunningMirror(settings)
    web = None
    if settings.port:
        try:
            web = await MirrorWeb(mirror).start(settings.host, settings.port)
        except OSError as error:
            raise CommandUsageError(
                f"mirror.listen: {settings.host}:{settings.port}: {error.strerror}",
                cure="name another port, or stop who has it",
            ) from error
    try:
        await mirror.run(stop)
    finally:
        if web is not None:
            web.close()


def status(config: Config, as_json: AsJson = False) -> None:
    """Show how far the target is behind, topic by topic, and what is in the way.

    A mirror that runs is asked at mirror.listen; else the last note that it left at the target is
    shown. Exit code 1: something is in the way.
    """
    settings = _settings(config)
    found = _asked(settings)
    if found is None:
        note = _with_keeper(settings, _read)
        if note is None:
            raise CommandError(
                f"no mirror {settings.name} has ever written to this target",
                cure="imago mirror run --config FILE begins",
            )
        found = _noted(settings, note)
    if as_json:
        print_json(found)
    else:
        _print(found)
    if found["troubles"]:
        sys.exit(Exit.FAILED)


def failover(config: Config, yes: Yes = False, as_json: AsJson = False) -> None:
    """Stop copying, move groups to where they are at the source a last time, say what is missing.

    From then on clients may write to the target. A mirror that does not run, or cannot be reached,
    is none that copies: the command does the rest itself. Also while the source is away.
    """
    settings = _settings(config)
    confirm(f"Stop the mirror {settings.name}, and hand over to its target?", yes=yes)
    note = _ordered(settings, "failed-over")
    if as_json:
        print_json(note.report)
        return
    lacks = note.report["lacks"]
    if not note.report["sourceAnswered"]:
        say("The source did not answer: what it has stored since it was last seen is not counted.")
    print_table("", ("topic", "messages that the target lacks"), sorted(lacks.items()))
    say(
        f"The mirror {settings.name} has failed over: clients may write to the target. Going back"
        " is a mirror with source and target exchanged; docs/mirror.md has the steps."
    )


def resume(config: Config, yes: Yes = False) -> None:
    """Have a mirror that has failed over copy again: clients are at its source again."""
    settings = _settings(config)
    confirm(f"Have the mirror {settings.name} copy to its target again?", yes=yes)
    _ordered(settings, "copying")
    say(f"The mirror {settings.name} copies where it is run.")


def _settings(config: Path) -> MirrorSettings:
    from imago_mirror.settings import MirrorSettingsError, read_settings

    try:
        return read_settings(config.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise CommandUsageError(f"--config {config}: {reason}") from error
    except MirrorSettingsError as error:
        raise CommandUsageError(f"--config {config}: {error}") from error


def _asked(settings: MirrorSettings) -> dict[str, Any] | None:
    """Return what a running mirror says; None: none answers."""
    import http.client

    if not settings.port:
        return None
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host  # noqa: S104
    connection = http.client.HTTPConnection(host, settings.port, timeout=3)
    try:
        connection.request("GET", "/status")
        found = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return found if found.get("name") == settings.name else None


def _noted(settings: MirrorSettings, note: MirrorNote) -> dict[str, Any]:
    topics: dict[str, dict[str, Any]] = {}
    for queue, lane in note.lanes.items():
        topic = topics.setdefault(queue.topic, {"queues": 0, "expired": 0})
        topic["queues"] += 1
        topic["expired"] += lane.position.lost
    age_s = max(0, time.time_ns() // 1_000_000 - note.at_ms) // 1000
    message = f"nobody runs it here; its last note is {age_s} s old"
    is_over = note.state == "failed-over"
    troubles = [] if is_over else [
        {
            "reason": "NotRunning",
            "subject": settings.name,
            "message": message,
            "cure": "imago mirror run --config FILE; or ask where it runs (mirror.listen)",
        }
    ]  # fmt: skip
    return {
        "name": settings.name,
        "state": note.state,
        "topics": topics,
        "troubles": troubles,
        "failover": note.report,
    }


def _print(found: dict[str, Any]) -> None:
    print_line(f"Mirror {found['name']}: {found['state']}")
    columns = {
        "topic": "",
        "queues": "queues",
        "lag": "lagMessages",
        "seconds": "lagSeconds",
        "copied": "copiedMessages",
        "expired": "expired",
    }
    rows = [
        [name, *(each.get(key, "-") for key in list(columns.values())[1:])]
        for name, each in found["topics"].items()
    ]
    print_table("", tuple(columns), rows)
    for each in found["troubles"]:
        say(f"{each['reason']} ({each['subject']}): {each['message']}. {each['cure']}")


def _ordered(settings: MirrorSettings, state: str) -> MirrorNote:
    """Give an order, and return the note in which it is carried out."""
    if settings.state is not None:
        raise CommandUsageError(
            f"the configuration says what the mirror does, mirror.state = {settings.state!r}",
            cure=f"write {state!r} there and start the mirror again, or leave it out",
        )
    number = time.time_ns() // 1_000_000

    async def order(keeper: Any) -> MirrorNote | None:
        import asyncio

        from imago_mirror.core.notes import Order

        before = await _read(keeper)
        if before is None:
            raise CommandError(
                f"no mirror {settings.name} has ever written to this target",
                cure="see the section [target]; imago mirror run --config FILE begins",
            )
        given = Order(max(number, before.order + 1), state)
        await keeper.order(given)
        ends_s = time.monotonic() + (ANSWER_S if _is_fresh(before) else 0.0)
        while time.monotonic() < ends_s:
            await asyncio.sleep(0.5)
            note = await _read(keeper, pending=False)
            if note is not None and _is_done(note, given):
                return note
        return None

    note = _with_keeper(settings, order)
    return note if note is not None else _done_here(settings)


def _is_fresh(note: MirrorNote) -> bool:
    return time.time_ns() // 1_000_000 - note.at_ms < 2 * 3_600_000


def _is_done(note: MirrorNote, order: Any) -> bool:
    return note.order >= order.number and (note.state != "failed-over" or bool(note.report))


def _done_here(settings: MirrorSettings) -> MirrorNote:
    """Run the mirror in this process until it has done what it was ordered."""
    import asyncio

    from imago_mirror.mirror import RunningMirror

    say(f"No mirror {settings.name} answers: done here.")

    async def until_done() -> MirrorNote:
        mirror, stop = RunningMirror(settings), asyncio.Event()
        running = asyncio.create_task(mirror.run(stop))
        changed = asyncio.create_task(mirror.changed.wait())
        await asyncio.wait((running, changed), timeout=_WAIT_S, return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        changed.cancel()
        await running
        if not mirror.begun:
            told = "; ".join(each.message for each in mirror.troubles.all())
            cure = "`imago mirror status --config FILE` says how both sides are"
            raise CommandError(f"not done: {told or 'a side does not answer'}", cure=cure)
        return mirror.knowledge.note

    with client_errors():
        return asyncio.run(until_done())


async def _read(keeper: Any, *, pending: bool = True) -> MirrorNote | None:
    await keeper.ensure()
    note: MirrorNote | None = await keeper.read(pending=pending)
    return note


def _with_keeper(settings: MirrorSettings, work: Any) -> MirrorNote | None:
    import asyncio

    from imago_client import Client
    from imago_mirror.note_keeper import NoteKeeper

    async def working() -> MirrorNote | None:
        async with Client(settings.target) as client:
            found: Coroutine[Any, Any, MirrorNote | None] = work(NoteKeeper(client, settings.name))
            return await found

    with client_errors():
        return asyncio.run(working())
