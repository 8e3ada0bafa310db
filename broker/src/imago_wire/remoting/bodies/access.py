"""Bodies about users and their rights (5.x)."""

from imago_wire.remoting.bodies.fields import Body, body


@body
class UserInfo(Body):
    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None


@body
class PolicyEntryInfo(Body):
    resource: str | None = None
    actions: tuple[str, ...] | None = None
    source_ips: tuple[str, ...] | None = None
    decision: str | None = None


@body
class PolicyInfo(Body):
    policy_type: str | None = None
    entries: tuple[PolicyEntryInfo, ...] | None = None


@body
class AclInfo(Body):
    subject: str | None = None
    policies: tuple[PolicyInfo, ...] | None = None
