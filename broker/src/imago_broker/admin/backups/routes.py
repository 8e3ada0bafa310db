"""Routes of backups. Any broker takes them; a member is asked for its part by another broker.

What is there is what the bucket says; how far it is, members say. So any broker answers, and a
backup whose members or askers have died goes on when it is asked for once more.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import orjson

from imago_broker.admin.backups import parts
from imago_broker.admin.calls.guard import json_body, json_response
from imago_broker.admin.errors import AdminError, bad_request, refuse_unknown
from imago_broker.admin.resources.everywhere import ask_members
from imago_broker.admin.shards.shards import forwarded_headers, is_forwarded
from imago_broker.config.sections.backup_section import BackupSection
from imago_broker.model.registry.cluster import shard_name
from imago_broker.shard_work.calls import TIMEOUT, call, refusal_of
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiohttp import web

    from imago_backup.format import Started
    from imago_broker.admin.services import AdminServices
    from imago_broker.model.registry.cluster import BrokerRecord

ANSWERS_S: Final = 3.0
"""How long who asks for a backup waits for the bucket: less than the operator waits for us."""


async def list_all(services: AdminServices, _: web.Request) -> web.Response:
    """GET /admin/v1/cluster/backups: what there is, the oldest first.

    `incomplete`: what was only begun; `abandoned`: of those, what was begun a day ago or earlier.
    """
    bucket = await services.work.backups.bucket()
    from imago_backup import shelf, sweeping  # noqa: PLC0415  loaded with the bucket

    with _told():
        there = await shelf.shelved(bucket)
        items = [each.to_json() for each in await shelf.complete(bucket)]
        abandoned = await sweeping.abandoned(bucket, services.clock.epoch_ms())
    incomplete = [each.name for each in there if not each.complete]
    return json_response({"items": items, "incomplete": incomplete, "abandoned": abandoned})


async def show(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/cluster/backups/{name}: how far each shard is, and what it is once complete."""
    name = _name(request)
    if is_forwarded(request):
        return json_response({"items": _own(services, name)})
    bucket = await services.work.backups.bucket()
    from imago_backup import shelf  # noqa: PLC0415
    from imago_backup.errors import BackupUnknownError  # noqa: PLC0415
    from imago_objects import BucketAwayError  # noqa: PLC0415

    with _told():
        try:
            async with asyncio.timeout(ANSWERS_S):
                there = await shelf.parts_of(bucket, name)
        except TimeoutError as error:
            what = f"it has not answered for {ANSWERS_S:g} s"
            raise BucketAwayError(
                bucket.url, what, "is it there, and reached from here?"
            ) from error
        if not there.parts:
            raise BackupUnknownError(f"the backup {name} is unknown", "see `imago backup list`")
    return json_response(await _state(services, request, name))


