"""Users: names, credentials, and how all of it stands in the log's metadata.

A signature of RocketMQ's clients is made with the user's secret key itself, so a user who signs
has it kept as it is (`secret`). Of who only logs in over HTTP there is a hash alone.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from imago_broker.model.access.access import (
    AccessKind,
    AccessRule,
    Operation,
    Resource,
    rules_problem,
)
from imago_broker.model.access.white_addresses import list_problem
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NAME_SIZE_MAX: Final = 64
SECRET_SIZE_MAX: Final = 256
TOKENS_MAX: Final = 32
"""Of one user."""
NOTE_SIZE_MAX: Final = 100
"""Of what a token is for, in characters; the rest of a longer one is left out."""
ANONYMOUS: Final = "anonymous"
"""Clients without credentials: rules about this name are for all of them."""

MEMBER: Final = "(broker)"
"""A broker of the cluster that asks another: no user can have this name."""


class Introduced(NamedTuple):
    """A client, as the broker that it is connected to knows it and tells another one."""

    user: str
    """Whom its certificate names, or who has signed; "": nobody."""
    host: str
    """"": it is the connection's own."""
    port: int


_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*", re.ASCII)
_SCRYPT: Final = {"n": 1 << 14, "r": 8, "p": 1}
_TOKEN_MARK: Final = "imt"  # noqa: S105  what tokens begin with


@dataclass(frozen=True, slots=True, kw_only=True)
class BearerToken:
    """A bearer token of a user; the token itself is kept by who has it."""

    number: str
    hashed: str
    expires_ms: int
    """0: never."""
    note: str = ""

    def ending_by(self, until_ms: int) -> BearerToken:
        """Return the token with an end that is no later; 0: with its own."""
        ends = [moment for moment in (self.expires_ms, until_ms) if moment]
        return replace(self, expires_ms=min(ends, default=0))

    def has_ended(self, now_ms: int) -> bool:
        """Whether it counts no more."""
        return 0 < self.expires_ms <= now_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """One user. Rules stand apart: see `imago_broker.model.access.access`."""

    name: str
    is_super: bool = False
    """May do everything, whatever the rules say."""
    enabled: bool = True
    secret: str = ""
    """The key of its signatures, and its password; empty: it does not sign."""
    hashed: str = ""
    """The password's hash, where there is no secret."""
    tokens: tuple[BearerToken, ...] = ()
    white_addresses: str = ""
    """Addresses in RocketMQ 4.9's form from which its requests need no right signature."""
    former_secret: str = ""
    """The key before `secret`, with which requests may be signed a while longer."""
    former_until_ms: int = 0

    def with_secret(self, secret: str, *, former_until_ms: int = 0) -> User:
        """Return the user with another key; what signs with the one before counts until then."""
        if secret == self.secret:
            kept = former_until_ms if self.former_secret else 0
            return replace(self, former_until_ms=kept or self.former_until_ms)
        former = self.secret if former_until_ms else ""
        return replace(
            self,
            secret=secret,
            hashed="",
            former_secret=former,
            former_until_ms=former_until_ms if former else 0,
        )

    def signing_keys(self, now_ms: int) -> tuple[str, ...]:
        """Return the keys that its requests may be signed with now; none: it does not sign."""
        if not self.secret:
            return ()
        valid = self.former_secret and now_ms < self.former_until_ms
        return (self.secret, self.former_secret) if valid else (self.secret,)

    def has_password(self, password: str) -> bool:
        """Whether this is the user's password; takes as long for a wrong one."""
        if self.secret:
            is_hash_of("", password)  # as slow as where there is no such user
            return hmac.compare_digest(self.secret.encode(), password.encode())
        return is_hash_of(self.hashed, password)

    def token(self, number: str) -> BearerToken | None:
        """Return one of its tokens."""
        return next((token for token in self.tokens if token.number == number), None)

    def with_former_token(self, number: str, note: str, *, until_ms: int) -> User:
        """Return the user without its tokens of a note, but this one of them, which a new one is to
        follow: it ends by `until_ms`; 0: when it would anyway."""
        kept = tuple(
            token.ending_by(until_ms) if token.number == number else token
            for token in self.tokens
            if token.note != _line(note) or token.number == number
        )
        return replace(self, tokens=kept)

    def to_json(self) -> dict[str, Any]:
        """Return the form in which it is kept."""
        return {
            "super": self.is_super,
            "enabled": self.enabled,
            "secret": self.secret,
            "hashed": self.hashed,
            "tokens": [[t.number, t.hashed, t.expires_ms, t.note] for t in self.tokens],
            "whiteAddresses": self.white_addresses,
            # Left out where there is none: brokers of a version before do not know it.
            **(
                {"former": [self.former_secret, self.former_until_ms]} if self.former_secret else {}
            ),
        }

    @classmethod
    def from_json(cls, name: str, value: Mapping[str, Any]) -> User:
        """Read `to_json`'s form."""
        former, former_until_ms = value.get("former", ("", 0))
        return cls(
            name=name,
            is_super=bool(value["super"]),
            enabled=bool(value["enabled"]),
            secret=str(value["secret"]),
            hashed=str(value["hashed"]),
            tokens=tuple(
                BearerToken(number=str(n), hashed=str(h), expires_ms=int(e), note=str(note))
                for n, h, e, note in value["tokens"]
            ),
            white_addresses=str(value["whiteAddresses"]),
            former_secret=str(former),
            former_until_ms=int(former_until_ms),
        )

    def shown(self) -> dict[str, Any]:
        """Return what may be shown of it: nothing that lets anybody in."""
        signs, tokens = bool(self.secret), [_shown_token(token) for token in self.tokens]
        return {
            "name": self.name,
            "super": self.is_super,
            "enabled": self.enabled,
            "signs": signs,
            "password": signs or bool(self.hashed),
            "tokens": tokens,
            "whiteAddresses": self.white_addresses,
            **({"formerUntil": self.former_until_ms} if self.former_secret else {}),
        }


