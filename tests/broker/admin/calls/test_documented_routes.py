"""Every admin route is on a page, and every path on the pages is a route."""

from __future__ import annotations

import re
from pathlib import Path

from imago_broker.admin.routes import ROUTES

DOCS = Path(__file__).parents[4] / "docs"
IN_PROSE = {("GET", "/"), *((method, "/{}") for method in ("GET", "POST", "PUT"))}
"""The dashboard, and MetaQ's messages over HTTP, which have a section of docs/metaq.md."""
_CALL = re.compile(r"((?:GET|POST|PUT|PATCH|DELETE)(?:, [A-Z]+)*) (/[^\s`?…]*)(?=[\s`?]|$)")


def calls(path: str) -> set[str]:
    """The paths of a route without names of variables, one for each word where words are listed."""
    words = re.search(r"\{\w+:([\w|]+)\}", path)
    paths = [path.replace(words[0], word) for word in words[1].split("|")] if words else [path]
    return {re.sub(r"\{[^}]*\}", "{}", each) for each in paths}


def documented(text: str) -> set[tuple[str, str]]:
    """Methods and paths that a page's tables name."""
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    return {
        (method, re.sub(r"\{[^}]*\}", "{}", path))
        for methods, path in _CALL.findall("\n".join(rows))
        for method in methods.split(", ")
    }


def test_pages_and_routes_agree() -> None:
    pages = "\n".join((DOCS / name).read_text("utf-8") for name in ("admin.md", "metaq.md"))
    routes = {(method, each) for method, path, *_ in ROUTES for each in calls(path)}
    assert routes - documented(pages) == IN_PROSE, "routes that docs/admin.md does not name"
    assert documented(pages) - routes == set(), "paths of the pages that are no routes"


def test_a_row_names_several_calls() -> None:
    row = "| GET, PUT /a/{x} · POST /b | what `DELETE /c?d=` leaves; GET /e/… is elsewhere |\n"
    wanted = {("GET", "/a/{}"), ("PUT", "/a/{}"), ("POST", "/b"), ("DELETE", "/c")}
    assert documented(row + "GET /prose") == wanted
    assert calls("/a/{x}/{y:b|c}") == {"/a/{}/b", "/a/{}/c"}
