"""Options about who a query is and whom it trusts: names of files, never what is in them.

Spark shows options in plans, logs and its pages, and sends them to executors. So a secret is named
by its file, which the driver and every executor read themselves.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, TypedDict

from imago_spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_TLS: Final = (
    ("tlsCaFile", "IMAGO_TLS_CA"),
    ("tlsCertificateFile", "IMAGO_TLS_CERTIFICATE"),
    ("tlsKeyFile", "IMAGO_TLS_KEY"),
)
_USER: Final = (("user", "IMAGO_USER"), ("passwordFile", "IMAGO_PASSWORD_FILE"))
ACCESS_NAMES: Final = tuple(option for option, _ in (*_TLS, *_USER))

_SECRETS: Final = {
    "password": "passwordFile",
    "secretkey": "passwordFile",
    "tlskey": "tlsKeyFile",
}
"""Options that there are not, since their values would be secrets, and what there is instead."""


class AccessOptions(TypedDict):
    """The fields of `ConnectionOptions` that are about TLS and the user."""

    tls_ca_file: str | None
    tls_certificate_file: str | None
    tls_key_file: str | None
    user: str | None
    password_file: str | None


def read_access(given: Mapping[str, str]) -> AccessOptions:
    """Return the files of TLS and the user, by options or else by the driver's environment."""
    ca, certificate, key = (
        given.get(option.lower()) or os.environ.get(variable) or None for option, variable in _TLS
    )
    if (certificate is None) != (key is None):
        raise OptionError("options tlsCertificateFile and tlsKeyFile: give both, or none")
    if certificate is not None and ca is None:
        raise OptionError("option 'tlsCertificateFile': needs authorities: give tlsCaFile, too")
    user, password_file = _read_user(given)
    return AccessOptions(
        tls_ca_file=ca,
        tls_certificate_file=certificate,
        tls_key_file=key,
        user=user,
        password_file=password_file,
    )


def _read_user(given: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return both from one place: a user of the options has no password of the environment's."""
    user, password_file = (given.get(option.lower()) or None for option, _ in _USER)
    if user is None and password_file is None:
        user, password_file = (os.environ.get(variable) or None for _, variable in _USER)
    if (user is None) != (password_file is None):
        raise OptionError(
            "options user and passwordFile (or IMAGO_USER and IMAGO_PASSWORD_FILE of the driver):"
            " give both, or none"
        )
    return user, password_file


def refuse_secrets(given: Iterable[str]) -> None:
    """Raise OptionError for the first lower-case name whose value would be a secret."""
    for name in given:
        if instead := _SECRETS.get(name):
            raise OptionError(
                f"option {name!r}: Spark shows options in plans and on its pages: give"
                f" {instead}, the name of a file that the driver and all executors can read"
            )
