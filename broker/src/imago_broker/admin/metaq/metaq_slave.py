"""Routes about slaves of MetaQ's kinds: the copying of a master, offsets in another's log."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING

from imago_broker.admin.calls.guard import json_body, json_response
from imago_broker.admin.errors import AdminError, bad_request, refuse_unknown
from imago_broker.ports import CoordinatorError
from imago_broker.service.groups.metaq_offset_recovery import positions_behind

if TYPE_CHECKING:
    from aiohttp import web

    from imago_broker.admin.services import AdminServices
    from imago_broker.model.metaq_tree import OffsetRecord
    from imago_broker.ports import MetaqSlaveControl


async def show(services: AdminServices, _: web.Request) -> web.Response:
    """GET /admin/v1/metaq/slave: how the copying stands, as a whole and by partition."""
    status = _slave(services).status()
    return json_response(
        {
            "slaveId": status.slave_id,
            "group": status.group,
            "master": status.master or None,
            "copies": status.copies,
            "problem": status.problem,
            "leftOut": list(status.left_out),
            "configProblem": status.config_problem or None,
            "partitions": [asdict(each) for each in status.partitions],
        }
    )


async def restart(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/metaq/slave/restart: connect again, and look again what the master has."""
    refuse_unknown(await json_body(request), ())
    _slave(services).restart()
    return json_response({"restarted": True})


async def recover_offsets(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/metaq/recover-offsets {"dryRun": false}: by the messages that groups have had.

    Of all groups of MetaQ's in the partitions of this broker. The answer has each record, with
    where it goes on here: null where its message is not to be found, and it stays as it is.
    """
    body = await json_body(request)
    refuse_unknown(body, ("dryRun",))
    dry_run = body.get("dryRun", False)
    if not isinstance(dry_run, bool):
        raise bad_request(f"dryRun: {dry_run!r:.60}, must be true or false.", "Correct it.")
    topics = [topic.name for topic in services.topics.all() if topic.dual]
    try:
        records = await services.metaq_consumers.offset_records(topics)
        rows = []
        for record, behind in await _placed(services, records):
            moves = behind is not None and behind != record.position
            if moves and behind is not None and not dry_run:
                moves = await services.metaq_consumers.move_offset(record, behind)
            rows.append({**asdict(record), "here": behind, "moved": moves and not dry_run})
    except CoordinatorError as error:
        raise AdminError(
            503, "registry", f"{error}.", "Repeat the call when ZooKeeper answers."
        ) from error
    return json_response({"records": rows})


async def _placed(
    services: AdminServices, records: list[OffsetRecord]
) -> list[tuple[OffsetRecord, int | None]]:
    """Return each record with the position behind its message."""
    by_partition: dict[tuple[str, int], list[OffsetRecord]] = {}
    for record in records:
        by_partition.setdefault((record.topic, record.partition), []).append(record)
    placed: list[tuple[OffsetRecord, int | None]] = []
    for (topic, partition), of_it in by_partition.items():
        ids = {record.message_id for record in of_it}
        known: dict[int, int] = {}
        for found in positions_behind(services.store, topic, partition, ids):
            known = found
            await asyncio.sleep(0)  # others are served meanwhile
        placed += [(record, known.get(record.message_id)) for record in of_it]
    return placed


def _slave(services: AdminServices) -> MetaqSlaveControl:
    if services.metaq.slave is None:
        raise AdminError(
            409, "no_slave", "This broker copies no original master.", "Set metaq.slave_id."
        )
    return services.metaq.slave
