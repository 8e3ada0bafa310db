"""Known and generated frames of the remoting protocol, for tests of anything that reads them."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from hypothesis import strategies as st

from imago_wire.remoting.command import RemotingCommand, SerializeType
from imago_wire.remoting.peer import Language

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

T = TypeVar("T")

_ENTRY = re.compile(r"^== (.*)\n((?:[^=\n].*\n?)+)", re.MULTILINE)
_HEX_LINE = re.compile(r"^[0-9a-f]+$", re.MULTILINE)


@dataclass(frozen=True)
class Capture:
    """One captured frame; `data` is shorter than `frame_size` where the capture cut it."""

    name: str
    header: dict[str, Any]
    frame_size: int
    header_size: int
    body_size: int
    data: bytes

    @property
    def is_whole(self) -> bool:
        return len(self.data) == self.frame_size


def load_known(path: Path) -> dict[str, bytes]:
    """Return the entries of a file of names and bytes in hex."""
    return {
        name: bytes.fromhex("".join(_HEX_LINE.findall(text)))
        for name, text in _ENTRY.findall(path.read_text())
    }


def load_captures(path: Path) -> list[Capture]:
    """Return the frames of a file of captures."""
    return [_capture(name, text) for name, text in _ENTRY.findall(path.read_text())]


def _capture(name: str, text: str) -> Capture:
    header, sizes, *lines = text.split("\n")
    frame_size, header_size, body_size = map(int, sizes.split()[1:])
    fields = json.loads(header.removeprefix("header "))
    return Capture(name, fields, frame_size, header_size, body_size, bytes.fromhex("".join(lines)))


texts = st.text(st.characters(codec="utf-8"), max_size=20)
ints = st.integers(-(1 << 31), (1 << 31) - 1)
longs = st.integers(-(1 << 63), (1 << 63) - 1)
languages = st.sampled_from([language for language in Language if language >= 0])


@st.composite
def commands(draw: st.DrawFn, serialize: SerializeType | None = None) -> RemotingCommand:
    """Any command that its header form can carry."""
    form = draw(st.sampled_from(SerializeType)) if serialize is None else serialize
    binary = form is SerializeType.ROCKETMQ
    shorts = st.integers(-(1 << 15), (1 << 15) - 1)
    remarks = st.none() | (st.text(st.characters(codec="utf-8"), min_size=1, max_size=20))
    return RemotingCommand(
        code=draw(shorts if binary else ints),
        flag=draw(st.sampled_from([0, 1, 2]) | ints),
        opaque=draw(ints),
        version=draw(shorts if binary else ints),
        language=draw(languages),
        remark=draw(remarks),
        ext=draw(st.dictionaries(texts, texts, max_size=6)),
        body=draw(st.binary(max_size=64)),
        serialize=form,
    )


def classes_below(package: ModuleType, base: type[T]) -> list[type[T]]:
    """Return the classes that a package's modules declare below a base, each once."""
    found: dict[type[T], None] = {}
    for named in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{named.name}")
        for kind in vars(module).values():
            declared = inspect.isclass(kind) and kind.__module__.startswith(package.__name__)
            if declared and issubclass(kind, base) and kind is not base:
                found[kind] = None
    return list(found)
