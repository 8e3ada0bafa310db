"""A home for Spark whose Python processes load PySpark as it is installed, already compiled.

Spark puts `python/lib/pyspark.zip` of its home before all else on the path of each Python that it
starts, and an archive holds no compiled modules: each process compiles what it imports, half a
second of it, within the ten seconds that Spark gives it. A home without that folder has them
import the package that runs the driver.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_LINKED: Final = ("bin", "conf", "jars", "sbin")
_NAME: Final = "SPARK_HOME"


@contextlib.contextmanager
def compiled_pyspark(*, cache: Path | None = None) -> Iterator[None]:
    """Have a local session that is made within use PySpark as it is installed.

    Nothing changes where `SPARK_HOME` is set, PySpark is not a package of this Python, or the
    user's cache cannot be written.
    """
    home = None
    if _NAME not in os.environ:
        with contextlib.suppress(OSError, RuntimeError):  # no folder of the user's
            home = _home(cache or _user_cache())
    if home is None:
        yield
        return
    os.environ[_NAME] = str(home)
    try:
        yield
    finally:
        del os.environ[_NAME]


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _home(cache: Path) -> Path | None:
    """Return a folder of links, the same for each process of this PySpark; it stays.

    The JVM opens some of its archives only when it needs them.
    """
    import pyspark

    installed = Path(pyspark.__file__).resolve().parent
    if installed.parent != Path(sysconfig.get_path("purelib")).resolve():
        return None
    digest = hashlib.sha256(os.fsencode(installed)).hexdigest()[:16]
    home = cache / "imago" / f"spark-{digest}"
    home.mkdir(parents=True, exist_ok=True)
    for name in _LINKED:  # whether or not it is there yet
        with contextlib.suppress(FileExistsError):
            (home / name).symlink_to(installed / name)
    return home
