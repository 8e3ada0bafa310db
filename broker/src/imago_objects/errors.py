"""What can go wrong with a bucket, by what can be done about it."""

from __future__ import annotations

import re


class ObjectsError(Exception):
    """Base of everything that this package raises on purpose: `bucket: what; cure`."""

    def __init__(self, bucket: str, what: str, cure: str) -> None:
        super().__init__(f"{bucket}: {what}; {cure}")
        self.bucket, self.what, self.cure = bucket, what, cure


class BucketAwayError(ObjectsError):
    """The bucket did not answer, or cannot now: the same call may succeed later."""


class BucketRefusedError(ObjectsError):
    """The bucket, or the way to it, is not as it has to be: waiting does not help."""


class ObjectMissingError(ObjectsError):
    """There is no object of that name."""


class ObjectTooLargeError(ObjectsError):
    """More than is taken into memory at once."""


_CODE = re.compile(r"<Code>(\w+)</Code>")
_STATUS = re.compile(r"status code: (\d+)[^\n:]*")
_REASONS = {
    "dns error": "its name is unknown",
    "connection refused": "connection refused",
    "certificate": "its certificate is not trusted",
    "unknownissuer": "its certificate is not trusted",
    "timedout": "no answer in time",
    "timed out": "no answer in time",
    "connection reset": "connection reset",
    "connectionclosed": "connection closed",
    "incompletemessage": "connection closed",
}
"""Marks of the library's debug text, which has hundreds of lines, and what they say."""

_IS_IT_THERE = "is the endpoint right and reachable from here?"
_CURES = {
    "NoSuchBucket": "make the bucket, or name another",
    "InvalidAccessKeyId": "check the credentials",
    "SignatureDoesNotMatch": "check the credentials, and the clock of this machine",
    "AccessDenied": "give the credentials the right to read, write, list and delete there",
}


def translated(error: Exception, bucket: str, name: str) -> ObjectsError:
    """Say in a sentence what the library says in a page."""
    text = str(error)
    found = _CODE.search(text)
    code = found[1] if found else ""
    answered = _STATUS.search(text)
    if isinstance(error, FileNotFoundError) and code != "NoSuchBucket":
        return ObjectMissingError(bucket, f"there is no {name!r}", "was it deleted by hand?")
    status = int(answered[1]) if answered else 0
    what = " ".join(filter(None, (f"answered {status}" if status else "", code))) or _reason(text)
    if type(error).__name__ in ("PermissionDeniedError", "UnauthenticatedError") or (
        400 <= status < 500 and status not in (408, 429)
    ):
        cure = _CURES.get(code, "check bucket, credentials and region")
        return BucketRefusedError(bucket, f"{name!r}: {what}", cure)
    if isinstance(error, ValueError):
        return BucketRefusedError(bucket, f"{name!r}: {_first_line(text)}", "write it otherwise")
    return BucketAwayError(
        bucket, f"{name!r}: {what}", "try again later" if status else _IS_IT_THERE
    )


def _reason(text: str) -> str:
    lower = text.lower()
    return next((said for mark, said in _REASONS.items() if mark in lower), _first_line(text))


def _first_line(text: str) -> str:
    return text.partition("\n")[0][:200]
