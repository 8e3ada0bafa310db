"""The sections about who may do what, and how connections are encrypted."""

from __future__ import annotations

from dataclasses import dataclass

from imago_broker.config.sections.section import ConfigError, check, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class AclSection:
    """Access control of the client ports and of the admin interface."""

    enabled: bool = setting(
        False,
        "Whether requests need a user who may have them served; off: anyone who reaches a port may"
        " send, read and administer. Users are kept either way.",
    )
    audit: bool = setting(
        False,
        "With `acl.enabled`: clients are not refused on the client ports yet. What would be is"
        " served, logged (access_would_be_denied) and counted (imago_access_would_be_denied_total)."
        " What runs the cluster (users, rules, settings, members) and the admin interface are"
        " checked.",
    )

    def __post_init__(self) -> None:
        check(self)

    @property
    def refuses(self) -> bool:
        """Whether a request needs a user who may have it served."""
        return self.enabled and not self.audit


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenReviewSection:
    """Service accounts of Kubernetes as users of the admin interface, as ACCOUNT@NAMESPACE."""

    url: str = setting(
        "",
        "Base address of the API server that says whose tokens are, with https; empty: nobody is"
        " asked. Needs `acl.enabled`.",
        pattern="(https://.*)?",
        written="an address with https, like https://kubernetes.default.svc",
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
        check(self, parsed=("url",))
        if self.url and not self.url.startswith("https://"):
            raise ConfigError("token_review.url: tokens are sent there: begin it with https://")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSection:
    """TLS of the client ports, of the admin port and between members."""

    certificate_file: str = setting(
        "",
        "PEM file of the certificate, followed by those that lead to its authority; empty: no TLS."
        " Read again, as the other files here, when it changes.",
    )
    key_file: str = setting("", "PEM file of its key, without a password.")
    ca_file: str = setting(
        "",
        "PEM file of the authorities that certificates of clients and of other brokers are checked"
        " with; empty: the certificates in `certificate_file`.",
    )
    client_auth: str = setting(
        "none",
        "Whether clients show a certificate of `client_ca_file` or `ca_file`: none, optional,"
        " required.",
        one_of=("none", "optional", "required"),
    )
    client_ca_file: str = setting(
        "",
        "PEM file of the authorities whose certificates name clients: those that sign them, without"
        " any between; `ca_file` is for brokers alone then. Empty: `ca_file`.",
    )
    admin_client_auth: str = setting(
        "same",
        "That of callers of the admin port: none, optional, required, or same as `client_auth`.",
        one_of=("same", "none", "optional", "required"),
    )
    mode: str = setting(
        "permissive",
        "RocketMQ's ports and the name service: disabled, permissive (with TLS and without, on the"
        " same port) or enforcing (TLS only).",
        one_of=("disabled", "permissive", "enforcing"),
    )
    metaq_port: int = setting(
        -1, "Port on which MetaQ is served with TLS; -1: none; 0: any free one.", low=-1, high=65535
    )
    admin: str = setting(
        "permissive",
        "The admin port: disabled, or permissive (https and http on the same port).",
        one_of=("disabled", "permissive"),
    )
    replication: str = setting(
        "disabled",
        "Between the members of a shard, with mutual TLS: disabled, permissive (also without, for a"
        " shard that changes over) or enforcing. The certificate names cluster and shard, as"
        " URI:imago://CLUSTER/shard-N.",
        one_of=("disabled", "permissive", "enforcing"),
    )
    calls: str = setting(
        "permissive",
        "Calls to the admin ports of other brokers: disabled (http), permissive (https, and http"
        " where that is not answered) or enforcing (https only).",
        one_of=("disabled", "permissive", "enforcing"),
    )
    handshakes_per_second_max: int = setting(
        500,
        "Handshakes that begin in a second, on all ports but replication's together, as far as they"
        " take a quarter of the processor; more wait, those of each address in turn. 0: any number"
        " at any cost.",
        low=0,
    )

    def __post_init__(self) -> None:
        check(self)

    @property
    def asked_of_admin(self) -> str:
        """Whether callers of the admin port show a certificate."""
        return self.client_auth if self.admin_client_auth == "same" else self.admin_client_auth