def _shown_token(token: BearerToken) -> dict[str, Any]:
    return {"number": token.number, "expires": token.expires_ms, "note": token.note}


def user_problem(user: User) -> str | None:
    """Return why there cannot be such a user, or None."""
    if problem := name_problem(user.name):
        return problem
    if user.secret and (problem := secret_problem(user.secret)):
        return problem
    if len(user.tokens) > TOKENS_MAX:
        return f"a user has at most {TOKENS_MAX} tokens: delete one"
    return list_problem([user.white_addresses]) if user.white_addresses else None


def name_problem(name: str) -> str | None:
    """Return why no user may have this name, or None."""
    if not name:
        return "the user has no name"
    if len(name) > NAME_SIZE_MAX:
        return f"the user's name has {len(name)} characters, at most {NAME_SIZE_MAX}"
    if not _NAME.fullmatch(name):
        return "a user's name consists of letters, digits and _.@- and starts with no sign"
    return None


def secret_problem(secret: str) -> str | None:
    """Return why this cannot be a password, or None."""
    if len(secret) < 6:
        return "a password has at least 6 characters"
    if len(secret) > SECRET_SIZE_MAX:
        return f"a password has at most {SECRET_SIZE_MAX} characters"
    if not secret.isprintable():
        return "a password has no characters that cannot be printed"
    return None


def hash_of(password: str, salt: bytes) -> str:
    """Return what is kept of a password: `scrypt:salt:hash`."""
    found = hashlib.scrypt(password.encode(), salt=salt, dklen=32, **_SCRYPT)
    return f"scrypt:{salt.hex()}:{found.hex()}"


def is_hash_of(kept: str, password: str) -> bool:
    """Whether `kept` was made of this password; as slow where there is none."""
    scheme, _, rest = kept.partition(":")
    salt, _, wanted = rest.partition(":")
    found = hash_of(password, bytes.fromhex(salt) if scheme == "scrypt" else b"none")
    return scheme == "scrypt" and hmac.compare_digest(found, f"scrypt:{salt}:{wanted}")


