"""Real records that a machine holds already: packages, their changes, what was installed when.

On Debian: the package lists, the change logs below /usr/share/doc, dpkg's own log, checksums of
installed files. Elsewhere, and to fill up: the files of this Python.
"""

from __future__ import annotations

import gzip
import lzma
import re
import sysconfig
import zlib
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, cast

import lz4.frame
import orjson

from imago_wire.crc import crc31
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

RECORDS_MIN: Final = 20_000
_PER_SOURCE_MAX: Final = 10_000
_TEXT_CHARACTERS_MAX: Final = 2_000
_FILE_BYTES_MAX: Final = 64 << 20
_RELEASE: Final = re.compile(r"^ -- .*?>\s+(.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class DemoRecord:
    """One message of the demonstration. The body is JSON and holds the number."""

    number: int
    kind: str
    key: str
    body: bytes

    @property
    def crc(self) -> int:
        return crc31(self.body)


Fact = tuple[str, str, str]
"""Kind, key, text."""


def collect(root: Path = Path("/")) -> list[DemoRecord]:
    """Return tens of thousands of records, as many kinds as the machine has."""
    facts: list[Fact] = []
    for source in (_packages, _changes, _dpkg_log):
        facts += islice(source(root), _PER_SOURCE_MAX)
    if len(facts) < RECORDS_MIN:
        facts += islice(_checksums(root), RECORDS_MIN - len(facts))
    if len(facts) < RECORDS_MIN:
        facts += islice(_python_lines(), RECORDS_MIN - len(facts))
    return [_record(number, fact) for number, fact in enumerate(facts)]


def _record(number: int, fact: Fact) -> DemoRecord:
    kind, key, text = fact
    body = orjson.dumps(
        {"number": number, "kind": kind, "key": key, "text": text[:_TEXT_CHARACTERS_MAX]}
    )
    return DemoRecord(number, kind, key, body)


def number_of(body: bytes) -> int:
    """Return the number of the record that a body holds. ValueError: it is none."""
    try:
        return int(orjson.loads(body)["number"])
    except (KeyError, TypeError) as error:
        raise WrongError("not a record of the demonstration") from error


def _packages(root: Path) -> Iterator[Fact]:
    lists = sorted((root / "var/lib/apt/lists").glob("*_Packages*"))
    for path in [*lists, root / "var/lib/dpkg/status"]:
        for stanza in _read(path).split("\n\n"):
            name = stanza.partition("Package: ")[2].partition("\n")[0]
            if name:
                yield "package", name, stanza


def _changes(root: Path) -> Iterator[Fact]:
    for path in sorted((root / "usr/share/doc").glob("*/changelog*.gz")):
        text = _read(path)
        begin = 0
        for release in _RELEASE.finditer(text):
            yield "change", path.parent.name, text[begin : release.end()].strip()
            begin = release.end()


def _dpkg_log(root: Path) -> Iterator[Fact]:
    for line in _read(root / "var/log/dpkg.log").splitlines():
        words = line.split(" ")
        if len(words) > 3:
            yield "dpkg", words[3].partition(":")[0] or words[2], line


def _checksums(root: Path) -> Iterator[Fact]:
    for path in sorted((root / "var/lib/dpkg/info").glob("*.md5sums")):
        for line in _read(path).splitlines():
            yield "file", path.stem.partition(":")[0], line


def _python_lines() -> Iterator[Fact]:
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.rglob("*.py")):
        for line in _read(path).splitlines():
            if line.strip():
                yield "python", str(path.relative_to(library)).replace(" ", "_"), line


def _read(path: Path) -> str:
    """Return a file's text, cut where it is huge; nothing where it cannot be read."""
    try:
        with _open(path) as file:
            return file.read(_FILE_BYTES_MAX).decode("utf-8", "replace")
    except (OSError, EOFError, RuntimeError, zlib.error):
        return ""


def _open(path: Path) -> IO[bytes]:
    """Open a file that may be compressed; RuntimeError is what the LZ4 module raises on damage."""
    opener = _OPENERS.get(path.suffix, Path.open)
    return cast("IO[bytes]", opener(path, "rb"))


_OPENERS: Final[Mapping[str, Callable[[Path, str], object]]] = {
    ".gz": gzip.open,
    ".lz4": lz4.frame.open,
    ".xz": lzma.open,
}
