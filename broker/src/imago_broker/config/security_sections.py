"""The sections about who may do what."""

from __future__ import annotations

from dataclasses import dataclass

from imago_broker.config.section import check, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class AclSection:
    """Access control of the client ports and of the admin interface."""

    enabled: bool = setting(
        False,
        "Whether requests need a user who may have them served; off: whoever reaches a port may"
        " send, read and administer. Users are kept either way.",
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySection:
    """What a broker refuses to be."""

    allow_open: bool = setting(
        True,
        "Whether listeners that other machines reach may be without access control; false: the"
        " broker does not start then.",
    )

    def __post_init__(self) -> None:
        check(self)
