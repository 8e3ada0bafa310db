"""Profiles: what commands need to reach a cluster, under a name, in a file without secrets.

A profile stands in for environment variables: what is in the environment, or said by an option,
wins over it. Paths are those beside the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from imago_cli.exits import CommandUsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

FILE_VARIABLE: Final = "IMAGO_PROFILES"
FILE: Final = "~/.config/imago/profiles.toml"
CHOICE: Final = "chosen-profile"
"""The file beside it that names the profile which is meant where none is named."""
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


def apply(name: str, environment: MutableMapping[str, str], *, over: bool = False) -> None:
    """Set a profile's variables, but not those that are set, unless `over`.

    CommandUsageError: there is no such profile.
    """
    for key, value in named(name, environment).items():
        variable = TEXTS.get(key) or PATHS[key]
        if over or variable not in environment:
            environment[variable] = value


def named(name: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return a profile, its paths whole. CommandUsageError: there is none, or it is wrong."""
    file = _file(environment)
    profiles = _read(file)
    profile = profiles.get(name)
    if not isinstance(profile, dict):
        import difflib

        near = difflib.get_close_matches(name, profiles, n=1)
        hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(profiles) or 'none'}"
        raise CommandUsageError(f"--profile {name}: is not in {file}", cure=hint)
    return {key: _checked(file, name, key, value) for key, value in profile.items()}


def profiles_of(environment: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return all profiles by name; none where there is no file yet."""
    file = _file(environment)
    return {name: named(name, environment) for name in _read(file)} if file.exists() else {}


def chosen(environment: Mapping[str, str]) -> str:
    """Return the profile that is meant where none is named; "": none was chosen."""
    try:
        return _choice(environment).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def choose(name: str, environment: Mapping[str, str]) -> None:
    """Have that be meant from now on; it stands in a file beside the profiles."""
    _write(_choice(environment), f"{name}\n")


def add_to(name: str, profile: Mapping[str, str], environment: Mapping[str, str]) -> Path:
    """Add a profile at the end of the file; return which file. CommandUsageError: there is one."""
    file = _file(environment)
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    if before and name in _read(file):
        raise CommandUsageError(f"profile {name}: is in {file} already", cure="change it there")
    whole = dict(profile)
    for key in PATHS.keys() & whole.keys():
        whole[key] = str(Path(whole[key]).expanduser().absolute())
    from imago_cli import toml_text

    gap = "\n" if before else ""
    _write(file, f"{before}{gap}{toml_text.dump({name: whole})}")
    return file


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandUsageError(f"{file}: {error.strerror}") from error


def _file(environment: Mapping[str, str]) -> Path:
    return Path(environment.get(FILE_VARIABLE) or FILE).expanduser()


def _choice(environment: Mapping[str, str]) -> Path:
    return _file(environment).with_name(CHOICE)


def _checked(file: Path, name: str, key: str, value: object) -> str:
    if key not in TEXTS.keys() | PATHS.keys() or not isinstance(value, str):
        raise CommandUsageError(f"{file}: [{name}] {key}: {_problem(key, value)}")
    return str(file.parent / Path(value).expanduser()) if key in PATHS else value


def _problem(key: str, value: object) -> str:
    known = [*TEXTS, *PATHS]
    if key in known:
        return f"must be a text, not {value!r:.40}"
    if key in ("password", "token", "admin_token"):
        return "a profile holds no secret: name a file that has it alone"
    import difflib

    near = difflib.get_close_matches(key, known, n=1)
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"


def _read(file: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandUsageError(
            f"{file}: {error.strerror}",
            cure="imago profile add NAME --bootstrap HOST:PORT makes one there, or name the file:"
            f" {FILE_VARIABLE}",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CommandUsageError(f"{file}: {error}") from error
