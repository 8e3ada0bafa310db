"""Routes of MetaQ's transactions: what is open, and a person's decision about a prepared one.

Only the shard's master knows them, and a call to another member reaches it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from imago_broker.admin.calls.guard import json_body, json_response
from imago_broker.admin.errors import AdminError, not_found, refuse_unknown
from imago_broker.admin.paging import page
from imago_broker.admin.shards.shards import asked_of_master, no_master
from imago_broker.core.transactions.metaq_transaction import (
    MetaqOutcome,
    MetaqTransactionError,
    TransactionPhase,
    TransactionProblem,
)
from imago_broker.service.puts.put_status import PutStatus

if TYPE_CHECKING:
    from aiohttp import web

    from imago_broker.admin.services import AdminServices
    from imago_broker.core.transactions.metaq_transaction import MetaqTransaction

DECISIONS = {
    "commit": MetaqOutcome.HEURISTICALLY_COMMITTED,
    "rollback": MetaqOutcome.HEURISTICALLY_ROLLED_BACK,
    "complete": MetaqOutcome.HEURISTICALLY_COMPLETED,
}
_WORDS = {
    MetaqOutcome.HEURISTICALLY_COMMITTED: "committed",
    MetaqOutcome.HEURISTICALLY_ROLLED_BACK: "rolled back",
    MetaqOutcome.HEURISTICALLY_COMPLETED: "completed",
}


async def list_all(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/metaq/transactions: those that have not ended, and those decided about."""
    elsewhere = await asked_of_master(services, request, services.config.broker.shard)
    if elsewhere is not None:
        return elsewhere
    known = _known(services)
    now_ms = services.clock.epoch_ms()
    return json_response(page(sorted(known), request.query, lambda key: _view(known[key], now_ms)))


async def decide(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/metaq/transactions/{key}/commit, …/rollback, …/complete, …/forget.

    For prepared XA transactions, whose producer is then told so, until it or `forget` ends that.
    """
    key, decision = request.match_info["key"], request.match_info["decision"]
    refuse_unknown(await json_body(request), ())
    if not services.metaq_transactions.ready:
        raise no_master(services.config.broker.shard)
    try:
        how = await _decided(services, key, decision)
    except MetaqTransactionError as error:
        raise _refusal(services, key, error) from error
    if how is not PutStatus.OK:
        text = f"The decision was not confirmed ({how.value})."
        cure = "Repeat the call: the first decision counts."
        raise AdminError(503, "not_written", text, cure)
    return json_response({"key": key, "decision": decision})


async def _decided(services: AdminServices, key: str, decision: str) -> PutStatus:
    """Have a decision written down; return how that went. MetaqTransactionError: it cannot be."""
    told: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()

    def tell(how: PutStatus | MetaqTransactionError) -> None:
        if told.done():
            return
        if isinstance(how, MetaqTransactionError):
            told.set_exception(how)
        else:
            told.set_result(how)

    if decision == "forget":
        services.metaq_transactions.forget(key, tell)
    else:
        services.metaq_transactions.decide(key, DECISIONS[decision], tell)
    return await told


def _known(services: AdminServices) -> dict[str, MetaqTransaction]:
    opened = services.metaq_transactions.open
    return {each.key: each for each in (*opened.heuristic.values(), *opened)}


def _view(transaction: MetaqTransaction, now_ms: int) -> dict[str, Any]:
    outcome = transaction.outcome
    decided = _WORDS.get(outcome) if outcome is not None else None
    return {
        "key": transaction.key,
        "kind": "xa" if transaction.xa else "local",
        "name": transaction.owner,
        "state": "decided" if decided else transaction.phase.value,
        "decided": decided,
        "messages": transaction.count,
        "bytes": transaction.size,
        "begunMs": transaction.begun_ms,
        "ageSeconds": max(0, now_ms - transaction.begun_ms) // 1000,
        "connections": len(transaction.sessions),
    }


def _refusal(services: AdminServices, key: str, error: MetaqTransactionError) -> AdminError:
    if error.problem is TransactionProblem.UNKNOWN:
        known = _known(services)
        if key not in known:
            return not_found("metaq/transaction", key, known)
        text = f"{key!r:.200} is {known[key].phase.value}, and nobody has decided about it."
        cure = "Only prepared XA transactions are decided, and only decisions are forgotten."
        if known[key].phase is TransactionPhase.PREPARED:
            cure = f"`imago metaq transactions commit {key:.200}`, or `rollback`."
        return AdminError(409, "not_prepared", text, cure)
    if error.outcome is not None:
        text = f"{key!r:.200} has been {_WORDS[error.outcome]} already."
        return AdminError(409, "decided", text, "Its first decision counts.")
    if error.problem is TransactionProblem.LIMIT:
        return AdminError(409, "too_many_decisions", f"{error}.", "Forget some, then repeat it.")
    if error.problem is TransactionProblem.FAILED:
        cure = "Look for metaq_transaction_failed in the broker's log, then repeat the call."
        return AdminError(500, "failed", f"{error}.", cure)
    return AdminError(409, "lost", f"{error}.", "Roll it back, or complete it.")
