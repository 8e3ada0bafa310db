"""Routes of the configuration: every key with value, default and whether it may change now."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from imago_broker.admin.calls.guard import json_body, json_response
from imago_broker.admin.errors import AdminError, bad_request, refuse_unknown
from imago_broker.config.loading import typed
from imago_wire.errors import ToldError, WrongError, in_our_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiohttp import web

    from imago_broker.admin.services import AdminServices
    from imago_broker.config import BrokerConfig


async def show(services: AdminServices, _: web.Request) -> web.Response:
    """GET /admin/v1/config."""
    return json_response({"items": list(keys(services.config)), "next": None})


async def patch(services: AdminServices, request: web.Request) -> web.Response:
    """PATCH /admin/v1/config {"section.key": value, …}: dynamic keys of this broker only."""
    body = await json_body(request)
    known = {item["key"]: item for item in keys(services.config)}
    refuse_unknown(body, known)
    fixed = [key for key in body if not known[key]["dynamic"]]
    if fixed:
        raise AdminError(
            409,
            "needs_restart",
            f"Not changeable while running: {', '.join(fixed)}.",
            "Set it in the broker's TOML file and restart the broker.",
        )
    try:
        config = with_values(services.config, body)
    except ValueError as error:
        raise bad_request(
            f"{in_our_words(error)}.", "Correct that value; nothing was changed."
        ) from error
    services.replace_config(config)
    return json_response({"changed": sorted(body)})


def keys(config: BrokerConfig) -> Iterator[dict[str, Any]]:
    """Every key of every section."""
    for section in fields(config):
        values = getattr(config, section.name)
        if not is_dataclass(values):
            continue
        for key in fields(values):
            yield {
                "key": f"{section.name}.{key.name}",
                "value": plain(getattr(values, key.name)),
                "default": plain(key.default),
                "dynamic": bool(key.metadata.get("dynamic")),
                "doc": key.metadata.get("doc", ""),
            }


def plain(value: object) -> Any:
    return str(value) if isinstance(value, Path) else value


def with_values(config: BrokerConfig, changes: dict[str, Any]) -> BrokerConfig:
    """Return the configuration with the values replaced; the sections check them."""
    sections: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        section, key = name.split(".", 1)
        wanted = get_type_hints(type(getattr(config, section)))[key]
        sections.setdefault(section, {})[key] = typed(name, wanted, value)
    changed: dict[str, Any] = {}
    for section, values in sections.items():
        try:
            changed[section] = replace(getattr(config, section), **values)
        except ToldError as error:
            raise WrongError(f"{section}.{error}") from error
    return replace(config, **changed)
