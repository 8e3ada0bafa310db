"""Profiles: what commands need to reach a cluster, under a name, in a file without secrets.

A profile stands in for environment variables: what is in the environment, or said by an option,
wins over it. Paths are those beside the file.
"""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from imago_cli.exits import CommandUsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

FILE_VARIABLE: Final = "IMAGO_PROFILES"
FILE: Final = "~/.config/imago/profiles.toml"
TEXTS: Final[Mapping[str, str]] = {
    "bootstrap": "IMAGO_BOOTSTRAP",
    "metaq": "IMAGO_METAQ",
    "admin": "IMAGO_ADMIN",
    "user": "IMAGO_USER",
}
PATHS: Final[Mapping[str, str]] = {
    "password_file": "IMAGO_PASSWORD_FILE",
    "admin_token_file": "IMAGO_ADMIN_TOKEN_FILE",
    "tls_ca_file": "IMAGO_TLS_CA",
    "tls_certificate_file": "IMAGO_TLS_CERTIFICATE",
    "tls_key_file": "IMAGO_TLS_KEY",
}
"""The keys of a profile, and the variables that they stand for."""


def apply(name: str, environment: MutableMapping[str, str]) -> None:
    """Set the variables of a profile that are not set. CommandUsageError: there is none."""
    file = Path(environment.get(FILE_VARIABLE) or FILE).expanduser()
    profiles = _read(file)
    profile = profiles.get(name)
    if not isinstance(profile, dict):
        near = difflib.get_close_matches(name, profiles, n=1)
        hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(profiles) or 'none'}"
        raise CommandUsageError(f"--profile {name}: is not in {file}", cure=hint)
    for key, value in profile.items():
        variable = TEXTS.get(key) or PATHS.get(key)
        if variable is None or not isinstance(value, str):
            raise CommandUsageError(f"{file}: [{name}] {key}: {_problem(key, value)}")
        if key in PATHS:
            value = str(file.parent / Path(value).expanduser())  # noqa: PLW2901
        environment.setdefault(variable, value)


def _problem(key: str, value: object) -> str:
    known = [*TEXTS, *PATHS]
    if key in known:
        return f"must be a text, not {value!r:.40}"
    if key in ("password", "token", "admin_token"):
        return "a profile holds no secret: name a file that has it alone"
    near = difflib.get_close_matches(key, known, n=1)
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandUsageError(
            f"{file}: {error.strerror}",
            cure=f"write your profiles there, or name the file: {FILE_VARIABLE}",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CommandUsageError(f"{file}: {error}") from error
