"""One small door to object stores: S3 and what speaks like it, Google's, Azure's, a folder, memory.

    settings = ObjectsConfig("s3://bucket/prefix", region="eu-central-1",
                             credentials_folder="/etc/imago/objects")
    bucket = open_objects(settings)          # loads the library, connects to nothing
    await bucket.probe()                     # is it there, writable, and does it keep its word?
    await bucket.put("a/b", b"bytes")        # or a Path: in parts, whole or not at all
    await bucket.put_if_absent("a/c", b"…")  # False: there is one of that name (read it)
    await bucket.get("a/b", start=0, length=4096)
    await bucket.head("a/b")                 # Stored(name, size, etag), or None
    await bucket.list("a")                   # all below the folder "a", by name
    await bucket.delete(["a/b", "a/c"])      # what is not there is as good as deleted

Names are below the URL's prefix. Every failure is an `ObjectsError`, and which one says what to do:
`BucketAwayError` (try again later), `BucketRefusedError` (somebody has to change something),
`ObjectMissingError`, `ObjectTooLargeError`. Each says which bucket, what, and the cure. A request
is tried `attempts` times, `timeout_s` each, then the error is raised: nothing here waits for a
bucket for ever, and there is nothing to close. A put returns when the bucket has what was sent:
S3 checks a SHA-256 of each part, and in a folder the file and its name are synced.

The library (`obstore`, the extra `objects`) is loaded by `open_objects`, and only there.
"""

from imago_objects.config import ObjectsConfig
from imago_objects.errors import (
    BucketAwayError,
    BucketRefusedError,
    ObjectMissingError,
    ObjectsError,
    ObjectTooLargeError,
)
from imago_objects.objects import Objects, Stored
from imago_objects.opening import open_objects

__all__ = [
    "BucketAwayError",
    "BucketRefusedError",
    "ObjectMissingError",
    "ObjectTooLargeError",
    "Objects",
    "ObjectsConfig",
    "ObjectsError",
    "Stored",
    "open_objects",
]
