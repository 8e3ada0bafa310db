"""Routes about the copying of an original MetaQ master: what its slaves tell over JMX."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from imago_broker.admin.errors import AdminError, refuse_unknown
from imago_broker.admin.guard import json_body, json_response

if TYPE_CHECKING:
    from aiohttp import web

    from imago_broker.admin.services import AdminServices
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
            "partitions": [asdict(each) for each in status.partitions],
        }
    )


async def restart(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/metaq/slave/restart: connect anew, and look again what the master has."""
    refuse_unknown(await json_body(request), ())
    _slave(services).restart()
    return json_response({"restarted": True})


def _slave(services: AdminServices) -> MetaqSlaveControl:
    if services.metaq.slave is None:
        raise AdminError(
            409, "no_slave", "This broker copies no original master.", "Set metaq.slave_id."
        )
    return services.metaq.slave
