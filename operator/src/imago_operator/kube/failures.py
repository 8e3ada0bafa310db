"""What an answer of the API server asks for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from imago_operator.errors import BlockedError, InvalidError, OperatorError, RetryError

if TYPE_CHECKING:
    from collections.abc import Mapping

RETRY_S: Final = 1.0
RETRY_AFTER_MAX_S: Final = 60.0
TEXT_MAX: Final = 600
OTHER_UID: Final = "metadata.uid: Invalid value"
"""A patch that names the uid of an object that is no longer there gets 422."""
UNTYPED: Final = "failed to create typed patch object"
"""An applied object that does not fit its schema gets 500."""


class GoneError(OperatorError):
    """The object is not there (404)."""


class ExistsError(OperatorError):
    """An object of the name is there already (409 on a creation)."""


def failure(
    verb: str, what: str, status: int, body: bytes, headers: Mapping[str, str]
) -> OperatorError:
    """Return the error that an answer of 400 or above stands for.

    `verb` is as in rights (get, list, create, patch, delete), `what` names the object.
    """
    said = _said(body)
    text = f"{verb} {what}: {status} {_text(said, body)}"
    if status == 404:
        return GoneError(text)
    if status == 403:
        return _forbidden(verb, what, text)
    if status == 422 and OTHER_UID in text:
        return RetryError(text, delay_s=RETRY_S)
    if status in (400, 413, 415, 422) or UNTYPED in text:
        return InvalidError(text)
    if status == 409 and said.get("reason") == "AlreadyExists":
        return ExistsError(text)
    return RetryError(text, delay_s=_delay(headers))


def _forbidden(verb: str, what: str, text: str) -> BlockedError:
    if "exceeded quota" in text:
        return BlockedError(text, until="the namespace's quota has room")
    if "being terminated" in text:
        return BlockedError(text, until="the namespace is no longer being deleted")
    return BlockedError(text, until=f"the operator may {verb} {what.partition(' ')[0]}")


def _delay(headers: Mapping[str, str]) -> float:
    said = headers.get("Retry-After", "")
    return min(float(said), RETRY_AFTER_MAX_S) if said.isdecimal() else RETRY_S


def _said(body: bytes) -> Mapping[str, Any]:
    """Return the Status object of an answer; empty where it is something else."""
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _text(said: Mapping[str, Any], body: bytes) -> str:
    text = str(said.get("message") or body.decode(errors="replace"))
    return text[:TEXT_MAX]
