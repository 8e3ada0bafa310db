"""Routes of users: credentials, rules, tokens, white lists; none of them shows a secret."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aiohttp import web

from imago_broker.admin.calls.guard import CHANGING, UNCHANGED, json_body, json_response, text_of
from imago_broker.admin.calls.identity import actor_of, user_of
from imago_broker.admin.errors import AdminError, bad_request, not_found, refuse_unknown
from imago_broker.admin.paging import page
from imago_broker.admin.services import AdminServices
from imago_broker.errors import RequestError
from imago_broker.model.access.quotas import SubjectKind, quotas_from_json, subject_of_user
from imago_broker.model.access.users import (
    ANONYMOUS,
    TOKENS_MAX,
    User,
    hash_of,
    new_token,
    rules_from_json,
    rules_to_json,
    secret_problem,
)
from imago_broker.service.access.access_drafts import Drafts, delete_left, take_drafts
from imago_broker.shard_work.access_spreading import not_spread
from imago_wire.errors import WrongError, in_our_words

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from imago_broker.model.access.access import AccessRule
    from imago_broker.service.access.access import AccessService
    from imago_broker.service.access.access_edits import Actor

KEYS = ("password", "formerSeconds", "signs", "super", "enabled", "whiteAddresses")
OF_ALL = ("rules", "quotas")
"""What `anonymous` may have, too."""
SERVICES = web.AppKey("services", AdminServices)
TOKEN_SECONDS_MAX = 10 * 365 * 86_400
FORMER_SECONDS_MAX = 7 * 86_400
"""How long a password that was replaced may count."""
SALT_BYTES = 16
REVOKED_TIMES = 3
"""How often a token is taken back that another shard has, which has changed its user meanwhile."""
_EVERYBODY = User(name="(white list)", is_super=True)
"""Who is not checked may do everything: such lists are left to super users."""


async def list_all(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/users: all, a page at a time."""
    known = sorted(_names(services))
    return json_response(page(known, request.query, lambda name: _shown(services, name)))


