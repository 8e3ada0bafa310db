"""The files of the dashboard, which are the same at every broker and ask it for all."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Final

from aiohttp import web

from imago_broker.admin.errors import AdminError

if TYPE_CHECKING:
    from imago_broker.admin.services import AdminServices

_TYPES: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_FOLDER: Final = resources.files(__package__).joinpath("static")
FILES: Final = {
    file.name: _TYPES.get(file.name.rpartition(".")[2], "text/plain") for file in _FOLDER.iterdir()
}
"""Names and content types; `NAME.LICENSE` is the licence of a library of that name."""
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
    return _file("index.html")


async def file(_: AdminServices, request: web.Request) -> web.Response:
    """GET /dashboard/{file}: its scripts, its styles, and the licences of its libraries."""
    name = request.match_info["file"]
    if name not in FILES:
        raise AdminError(
            404, "file_not_found", f"The dashboard has no file {name!a:.80}.", "Open / instead."
        )
    return _file(name)


def _file(name: str) -> web.Response:
    text = _FOLDER.joinpath(name).read_text("utf-8")
    return web.Response(text=text, content_type=FILES[name], headers=HEADERS)