async def create(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/cluster/backups/{name} {"bytesASecond": n}: take it, or go on with it.

    Answers at once, as GET does; parts that run or are done are left alone.
    """
    name, body = _name(request), await json_body(request)
    refuse_unknown(body, ("bytesASecond", "requestId", "started"))
    rate = _rate(body.get("bytesASecond"))
    backups = services.work.backups
    bucket = await backups.bucket()
    if is_forwarded(request):
        job = await backups.begin(_started(body.get("started")), bytes_a_second=rate)
        return json_response({"items": [_with_place(services, job.to_json())]})
    from imago_backup import shelf  # noqa: PLC0415
    from imago_backup.format import Started, encode, started_of  # noqa: PLC0415

    view = services.coordinator.view()
    numbers = parts.numbers_of(view)
    with _told():
        started = Started(
            name=name,
            cluster=services.config.broker.cluster,
            shards=[*numbers],
            started_ms=services.clock.epoch_ms(),
        )
        if not await bucket.put_if_absent(started_of(name), encode(started)):
            started = await shelf.begun(bucket, name)
    if started.cluster != services.config.broker.cluster:
        raise AdminError(
            409,
            "other_cluster",
            f"A backup {name!r} of the cluster {started.cluster} is there.",
            "Take another name, and give each cluster a folder of its own (backup.url).",
        )
    state = await _state(services, request, name)
    missing = [
        shard
        for shard, part in state["shards"].items()
        if part["state"] in (parts.INTERRUPTED, parts.FAILED)
    ]
    said = await asyncio.gather(
        *(_begin(services, request, numbers.get(shard), shard, started, rate) for shard in missing)
    )
    state = await _state(services, request, name)
    for shard, error in zip(missing, said, strict=True):
        if error and state["shards"][shard]["state"] != parts.DONE:
            state["shards"][shard] |= {"state": parts.FAILED, "error": error}
            state["state"] = parts.FAILED
    return json_response(state)


async def delete(services: AdminServices, request: web.Request) -> web.Response:
    """DELETE /admin/v1/cluster/backups/{name}: it is gone at once, its chunks soon after."""
    name = _name(request)
    bucket = await services.work.backups.bucket()
    from imago_backup import sweeping  # noqa: PLC0415

    if not is_forwarded(request):
        others = await ask_members_to_show(services, request, name)
        if any(each["state"] == parts.RUNNING for each in others):
            raise AdminError(
                409, "busy", f"The backup {name} is being taken.", "Delete it when that has ended."
            )
    with _told():
        await sweeping.delete(bucket, name)
    services.work.backups.sweep()
    return json_response({"backup": name, "deleted": True})


async def ask_members_to_show(
    services: AdminServices, request: web.Request, name: str
) -> list[dict[str, Any]]:
    """Return what all members say of their parts in a backup."""
    others = await ask_members(services, request, method="GET")
    return _own(services, name) + others.items


async def _state(services: AdminServices, request: web.Request, name: str) -> dict[str, Any]:
    from imago_backup import shelf  # noqa: PLC0415  loaded with the bucket

    bucket = await services.work.backups.bucket()
    told = await ask_members_to_show(services, request, name)
    with _told():
        there = await shelf.parts_of(bucket, name)
        shown: dict[str, Any] = {}
        if there.complete:
            manifest = await shelf.manifest_of(bucket, name)
            shown, shards = manifest.to_json(), [*manifest.shards]
        else:
            shards = (await shelf.begun(bucket, name)).shards
    found = parts.parts(shards, there.shards, told)
    state = parts.state_of(found, complete=there.complete)
    listed = {each.shard: shown.get("shards", {}).get(each.shard, {}) | each.to_json()
              for each in found}  # fmt: skip
    return shown | {"backup": name, "state": state, "shards": listed}


async def _begin(
    services: AdminServices,
    request: web.Request,
    number: int | None,
    shard: str,
    started: Started,
    rate: int | None,
) -> str:
    """Have a member do a shard's part; return why not."""
    view = services.coordinator.view()
    member = None if number is None else parts.chosen(view, number)
    if member is None:
        return f"{shard} has no member now that could be asked"
    if member.uuid == services.uuid:
        try:
            await services.work.backups.begin(started, bytes_a_second=rate)
        except AdminError as error:
            return error.message
        return ""
    return await _ask(services, request, member, started, rate)


async def _ask(
    services: AdminServices,
    request: web.Request,
    member: BrokerRecord,
    started: Started,
    rate: int | None,
) -> str:
    body = orjson.dumps({"started": started} | ({} if rate is None else {"bytesASecond": rate}))
    headers = forwarded_headers(services, request)
    try:
        async with (
            aiohttp.ClientSession(timeout=TIMEOUT) as session,
            call(
                session, services, member, "POST", request.path_qs, headers=headers, body=body
            ) as answer,
        ):
            return "" if answer.status == 200 else (await refusal_of(answer)).message
    except (aiohttp.ClientError, TimeoutError) as error:
        return f"its member at {member.host}:{member.admin} does not answer: {type(error).__name__}"


def _own(services: AdminServices, name: str) -> list[dict[str, Any]]:
    job = services.work.backups.job(name)
    return [] if job is None else [_with_place(services, job.to_json())]


def _with_place(services: AdminServices, shown: dict[str, Any]) -> dict[str, Any]:
    shard = shard_name(services.config.broker.shard)
    return shown | {"shard": shard, "member": services.uuid}


def _rate(said: object) -> int | None:
    if said is None:
        return None
    if type(said) is not int:
        raise bad_request("bytesASecond: no whole number.", "Bytes a second; 0: unbounded.")
    try:
        return BackupSection(bytes_a_second=said).bytes_a_second
    except WrongError as error:
        raise bad_request(f"bytesASecond: {error}.", "Bytes a second; 0: unbounded.") from error


def _started(said: object) -> Started:
    from imago_backup.format import Started  # noqa: PLC0415  loaded with the bucket

    try:
        return Started(**said)  # type: ignore[arg-type]  # whatever it is
    except TypeError as error:
        raise bad_request(f"started: {error}.", "Leave it to the brokers.") from error


def _name(request: web.Request) -> str:
    from imago_backup.errors import BackupError  # noqa: PLC0415  with the first call about backups
    from imago_backup.format import check_name  # noqa: PLC0415

    try:
        return check_name(request.match_info["name"])
    except BackupError as error:
        raise bad_request(f"{error}.", f"{error.cure}.") from error


@contextmanager
def _told() -> Iterator[None]:
    """Answer what the bucket does not do in its words."""
    from imago_backup.errors import (  # noqa: PLC0415
        BackupDamagedError,
        BackupError,
        BackupUnknownError,
    )
    from imago_objects import BucketAwayError, ObjectsError  # noqa: PLC0415

    try:
        yield
    except BucketAwayError as error:
        what = f"{error.bucket}: {error.what}."
        raise AdminError(503, "bucket_away", what, f"{error.cure}.") from error
    except ObjectsError as error:
        what = f"{error.bucket}: {error.what}."
        raise AdminError(409, "bucket_refused", what, f"{error.cure}.") from error
    except BackupDamagedError as error:
        raise AdminError(409, "backup_damaged", f"{error}.", f"{error.cure}.") from error
    except BackupUnknownError as error:
        raise AdminError(404, "backup_not_found", f"{error}.", f"{error.cure}.") from error
    except BackupError as error:
        raise AdminError(409, "backup_refused", f"{error}.", f"{error.cure}.") from error
