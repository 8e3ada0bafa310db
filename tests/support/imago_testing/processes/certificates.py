"""Authorities and certificates for tests, made by the `openssl` command."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LOOPBACK = "DNS:localhost,IP:127.0.0.1"


def openssl(*arguments: str, env: Mapping[str, str] | None = None) -> None:
    command, more = ["openssl", *arguments], {**os.environ, **(env or {})}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=more)
    assert done.returncode == 0, done.stderr


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path

    def copy_to(self, other: Pair) -> None:
        """Write this certificate and key over those of another."""
        other.key.write_bytes(self.key.read_bytes())
        other.certificate.write_bytes(self.certificate.read_bytes())


class Authority:
    """One CA; its certificate is in `file`."""

    def __init__(
        self, folder: Path, name: str = "authority", *, env: Mapping[str, str] | None = None
    ) -> None:
        """`env`: of `openssl`, to have it work at another time."""
        folder.mkdir(exist_ok=True)
        self._folder, self._env = folder, env
        self._own = Pair(folder / f"{name}.pem", folder / f"{name}.key")
        request = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        files = ("-keyout", str(self._own.key), "-out", str(self._own.certificate))
        openssl(*request, *files, "-days", "2", "-subj", f"/CN={name}", env=env)

    @property
    def file(self) -> Path:
        return self._own.certificate

    def issue(self, name: str, *, hosts: str = LOOPBACK, days: int = 2) -> Pair:
        """Return a new certificate; `days` below zero: one that is over."""
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        asked, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={hosts}\n")
        request = ("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        openssl(*request, "-keyout", str(pair.key), "-out", str(asked), "-subj", f"/CN={name}")
        sign = ("x509", "-req", "-in", str(asked), "-out", str(pair.certificate))
        by = ("-CA", str(self._own.certificate), "-CAkey", str(self._own.key), "-CAcreateserial")
        openssl(*sign, *by, "-days", str(days), "-extfile", str(extensions), env=self._env)
        return pair
