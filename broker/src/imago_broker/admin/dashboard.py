"""The dashboard: a page and its files, which are the same at every broker and ask it for all."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Final

from aiohttp import web

from imago_broker.admin.errors import AdminError

if TYPE_CHECKING:
    from imago_broker.admin.services import AdminServices

FILES: Final = {
    "dashboard.html": "text/html",
    "dashboard.css": "text/css",
    "dashboard.js": "text/javascript",
    "dashboard_pages.js": "text/javascript",
    "dashboard_parts.js": "text/javascript",
}
HEADERS: Final = {
    # Scripts and styles are files of ours alone: markup in a message's body could run none.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " connect-src 'self'; img-src data:; form-action 'none'; base-uri 'none';"
    " frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


async def page(_: AdminServices, __: web.Request) -> web.Response:
    """GET /: the page that shows the cluster to a person."""
    return _file("dashboard.html")


async def file(_: AdminServices, request: web.Request) -> web.Response:
    """GET /dashboard/{file}: its scripts and its style."""
    name = request.match_info["file"]
    if name not in FILES:
        raise AdminError(
            404, "file_not_found", f"The dashboard has no file {name!a:.80}.", "Open / instead."
        )
    return _file(name)


def _file(name: str) -> web.Response:
    text = resources.files("imago_broker.admin").joinpath(name).read_text("utf-8")
    return web.Response(text=text, content_type=FILES[name], headers=HEADERS)
