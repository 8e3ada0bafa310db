"""The sections about who may do what."""

from __future__ import annotations

from dataclasses import dataclass

from imago_broker.config.section import ConfigError, check, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class AclSection:
    """Access control of the client ports and of the admin interface."""

    enabled: bool = setting(
        False,
        "Whether requests need a user who may have them served; off: anyone who reaches a port may"
        " send, read and administer. Users are kept either way.",
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenReviewSection:
    """Service accounts of Kubernetes as users of the admin interface, as ACCOUNT@NAMESPACE."""

    url: str = setting(
        "",
        "Base address of the API server that says whose tokens are, with https; empty: nobody is"
        " asked. Needs `acl.enabled`.",
    )
    ca_file: str = setting(
        "", "PEM file of the authorities of its certificate; empty: those of the system."
    )
    token_file: str = setting(
        "",
        "File with the broker's own token, which needs the right to create TokenReviews; read"
        " again at each question.",
    )
    audience: str = setting("imago", "Audience that tokens are made for.")

    def __post_init__(self) -> None:
        check(self)
        if self.url and not self.url.startswith("https://"):
            raise ConfigError("token_review.url: tokens are sent there: begin it with https://")
        if self.url and not (self.token_file and self.audience):
            raise ConfigError("token_review.url: needs token_review.token_file and an audience")


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
