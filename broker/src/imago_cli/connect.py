"""How commands reach a cluster: the options for it, and errors in the command's own words."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from imago_cli.exits import CommandError, CommandUsageError
from imago_cli.line.declared import Option
from imago_wire import system_topics

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from imago_client.blocking import Client
    from imago_client.config import ClientConfig
    from imago_client.metaq import MetaqClient, MetaqConfig

DEFAULT_BOOTSTRAP = "127.0.0.1:9876"
DEFAULT_METAQ = "127.0.0.1:8123"

USER_VARIABLE = "IMAGO_USER"
PASSWORD_FILE_VARIABLE = "IMAGO_PASSWORD_FILE"  # noqa: S105  the name of a variable
_OPTIONS = {
    "user": (
        "--user",
        "give both, --user and --password-file, or IMAGO_USER and IMAGO_PASSWORD_FILE",
    ),
    "password_file": ("--password-file", "name a file with the password alone"),
    "bootstrap": ("--bootstrap", f"such as {DEFAULT_BOOTSTRAP}; `imago up` prints it"),
    "tags": ("--tags", "give one tag: others go with messages of their own"),
    "servers": ("--metaq", f"such as {DEFAULT_METAQ}; `imago up` prints them"),
    "tls_ca_file": ("IMAGO_TLS_CA", "name the authority's certificate, a PEM file"),
    "tls_certificate_file": (
        "IMAGO_TLS_CERTIFICATE",
        "name your certificate, a PEM file, and its key in IMAGO_TLS_KEY; with IMAGO_TLS_CA",
    ),
}
"""What a client calls its addresses, and how they are given here."""
_PORTS = (
    "the name service has port 9876 (--bootstrap), MetaQ 8123 (--metaq), the admin interface 8080"
    " (--admin); `imago up` prints them"
)
_TLS = f"{_PORTS}. Where the server asks for TLS: export IMAGO_TLS_CA=ca.pem"
_NO_TLS = "IMAGO_TLS_CA asks for TLS: unset it, or name a port with TLS"
_ALLOW = "imago user allow"
_START = (
    "`imago up` starts a cluster on this machine, `imago broker` one broker; --bootstrap or --metaq"
    " (IMAGO_BOOTSTRAP, IMAGO_METAQ) names another address"
)
_CURES = {
    "username cannot be null": "say who you are: --user and --password-file, or IMAGO_USER and "
    "IMAGO_PASSWORD_FILE",
    r"User:(?P<user>\S+) has no permission to access (?P<kind>\w+):(?P<name>[\w%@|.-]+)"
    r".* It needs (?P<operation>\w+)": _ALLOW,
    r"User:(?P<user>\S+) has no permission to access (?P<kind>\w+):(?P<name>[\w%@|.-]+)": _ALLOW,
    r"(?P<user>\S+) may not (?P<operation>\w+) (?P<kind>\w+) (?P<name>[\w%@|.-]+)": _ALLOW,
    "has no permission to access": "an administrator allows it: imago user allow",
    "check signature failed": "the password is another user's or an old one: see --password-file"
    " (IMAGO_PASSWORD_FILE)",
    r"User:\S+ is not found": "see --user (IMAGO_USER); `imago user list` names those there are",
    "certificate is not trusted": "IMAGO_TLS_CA names the file of authorities to trust",
    "TLS handshake|connection with TLS": _NO_TLS,
    r"closed.*ask for TLS": _TLS,
    r"920[12] not supported": "--transaction needs Imago's brokers, 0.2 or newer, on every member",
    "Repeat the call": "repeat the command; `imago cluster status` says which shard has no master",
    "port of the right protocol": _PORTS,
    "is the server running": _START,
}
"""What to do about an error in which this pattern is found."""
_ELSE = "`imago cluster status` says how the brokers are, and the log of the one named more"
"""What to do about any other."""
_GROUPS_OWN = ("%RETRY%", "%DLQ%")

Bootstrap = Annotated[
    str,
    Option(envvar="IMAGO_BOOTSTRAP", help="Name-service addresses, HOST:PORT[,HOST:PORT…]."),
]
MetaqServers = Annotated[
    str | None,
    Option(
        "--metaq",
        envvar="IMAGO_METAQ",
        help="With --protocol metaq: broker addresses, HOST:PORT[,…], one per shard.",
        show_default="the masters that --bootstrap names",
    ),
]
AsJson = Annotated[bool, Option("--json", help="Print JSON for programs.")]
Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation.")]


class Protocol(StrEnum):
    """Which of the two protocols to speak."""

    rocketmq = "rocketmq"
    metaq = "metaq"


@contextmanager
def client_errors() -> Iterator[None]:
    """Turn a client's errors into a command's."""
    from imago_client import errors
    from imago_wire.errors import ProtocolError

    try:
        yield
    except errors.UsageError as error:
        what, _, said = str(error).partition(": ")
        if option := _OPTIONS.get(what):
            raise CommandUsageError(f"{option[0]}: {said}", cure=option[1]) from error
        raise CommandUsageError(str(error)) from error
    except (errors.ClientError, ProtocolError) as error:
        raise CommandError(str(error), cure=_cure(str(error)) or _ELSE) from error


def _cure(said: str) -> str:
    """Return what to do about an error, out of the first pattern that is in it."""
    for pattern, cure in _CURES.items():
        if found := re.search(pattern, said):
            return _allowing(found.groupdict()) if cure is _ALLOW else cure
    return ""


def _allowing(named: dict[str, str]) -> str:
    """Name the command that gives the right which was missing."""
    kind = named["kind"].lower()
    resource = kind if kind == "cluster" else f"{kind}:{named['name']}"
    operation = named.get("operation", "OPERATION").lower()
    command = f"imago user allow {named['user']} {resource} {operation}"
    which = "" if "operation" in named else " (publish, subscribe, describe, create …)"
    return f"an administrator allows it: {command}{which}"


def client_config(bootstrap: str) -> ClientConfig:
    """Return how clients of these name services connect: with TLS, and as a user, where the
    environment says so."""
    from imago_client.config import ClientConfig, parse_addresses

    return ClientConfig(
        bootstrap=parse_addresses(bootstrap),
        tls_ca_file=os.environ.get("IMAGO_TLS_CA") or None,
        tls_certificate_file=os.environ.get("IMAGO_TLS_CERTIFICATE") or None,
        tls_key_file=os.environ.get("IMAGO_TLS_KEY") or None,
        user=os.environ.get(USER_VARIABLE) or None,
        password_file=os.environ.get(PASSWORD_FILE_VARIABLE) or None,
    )


def metaq_config(servers: str) -> MetaqConfig:
    """Return how clients of these MetaQ brokers connect: with TLS, and as a user, where the
    environment says so."""
    from imago_client.metaq import MetaqConfig

    return replace(
        MetaqConfig.of(servers),
        tls_ca_file=os.environ.get("IMAGO_TLS_CA") or None,
        tls_certificate_file=os.environ.get("IMAGO_TLS_CERTIFICATE") or None,
        tls_key_file=os.environ.get("IMAGO_TLS_KEY") or None,
        user=os.environ.get(USER_VARIABLE) or None,
        password_file=os.environ.get(PASSWORD_FILE_VARIABLE) or None,
    )


def metaq_servers(bootstrap: str, named: str | None) -> str:
    """Return the addresses of the masters, which alone take and give messages of MetaQ's clients.

    Whom the name service knows as a follower now stands for its master. Where no name service of
    Imago's answers the addresses count as they are named.
    """
    from imago_client.errors import ClientError

    try:
        with connected(bootstrap) as client:
            known = client.admin.metaq_servers()
    except CommandUsageError:
        raise
    except CommandError as error:
        if named is None or not isinstance(error.__cause__, ClientError):
            raise
        return named
    masters = {shard: members[0] for shard, members in known.items() if 0 in members}
    if named is None:
        return ",".join(masters.values()) or DEFAULT_METAQ
    leads = {each: masters[n] for n in masters for each in known[n].values()}
    addresses = metaq_config(named).servers
    return ",".join(dict.fromkeys(leads.get(each, each) for each in addresses))


@contextmanager
def connected(bootstrap: str) -> Iterator[Client]:
    """Give a client of the cluster."""
    from imago_client.blocking import Client

    with client_errors(), Client(client_config(bootstrap)) as client:
        yield client


def nearest(name: str, known: Iterable[str]) -> str:
    """Ask whether the nearest of the known names was meant; "": none is near."""
    import difflib

    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]}?" if near else ""


def check_takes_back(client: Client, group: str) -> None:
    """Raise where nobody would get what is put into a group's retry topic.

    Consumers by POP and through gRPC read the topics alone that they name.
    """
    retry = f"%RETRY%{group}"
    if retry not in client.admin.topics():
        raise CommandError(
            f"group {group} has had no member yet that takes messages once more",
            cure="start its consumers, then repeat the command",
        )
    if retry in client.admin.describe_group(group).subscriptions:
        return
    reader, bounds = client.pull_consumer(group), client.admin.topic_bounds(retry)
    if all(reader.committed(one.queue) is None for one in bounds):
        raise CommandError(
            f"nobody is seen to read what goes back to group {group} alone: consumers by POP and"
            " gRPC never do",
            cure="start its consumers if they speak RocketMQ's remoting protocol; else send to the"
            " topics themselves, whose other groups get it too: imago dlq replay --to-topics,"
            " imago message resend ID",
        )


def no_topic(topic: str, known: Iterable[str], *, otherwise: str = "") -> CommandError:
    """The error of a topic that there is not, with the nearest that there is, or another cure."""
    near = nearest(topic, (name for name in known if not is_system(name)))
    either = [one for one in (near, otherwise or f"imago topic create {topic}") if one]
    return CommandError(f"there is no topic {topic}", cure=" or ".join(either))


def unknown_topic(topic: str, known: Iterable[str]) -> CommandError:
    """The same where a new topic would be of no use."""
    near = nearest(topic, (name for name in known if not is_system(name)))
    cure = near or "imago topic list names those that there are"
    return CommandError(f"there is no topic {topic}", cure=cure)


def is_system(topic: str, clusters: Iterable[str] = ()) -> bool:
    """Whether a topic is the brokers' own, or of a group's retries and dead letters.

    `clusters`: of whose brokers; without them the topics of their replies are not told apart.
    """
    return topic.startswith(_GROUPS_OWN) or system_topics.is_system(topic, clusters)


def refuse_system(topic: str) -> None:
    """Raise UsageError of a topic that nobody makes or changes.

    A group's retries and dead letters are its user's to change.
    """
    if is_system(topic) and not topic.startswith("%"):
        raise CommandUsageError(f"topic {topic} is the brokers' own", cure="choose another name")


async def metaq_topics(client: MetaqClient) -> set[str] | None:
    """Return the topics of which MetaQ's brokers tell, empty ones too; None: not to this user."""
    from imago_client.metaq import MetaqError
    from imago_wire.text.status import Status

    servers = client.config.servers
    try:
        return {name for server in servers for name in await client.stats(server, "topics")}
    except MetaqError as error:
        if error.status != Status.FORBIDDEN:
            raise
        return None


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is lost; UsageError where nobody can answer."""
    import sys

    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandUsageError(f"{question} There is no terminal to ask at", cure="add --yes")
    sys.stderr.write(f"{question} [y/N]: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError(
            "nothing was done: the answer was not yes", cure="answer y, or add --yes"
        )