def new_token(user: User, *, expires_ms: int, note: str) -> tuple[User, str]:
    """Give the user one more token; return both. Nobody sees the token again."""
    number, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    token = BearerToken(
        number=number, hashed=token_hash(secret), expires_ms=expires_ms, note=_line(note)
    )
    return replace(
        user, tokens=(*user.tokens, token)
    ), f"{_TOKEN_MARK}.{user.name}.{number}.{secret}"


def _line(note: str) -> str:
    return note[:NOTE_SIZE_MAX]


def token_parts(text: str) -> tuple[str, str, str] | None:
    """Return user, number and secret of a token; None where it is none of ours, which are ASCII."""
    if not text.isascii():
        return None
    mark, _, rest = text.partition(".")
    left, _, secret = rest.rpartition(".")
    name, _, number = left.rpartition(".")
    return (name, number, secret) if mark == _TOKEN_MARK and name and number and secret else None


def token_hash(secret: str) -> str:
    """Return what is kept of a token: it is random, so one round is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()


def rules_to_json(rules: Sequence[AccessRule]) -> list[dict[str, Any]]:
    """Return rules as they are kept, exported, and written in a Kubernetes resource."""
    return [
        {
            "effect": "Allow" if rule.allow else "Deny",
            "resource": {
                "type": rule.resource.kind.capitalize(),
                **(
                    {"name": rule.resource.name} if rule.resource.kind != AccessKind.CLUSTER else {}
                ),
                **({"patternType": "prefix"} if rule.resource.prefix else {}),
            },
            "operations": sorted(rule.operations),
            **({"hosts": list(rule.hosts)} if rule.hosts else {}),
        }
        for rule in rules
    ]


def rules_from_json(value: object) -> tuple[AccessRule, ...]:
    """Read `rules_to_json`'s form. ValueError names what is wrong in it."""
    if not isinstance(value, list):
        raise WrongError("rules are a list")
    rules = tuple(map(_rule, value))
    if problem := rules_problem(rules):
        raise WrongError(problem)
    return rules


def _rule(value: object) -> AccessRule:
    told = _object("a rule", value, {"effect", "resource", "operations", "hosts"})
    resource = _object("a resource", told.get("resource"), {"type", "name", "patternType"})
    pattern, effect = resource.get("patternType", "literal"), told.get("effect", "Allow")
    if pattern not in ("literal", "prefix"):
        raise WrongError(f"patternType: {pattern!r:.40}, must be literal or prefix")
    if effect not in ("Allow", "Deny"):
        raise WrongError(f"effect: {effect!r:.40}, must be Allow or Deny")
    named = _texts("operations", told.get("operations"))
    operations = (
        Operation if named == ["all"] else (_one_of(Operation, "operation", name) for name in named)
    )
    kind = _one_of(AccessKind, "type of resource", str(resource.get("type", "")))
    return AccessRule(
        Resource(kind, str(resource.get("name", "")), pattern == "prefix"),
        frozenset(operations),
        tuple(_texts("hosts", told.get("hosts", []))),
        effect == "Allow",
    )


def _object(what: str, value: object, known: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise WrongError(f"{what} is an object with {', '.join(sorted(known))}")
    if unknown := set(value) - known:
        raise WrongError(f"{what} has no {', '.join(map(str, unknown))[:80]}")
    return value


def _texts(what: str, value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise WrongError(f"{what} is a list of texts")
    return value


def _one_of(kind: type[Any], what: str, text: str) -> Any:
    try:
        return kind(text.lower())
    except ValueError:
        listed = ", ".join(each.value for each in kind)
        alone = "; or all, alone" if kind is Operation else ""
        raise WrongError(f"{what} {text!r:.40}: must be one of {listed}{alone}") from None
