"""What a peer says about itself in every header: its language and its version.

RocketMQ numbers versions by the place of a release in one list; the places that decide something
are named here.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Language(IntEnum):
    """Language codes; a name or byte that is not listed is UNKNOWN, never an error."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13
    UNKNOWN = -1


_BY_NAME: Final = {language.name: language for language in Language if language >= 0}
_BY_CODE: Final = {language.value: language for language in Language if language >= 0}


def language_of(told: object) -> Language:
    """Return the language for a header's name (in either case) or number."""
    if isinstance(told, str):
        return _BY_NAME.get(told) or _BY_NAME.get(told.upper(), Language.UNKNOWN)
    if isinstance(told, int):
        return _BY_CODE.get(told, Language.UNKNOWN)
    return Language.UNKNOWN


class Version(IntEnum):
    """Version ordinals of RocketMQ that decide something, or that tools name.

    From V4_9_4 on a name server answers routes as standard JSON; above V5_3_1 a client
    understands GO_AWAY; a broker below V4_1_0_SNAPSHOT gets no SQL subscriptions; clients from
    V3_4_9 on send a maximum of reconsumptions that counts.
    """

    V3_0_7_SNAPSHOT = 28
    V3_0_11_SNAPSHOT = 36
    V3_0_11 = 37
    V3_1_8_SNAPSHOT = 62
    V3_4_9 = 121
    V4_0_0 = 213
    V4_1_0_SNAPSHOT = 232
    V4_2_0 = 253
    V4_3_0 = 273
    V4_4_0 = 293
    V4_5_0 = 313
    V4_5_2 = 317
    V4_6_0 = 333
    V4_6_1 = 335
    V4_7_0 = 353
    V4_7_1 = 355
    V4_8_0 = 373
    V4_9_0 = 393
    V4_9_1 = 395
    V4_9_2 = 397
    V4_9_3 = 399
    V4_9_4 = 401
    V4_9_5 = 403
    V4_9_6 = 405
    V4_9_7 = 407
    V4_9_8 = 409
    V5_0_0 = 413
    V5_1_0 = 433
    V5_1_1 = 435
    V5_1_2 = 437
    V5_1_3 = 439
    V5_1_4 = 441
    V5_2_0 = 453
    V5_3_0 = 473
    V5_3_1 = 475
    V5_3_2 = 477
    V5_3_3 = 479
    V5_4_0 = 493
    HIGHER_VERSION = 612


OWN_VERSION: Final = int(Version.V5_3_3)
"""What our own headers say: the release whose behaviour we follow."""


def sdk_version(told: str) -> int:
    """Return the ordinal of what an SDK calls its version; 5.0.0 where it counts by itself."""
    return int(Version.__members__.get("V" + told.replace(".", "_"), Version.V5_0_0))


def version_name(ordinal: int) -> str:
    """Return the release's name, or its number where it is not one of those above."""
    try:
        return Version(ordinal).name
    except ValueError:
        return Version.HIGHER_VERSION.name if ordinal > Version.HIGHER_VERSION else f"V_{ordinal}"
