"""Routes of limits per tenant: of users, topics, and what begins alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_broker.admin.calls.guard import json_body, json_response
from imago_broker.admin.calls.identity import actor_of
from imago_broker.admin.errors import bad_request, not_found, refuse_unknown
from imago_broker.admin.paging import page
from imago_broker.admin.resources.users import everywhere
from imago_broker.errors import RequestError
from imago_broker.model.access.quotas import QuotaSubject, parse_subject, quotas_from_json
from imago_wire.errors import in_our_words

if TYPE_CHECKING:
    from aiohttp import web

    from imago_broker.admin.services import AdminServices


async def list_all(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/quotas: all limits and their use here, a page at a time."""
    known = {str(subject): subject for subject in services.access.quota_table.quotas}
    return json_response(
        page(sorted(known), request.query, lambda name: _shown(services, known[name]))
    )


async def put(services: AdminServices, request: web.Request) -> web.Response:
    """PUT /admin/v1/quotas/{subject} with `{"quotas": {limit: number}}`: instead of the former."""
    subject, body = _subject(request), await json_body(request)
    refuse_unknown(body, ("quotas",))
    try:
        quotas = quotas_from_json(subject, body.get("quotas"))
        services.access.set_quotas(subject, quotas, actor_of(request))
    except (ValueError, RequestError) as error:
        raise bad_request(f"{in_our_words(error)}.", "Correct that.") from error
    return await everywhere(services, _shown(services, subject))


async def delete(services: AdminServices, request: web.Request) -> web.Response:
    """DELETE /admin/v1/quotas/{subject}: it has no limits any more."""
    subject, known = _subject(request), services.access.quota_table.quotas
    if subject not in known:
        await everywhere(services, {})  # a repeated call: another shard may have it still
        raise not_found("quota", str(subject), map(str, known))
    services.access.set_quotas(subject, {}, actor_of(request))
    return await everywhere(services, {"deleted": str(subject)})


def _subject(request: web.Request) -> QuotaSubject:
    try:
        return parse_subject(request.match_info["subject"])
    except ValueError as error:
        raise bad_request(f"{in_our_words(error)}.", "Name one of these.") from error


def _shown(services: AdminServices, subject: QuotaSubject) -> dict[str, Any]:
    return {"subject": str(subject), **services.quotas.shown(subject)}