async def show(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/users/{user}."""
    name = request.match_info["user"]
    if name not in _names(services):
        raise not_found("user", name, services.access.users)
    return json_response(_shown(services, name))


async def put(services: AdminServices, request: web.Request) -> web.Response:
    """PUT /admin/v1/users/{user}: make one, or change what the body names."""
    name, body = request.match_info["user"], await json_body(request)
    refuse_unknown(body, (*KEYS, *OF_ALL))
    access, by, wanted = services.access, actor_of(request), None
    try:
        known = name == ANONYMOUS or name in access.users
        rules = access.rules.get(name, ()) if known else ()
        rules = rules_from_json(body["rules"]) if "rules" in body else rules
        subject = subject_of_user(name)
        quotas = quotas_from_json(subject, body["quotas"]) if "quotas" in body else None
        if name == ANONYMOUS:
            refuse_unknown(body, OF_ALL)
            access.set_rules(name, rules, by, quotas)
        else:
            now_ms = services.clock.epoch_ms()
            user = _changed(access.users.get(name) or User(name=name), body, now_ms)
            _require_super(services, request, access.users.get(name), user)
            access.put_account(user, rules, by, quotas)
            wanted = _named(user, body)
    except (ValueError, RequestError) as error:
        raise bad_request(
            f"User {name!a:.80}: {in_our_words(error)}.", "Correct that; nothing was changed."
        ) from error
    answer = await everywhere(services, {"user": _shown(services, name)})
    now = access.users.get(name)
    kept = wanted is None or (now is not None and _named(now, body) == wanted)
    limited = access.quota_table.quotas.get(subject, {})
    kept = kept and (quotas is None or dict(limited) == dict(quotas))
    if not kept or ("rules" in body and access.rules.get(name, ()) != rules):
        raise _changed_meanwhile(name)
    return answer


async def delete(services: AdminServices, request: web.Request) -> web.Response:
    """DELETE /admin/v1/users/{user}: its next request is refused."""
    name, access = request.match_info["user"], services.access
    _require_super(services, request, access.users.get(name))
    if name == ANONYMOUS and name in _names(services):
        access.set_rules(name, (), actor_of(request), {})
    elif not access.delete_user(name, actor_of(request)):
        await everywhere(services, {})  # a repeated call: another shard may have it still
        raise not_found("user", name, access.users)
    for _ in range(REVOKED_TIMES):
        answer = await everywhere(services, {"deleted": name})
        if name in access.users:
            break
        if not delete_left(access, name):  # what another shard has given it meanwhile
            return answer
    raise _changed_meanwhile(name)


async def make_token(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/users/{user}/tokens: a bearer token, which is shown this once.

    With `former` it follows the tokens of the same note: they end at once, but the one of that
    number goes on to count, for `formerSeconds` at most. Nobody is told a token that a failover
    could take back: where too few members are in sync none is made. Where another shard does not
    have it yet, the answer names that and has the token: a repeated call would make another.
    """
    name, body = request.match_info["user"], await json_body(request)
    refuse_unknown(body, ("expiresSeconds", "note", "former", "formerSeconds"))
    if problem := await services.replicated():
        raise _no_token(problem)
    before = services.access.users.get(name)
    if before is None:
        raise not_found("user", name, services.access.users)
    _require_super(services, request, before)
    user, token = _with_token(before, body, services.clock.epoch_ms())
    try:
        services.access.put_user(user, actor_of(request))
    except RequestError as error:
        raise bad_request(f"{error}.", "Delete one of its tokens.") from error
    made = user.tokens[-1]
    if problem := await services.replicated():
        if not services.store.leading:
            raise _not_settled(problem)
        _take_back(services.access, before, user, actor_of(request))
        raise _no_token(problem)
    told = {"number": made.number, "expires": made.expires_ms, "token": token}
    shards = await services.work.users.spread()
    now = services.access.users.get(name)
    if now is None or now.token(made.number) is None:
        raise _changed_meanwhile(name)
    return json_response({**told, "shards": shards})


def _with_token(user: User, body: Mapping[str, object], now_ms: int) -> tuple[User, str]:
    """Return the user with one more token, and that."""
    expires_ms = _end_ms(body, "expiresSeconds", now_ms)
    note, former = _line(body, "note"), _line(body, "former")
    if "former" in body:
        until_ms = _end_ms(body, "formerSeconds", now_ms)
        user = user.with_former_token(former, note, until_ms=until_ms)
    kept = tuple(token for token in user.tokens if not token.has_ended(now_ms))
    return new_token(replace(user, tokens=kept), expires_ms=expires_ms, note=note)


def _take_back(access: AccessService, before: User, made: User, by: Actor) -> None:
    """Have what was made of a user be as before, and what others changed since stay."""
    now, number = access.users.get(made.name), made.tokens[-1].number
    if now == made:
        access.put_user(before, by)
    elif now is not None and now.token(number) is not None:
        kept = [
            before.token(each.number) or each if made.token(each.number) == each else each
            for each in now.tokens
            if each.number != number
        ]
        ended = [each for each in before.tokens if made.token(each.number) is None]
        access.put_user(replace(now, tokens=(*kept, *ended)[:TOKENS_MAX]), by)


def _no_token(problem: str) -> AdminError:
    return AdminError(
        503,
        "not_replicated",
        f"No token was made: {problem}, and a failover could take it back.",
        "Repeat the call once enough members are in sync (`imago cluster explain`).",
    )


def _end_ms(body: Mapping[str, object], key: str, now_ms: int) -> int:
    """Return when so many seconds have passed; 0: never."""
    seconds = body.get(key, 0)
    if type(seconds) is not int or not 0 <= seconds <= TOKEN_SECONDS_MAX:
        raise bad_request(f"{key}: {seconds!r:.40}.", f"Send 0 (never) to {TOKEN_SECONDS_MAX}.")
    return now_ms + 1000 * seconds if seconds else 0


def _line(body: Mapping[str, object], key: str) -> str:
    text = body.get(key, "")
    if not isinstance(text, str) or not text.isprintable():
        raise bad_request(f"{key} is no line of text.", "Send a line of text.")
    return text


async def delete_token(services: AdminServices, request: web.Request) -> web.Response:
    """DELETE /admin/v1/users/{user}/tokens/{number}."""
    name, number = request.match_info["user"], request.match_info["number"]
    user = services.access.users.get(name)
    if user is None or user.token(number) is None:
        await everywhere(services, {})
        raise AdminError(
            404,
            "token_not_found",
            f"User {name!a:.80} has no token {number!a:.40}.",
            f"List them: `imago user show {name:.80}`, or GET /admin/v1/users/{name:.80}.",
        )
    _require_super(services, request, user)
    for _ in range(REVOKED_TIMES):
        left = tuple(token for token in user.tokens if token.number != number)
        services.access.put_user(replace(user, tokens=left), actor_of(request))
        answer = await everywhere(services, {"deleted": number})
        user = services.access.users.get(name)
        if user is None or user.token(number) is None:
            return answer
    raise _changed_meanwhile(name)


async def settings(services: AdminServices, _: web.Request) -> web.Response:
    """GET /admin/v1/access: what holds for all users."""
    return json_response(
        {
            "enabled": services.config.acl.enabled,
            "whiteAddresses": list(services.access.white_addresses),
        }
    )


async def put_settings(services: AdminServices, request: web.Request) -> web.Response:
    """PUT /admin/v1/access: addresses whose requests are not checked."""
    body = await json_body(request)
    refuse_unknown(body, ("whiteAddresses",))
    addresses = body.get("whiteAddresses")
    if not isinstance(addresses, list) or not all(isinstance(each, str) for each in addresses):
        raise bad_request("whiteAddresses is no list of texts.", 'Send ["10.1.2.*"].')
    _require_super(services, request, _EVERYBODY)
    try:
        services.access.set_white_addresses(addresses, actor_of(request))
    except RequestError as error:
        raise bad_request(f"{in_our_words(error)}.", "Correct that.") from error
    return await everywhere(services, {"whiteAddresses": addresses})


async def exchange(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/access/exchange: between masters; takes over what is newer there."""
    body = await json_body(request)
    access = services.access
    if "drafts" in body:
        return await _drafted(services, body["drafts"])
    try:
        if not access.merge(body.get("records", ())):  # type: ignore[arg-type]  # checks each
            request[UNCHANGED] = True
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise bad_request(
            f"These are no records: {in_our_words(error)}.", "Masters alone send them."
        ) from error
    digest = access.digest()
    differs = body.get("digest") not in (digest, None)
    return json_response({"digest": digest, "records": access.records() if differs else []})


async def _drafted(services: AdminServices, told: Any) -> web.Response:
    """Make what a member of this shard has drafted; it is in the log once this is answered."""
    try:
        drafts = Drafts.read(told)
        take_drafts(services.access, drafts)
    except RequestError as error:
        raise AdminError(409, "changed_meanwhile", f"{error}.", "Repeat the call.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise bad_request(
            f"These are no drafts: {in_our_words(error)}.", "Members alone send them."
        ) from error
    if problem := await services.replicated():
        raise _not_settled(problem)
    await services.work.users.spread()
    return json_response({})


async def everywhere(services: AdminServices, answer: dict[str, Any]) -> web.Response:
    """Answer once no failover takes the change back, and all other shards have it."""
    if problem := await services.replicated():
        raise _not_settled(problem)
    shards = await services.work.users.spread()
    if problem := not_spread(shards):
        raise AdminError(
            502,
            "shard_failed",
            problem,
            "It is tried again by itself; repeat the call to see when all have it.",
        )
    return json_response({**answer, "shards": shards})


def _changed_meanwhile(name: str) -> AdminError:
    """The answer where another shard's change of a user was made without ours, and is newer."""
    return AdminError(
        503,
        "changed_meanwhile",
        f"User {name:.80} was changed through another shard at the same time; that change holds.",
        "Repeat the call.",
    )


def _not_settled(problem: str) -> AdminError:
    return AdminError(503, "not_settled", f"Changed here, but {problem}.", "Repeat the call.")


def _named(user: User, body: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what of a user is as a body has asked."""
    secrets = (user.secret, user.hashed) if "password" in body else ()
    values = {
        "super": user.is_super,
        "enabled": user.enabled,
        "whiteAddresses": user.white_addresses,
    }
    return (*secrets, *(value for key, value in values.items() if key in body))


def _shown(services: AdminServices, name: str) -> dict[str, Any]:
    user, rules = services.access.users.get(name), services.access.rules.get(name, ())
    shown: dict[str, Any] = user.shown() if user is not None else {"name": name}
    return {**shown, "rules": _rules(rules), **services.quotas.shown(subject_of_user(name))}


def _names(services: AdminServices) -> set[str]:
    """Return all users, with `anonymous` where it has rules or limits."""
    access = services.access
    limited = (each.name for each in access.quota_table.quotas if each.kind is SubjectKind.USER)
    return {*access.users, *access.rules, *limited}


def _rules(rules: tuple[AccessRule, ...]) -> list[dict[str, Any]]:
    return rules_to_json(rules)


@web.middleware
async def supers_by_supers(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Refuse here what is about super users: a member that does not lead passes the call on in the
    name of a broker, and the master cannot know who asks."""
    services = request.app[SERVICES]
    if request.method in CHANGING and request.path.startswith("/admin/v1/access"):
        _require_super(services, request, _EVERYBODY)
    elif request.method in CHANGING and "user" in request.match_info:
        body = await json_body(request)
        wanted = User(name="", is_super=body.get("super") is True)
        _require_super(
            services, request, services.access.users.get(request.match_info["user"]), wanted
        )
    return await handler(request)


def _require_super(services: AdminServices, request: web.Request, *users: User | None) -> None:
    """Leave users that may do everything to such users, and to who has the admin token."""
    caller = services.access.users.get(user_of(request))
    raised = any(user is not None and user.is_super for user in users)
    if raised and caller is not None and not caller.is_super:
        raise AdminError(
            403,
            "forbidden",
            "Super users are changed by super users alone.",
            "Ask one of them, or use the admin token.",
        )


def _changed(user: User, body: Mapping[str, Any], now_ms: int) -> User:
    """Return the user with what the body names. ValueError: it cannot be."""
    seconds = body.get("formerSeconds", 0)
    if type(seconds) is not int or not 0 <= seconds <= FORMER_SECONDS_MAX:
        raise WrongError(f"formerSeconds: must be 0 to {FORMER_SECONDS_MAX}")
    until_ms = now_ms + 1000 * seconds if seconds else 0
    for key in ("super", "enabled", "signs"):
        if not isinstance(body.get(key, True), bool):
            raise WrongError(f"{key}: must be true or false")
    user = replace(
        user,
        is_super=body.get("super", user.is_super),
        enabled=body.get("enabled", user.enabled),
        white_addresses=str(body.get("whiteAddresses", user.white_addresses)),
    )
    if "password" in body and body["password"] is None:
        return replace(user, secret="", hashed="", former_secret="", former_until_ms=0)
    if "password" in body:
        return _with_password(user, text_of(body, "password"), body.get("signs"), until_ms)
    if body.get("signs", bool(user.secret)) != bool(user.secret):
        raise WrongError("signs: give the password with it")
    return user


def _with_password(user: User, password: str, signs: bool | None, until_ms: int) -> User:
    """`signs`: None: as before; a new user does. `until_ms`: how long the former key counts."""
    if problem := secret_problem(password):
        raise WrongError(problem)
    if signs or (signs is None and (user.secret or not user.hashed)):
        return user.with_secret(password, former_until_ms=until_ms)
    hashed = hash_of(password, os.urandom(SALT_BYTES))
    return replace(user, secret="", hashed=hashed, former_secret="", former_until_ms=0)
