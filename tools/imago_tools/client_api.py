"""The reference of the Python client on docs/reference/client.md, out of its docstrings.

ValueError: a public name says nothing of itself.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import inspect
import itertools
import re
import textwrap
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE: Final = "broker/src/imago_client"
WIDTH: Final = 118
_PLAIN_BASES: Final = (object, Exception, BaseException, str)
_BLOCKING: Final = {
    "imago_client.blocking.client": ("Client",),
    "imago_client.blocking.rocketmq.producer": ("Producer",),
    "imago_client.blocking.rocketmq.group": ("GroupConsumer",),
    "imago_client.blocking.rocketmq.pull_consumer": ("PullConsumer",),
    "imago_client.blocking.rocketmq.pop_consumer": ("PopConsumer",),
    "imago_client.blocking.rocketmq.transactions": ("TransactionProducer", "OpenTransaction"),
    "imago_client.blocking.rocketmq.requests": ("Requester",),
}
_OF_PROTOCOLS: Final = frozenset({"begin", "reject", "end", "load", "save"})
"""What MetaQ's policies and stores have, as the page on MetaQ's client says."""
_FIRST: Final = ("Client", "Message", "Producer", "PushConsumer", "Subscriber")


def page() -> str:
    """Return all sections."""
    client = importlib.import_module("imago_client")
    metaq = importlib.import_module("imago_client.metaq")
    names = sorted(client.__all__, key=lambda name: (name not in _FIRST, _rank(name)))
    parts = ["## `imago_client`: asyncio", *_of(client, names)]
    parts.append("## `imago_client.blocking`: the same without an event loop")
    for module, blocking in _BLOCKING.items():
        parts += _of(importlib.import_module(module), blocking)
    parts += ["## `imago_client.metaq`: MetaQ's protocol", *_of(metaq, sorted(metaq.__all__))]
    return "\n\n".join(parts) + "\n"


def _rank(name: str) -> tuple[int, str]:
    return (_FIRST.index(name) if name in _FIRST else 0, name)


def _of(module: Any, names: Iterator[str] | list[str] | tuple[str, ...]) -> Iterator[str]:
    for name in names:
        yield from _section(name, getattr(module, name))


def _section(name: str, value: Any) -> Iterator[str]:
    yield f"### {name}"
    if not inspect.isclass(value):
        yield _item(_signature(name, value), _doc(name, value))
        return
    bases = [base.__name__ for base in value.__bases__ if base not in _PLAIN_BASES]
    shown = "" if not bases or bases == ["Enum"] else f" A `{bases[0]}`."
    yield textwrap.fill(" ".join(_doc(name, value).split()) + shown, WIDTH)
    items = [*_fields(value), *_methods(name, value)]
    if items:
        yield "\n".join(items)


def _fields(kind: type) -> Iterator[str]:
    told = _told(kind)
    if issubclass(kind, enum.Enum):
        for one in kind:
            yield _item(f"{one.name} = {one.value!r}", told.get(one.name, ""))
    elif dataclasses.is_dataclass(kind):
        for field in dataclasses.fields(kind):
            usual = "" if field.default is dataclasses.MISSING else f" = {field.default!r}"
            yield _item(f"{field.name}: {field.type}{usual}", told.get(field.name, ""))


def _told(kind: type) -> dict[str, str]:
    """Return what stands below each field of a class."""
    try:
        source = textwrap.dedent(inspect.getsource(kind))
    except OSError:
        return {}
    body = ast.parse(source).body[0].body  # type: ignore[attr-defined]  # a class
    found: dict[str, str] = {}
    for one, after in itertools.pairwise(body):
        target = getattr(one, "target", None) or (getattr(one, "targets", None) or [None])[0]
        said = after.value if isinstance(after, ast.Expr) else None
        if isinstance(target, ast.Name) and isinstance(said, ast.Constant):
            found[target.id] = " ".join(str(said.value).split())
    return found


def _methods(name: str, kind: type) -> Iterator[str]:
    for own, value in vars(kind).items():
        if own.startswith("_") or (own in _OF_PROTOCOLS and not value.__doc__):
            continue
        if isinstance(value, property) or type(value).__name__ == "cached_property":
            getter = getattr(value, "fget", None) or value.func
            returns = getter.__annotations__.get("return", "")
            yield _item(f"{own}: {returns}", " ".join((getter.__doc__ or "").split()))
        elif isinstance(value, classmethod | staticmethod) or inspect.isfunction(value):
            function = getattr(value, "__func__", value)
            shown = "async " if inspect.iscoroutinefunction(function) else ""
            yield _item(shown + _signature(own, function), _doc(f"{name}.{own}", function))


def _signature(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    parameters = [one for key, one in signature.parameters.items() if key not in ("self", "cls")]
    text = str(signature.replace(parameters=parameters))
    return name + re.sub(r"'([^']*)'", r"\1", text)


def _doc(name: str, value: Any) -> str:
    text = value.__doc__
    if not text or text.startswith(f"{name}("):  # which a dataclass says of itself
        raise ValueError(f"{name} has no docstring")
    return inspect.cleandoc(text)


def _item(head: str, text: str) -> str:
    said = f": {' '.join(text.split())}" if text else ""
    return textwrap.fill(
        f"`{head}`{said}", WIDTH, initial_indent="- ", subsequent_indent="  ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
