"""`imago user`: users, their rights and tokens, over the admin interface of any broker."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from imago_cli.clusters.admin_http import DEFAULT_ADMIN, Admin, ask
from imago_cli.clusters.missing import all_pages
from imago_cli.connect import AsJson, Yes, confirm
from imago_cli.exits import CommandError, CommandUsageError
from imago_cli.line.declared import Argument, CommandGroup, Option
from imago_cli.output import counted, print_json, print_line, print_table, say
from imago_cli.users.limits import LIMITS_HELP, changed_limits, limits_text, usage_text
from imago_cli.users.secret_files import made_up_password, new_file, read_secret
from imago_cli.users.user_files import read_users

USERS, QUOTAS = "/admin/v1/users", "/admin/v1/quotas"

Name = Annotated[str, Argument(help="The user; `anonymous`: who shows no credentials.")]
PasswordFile = Annotated[
    Path | None,
    Option("--from-file", help="File with the password alone; else one is made up."),
]
Resource = Annotated[
    str, Argument(help="topic:NAME, group:PREFIX*, cluster, pipeline:NAME, any:*.")
]
Operations = Annotated[
    list[str],
    Argument(
        help="all, or: publish, subscribe, create, alter, delete, describe, list, administer."
    ),
]
Hosts = Annotated[
    list[str] | None, Option("--from", help="Only from this address or network; repeatable.")
]


def attach(root: CommandGroup) -> None:
    """Add the group of commands."""
    user = CommandGroup("Show, make, change users, their rights, tokens.")
    user.add("list", list_users)
    user.add("show", show)
    user.add("describe", show)
    user.add("create", create)
    user.add("password", password)
    user.add("allow", allow)
    user.add("deny", deny)
    user.add("forget", forget)
    user.add("limit", limit)
    user.add("limits", limits)
    user.add("token", token)
    user.add("delete", delete)
    user.add("export", export)
    user.add("import", import_file)
    root.add("user", user)


def list_users(admin: Admin = DEFAULT_ADMIN, as_json: AsJson = False) -> None:
    """List the users."""
    found = _all(admin)
    if as_json:
        print_json(found)
        return
    columns = ("user", "super", "enabled", "signs", "tokens", "rules")
    rows = [
        (
            one["name"],
            "yes" if one.get("super") else "no",
            _yes_or_no(one.get("enabled")),
            _yes_or_no(one.get("signs")),
            len(one.get("tokens", ())),
            len(one["rules"]),
        )
        for one in found
    ]
    print_table("", columns, rows)


def _yes_or_no(value: bool | None) -> str:
    """Return the word for people; `anonymous` has neither."""
    return "-" if value is None else "yes" if value else "no"


def show(name: Name, admin: Admin = DEFAULT_ADMIN, as_json: AsJson = False) -> None:
    """Show a user, its rules, its limits and their use on the broker that is asked."""
    found = ask(admin, _path(name))
    if as_json:
        print_json(found)
        return
    words = [word for word in ("super", "enabled", "signs") if found.get(word)]
    rows = [
        (
            rule["effect"],
            resource_text(rule["resource"]),
            ", ".join(rule["operations"]),
            ", ".join(rule.get("hosts", ())) or "everywhere",
        )
        for rule in found["rules"]
    ]
    print_table(
        f"user {name}: {', '.join(words)}", ("effect", "resource", "operations", "from"), rows
    )
    if found.get("quotas"):
        print_line(f"limits: {limits_text(found['quotas'])}")
        print_line(f"here: {usage_text(found['usage'])}")


def create(
    name: Name,
    is_super: Annotated[bool, Option("--super", help="May do everything.")] = False,
    signs: Annotated[
        bool,
        Option(
            help="Signs requests of RocketMQ's clients: brokers keep the password as it is. With"
            " --no-signs it is kept as a hash, for the dashboard alone."
        ),
    ] = True,
    from_file: PasswordFile = None,
    admin: Admin = DEFAULT_ADMIN,
) -> None:
    """Make a user. A password that is made up is written to NAME.password, for you alone."""
    if any(one["name"] == name for one in _all(admin)):
        given = f" --from-file {from_file}" if from_file else ""
        raise CommandError(
            f"there is a user {name} already", cure=f"imago user password {name}{given}"
        )
    wanted = {"signs": signs, "super": is_super}
    if from_file is not None:
        _put(admin, name, wanted | {"password": read_secret(from_file)})
        say(f"user {name}: made")
        _note_if_off(admin)
        return
    path = Path(f"{name}.password")
    options = (" --super" if is_super else "") + ("" if signs else " --no-signs")
    again = f"imago user create {name}{options} --admin {admin}"
    with made_up_password(path, again, is_first=True) as made_up:
        _put(admin, name, wanted | {"password": made_up})
    say(f"user {name}: made; its password is in {path}")
    _note_if_off(admin)


def password(
    name: Name,
    from_file: PasswordFile = None,
    former: Annotated[
        int,
        Option(
            least=0,
            most=7 * 86_400,
            help="Seconds for which what is signed with the password before is served: clients"
            " read their file again meanwhile.",
        ),
    ] = 0,
    admin: Admin = DEFAULT_ADMIN,
) -> None:
    """Give a user another password. One that is made up replaces what is in NAME.password."""
    ask(admin, _path(name))
    wanted = {"formerSeconds": former} if former else {}
    if from_file is not None:
        _put(admin, name, wanted | {"password": read_secret(from_file)})
        say(f"user {name}: has another password")
        return
    path = Path(f"{name}.password")
    options = f" --former {former}" if former else ""
    again = f"imago user password {name}{options} --admin {admin}"
    with made_up_password(path, again, is_first=False) as made_up:
        _put(admin, name, wanted | {"password": made_up})
    say(f"user {name}: has another password, in {path}")


def allow(
    name: Name,
    resource: Resource,
    operations: Operations,
    hosts: Hosts = None,
    admin: Admin = DEFAULT_ADMIN,
) -> None:
    """Give a right: `imago user allow ann topic:orders publish describe`."""
    _add(admin, name, resource, operations, hosts or [], "Allow")


def deny(
    name: Name,
    resource: Resource,
    operations: Operations,
    hosts: Hosts = None,
    admin: Admin = DEFAULT_ADMIN,
) -> None:
    """Deny a right that a rule about more resources gives."""
    _add(admin, name, resource, operations, hosts or [], "Deny")


def forget(name: Name, resource: Resource, admin: Admin = DEFAULT_ADMIN) -> None:
    """Take the rules about a resource away from a user."""
    wanted, rules = resource_of(resource), ask(admin, _path(name))["rules"]
    left = [rule for rule in rules if rule["resource"] != wanted]
    if len(left) == len(rules):
        raise CommandError(
            f"user {name} has no rule about {resource}", cure=f"imago user show {name}"
        )
    _put(admin, name, {"rules": left})
    say(f"user {name}: {counted(len(rules) - len(left), 'rule')} taken away")


def limit(
    subject: Annotated[str, Argument(help="A user, topic:NAME, topic:PREFIX*, or group:PREFIX*.")],
    wanted: Annotated[list[str], Argument(help=f"LIMIT=NUMBER, LIMIT=none: {LIMITS_HELP}")],
    admin: Admin = DEFAULT_ADMIN,
) -> None:
    """Limit what a user, a topic, or all that begins alike may take.

    Rates and connections are those of each broker: `imago user limit ann producer-bytes=1MiB`.
    """
    subject = subject if ":" in subject else f"user:{subject}"
    known = {one["subject"]: one["quotas"] for one in _pages(admin, QUOTAS)}
    quotas = changed_limits(known.get(subject, {}), wanted)
    path = f"{QUOTAS}/{quote(subject, safe='')}"
    told = ask(admin, path, {"quotas": quotas}, method="PUT")
    say(f"{subject}: {limits_text(told['quotas']) or 'no limits'}")
    _note_if_off(admin)


def limits(admin: Admin = DEFAULT_ADMIN, as_json: AsJson = False) -> None:
    """List all limits and their use on the broker that is asked."""
    found = _pages(admin, QUOTAS)
    if as_json:
        print_json(found)
        return
    rows = [(one["subject"], limits_text(one["quotas"]), usage_text(one["usage"])) for one in found]
    print_table("", ("subject", "limits", "here"), rows)


def token(
    name: Name,
    days: Annotated[int, Option(least=0, most=3650, help="0: it never ends.")] = 90,
    note: Annotated[str, Option(help="What it is for.")] = "",
    out: Annotated[Path | None, Option(help="File for it, readable by you alone.")] = None,
    admin: Admin = DEFAULT_ADMIN,
) -> None:
    """Make a bearer token for the admin interface: name its file in IMAGO_ADMIN_TOKEN_FILE."""
    body = {"expiresSeconds": days * 86_400, "note": note}
    path = out or Path(f"{name}.token")
    with new_file(path) as file:
        made = ask(admin, f"{_path(name)}/tokens", body)
        file.write(f"{made['token']}\n")
    say(f"user {name}: token {made['number']} is in {path}")
    for shard, said in made["shards"].items():
        if said != "ok":
            say(f"{shard} does not have it yet, and gets it by itself: {said}")


def delete(name: Name, admin: Admin = DEFAULT_ADMIN, yes: Yes = False) -> None:
    """Delete a user: its next request is refused."""
    confirm(f"Delete user {name} and its rules?", yes=yes)
    ask(admin, _path(name), method="DELETE")
    say(f"user {name}: deleted")


def export(admin: Admin = DEFAULT_ADMIN) -> None:
    """Print all users, rules and limits, without secrets, as JSON, which `import` reads."""
    white = ask(admin, "/admin/v1/access")["whiteAddresses"]
    users = [{key: one[key] for key in _KEPT if key in one} for one in _all(admin)]
    told: dict[str, Any] = {"whiteAddresses": white, "users": users}
    quotas = {one["subject"]: one["quotas"] for one in _pages(admin, QUOTAS)}
    told["quotas"] = {of: each for of, each in quotas.items() if not of.startswith("user:")}
    print_line(json.dumps(told, indent=2))


def import_file(
    file: Annotated[Path, Argument(help="What `export` printed, or 4.9's plain_acl.yml.")],
    admin: Admin = DEFAULT_ADMIN,
) -> None:
    """Make or change the users of a file. Those that it does not name stay.

    Users of `export` that sign are made without a password: give them one.
    """
    told = read_users(file)
    for one in told.get("users", ()):
        name = one.pop("name")
        _put(admin, name, {key: one[key] for key in _PUT if key in one})
        say(f"user {name}: imported")
    for subject, quotas in told.get("quotas", {}).items():
        path = f"{QUOTAS}/{quote(subject, safe='')}"
        ask(admin, path, {"quotas": quotas}, method="PUT")
        say(f"{subject}: limits imported")
    if "whiteAddresses" in told:
        body = {"whiteAddresses": told["whiteAddresses"]}
        ask(admin, "/admin/v1/access", body, method="PUT")


_KINDS = ("cluster", "topic", "group", "transaction", "pipeline", "any")
_KEPT = ("name", "super", "enabled", "whiteAddresses", "rules", "quotas")
_PUT = ("super", "enabled", "whiteAddresses", "rules", "quotas", "password", "signs")


def _all(admin: str) -> list[dict[str, Any]]:
    return _pages(admin, USERS)


def _pages(admin: str, path: str) -> list[dict[str, Any]]:
    return all_pages(partial(ask, admin), path)[0]


def _path(name: str) -> str:
    return f"{USERS}/{quote(name, safe='')}"


def _put(admin: str, name: str, body: dict[str, Any]) -> None:
    ask(admin, _path(name), body, method="PUT")


def _add(
    admin: str, name: str, resource: str, operations: list[str], hosts: list[str], effect: str
) -> None:
    known = {one["name"]: one["rules"] for one in _all(admin)}
    if name not in known and name != "anonymous":
        raise CommandError(f"there is no user {name}", cure=f"imago user create {name}")
    rule = {"effect": effect, "resource": resource_of(resource), "operations": operations}
    if hosts:
        rule["hosts"] = hosts
    _put(admin, name, {"rules": [*known.get(name, ()), rule]})
    say(f"user {name}: has one more rule")
    _note_if_off(admin)


def _note_if_off(admin: str) -> None:
    """Say where users are kept and nobody is asked who they are."""
    try:
        enabled = ask(admin, "/admin/v1/access").get("enabled", True)
    except CommandError:  # what was asked for is done
        return
    if not enabled:
        say(
            "note: access control is off here (acl.enabled): anyone may do everything until it is"
            " on (docs/secure.md)"
        )


def resource_of(text: str) -> dict[str, str]:
    """Return the resource of a rule by its words: `topic:orders*`."""
    kind, colon, name = text.partition(":")
    if not colon and kind.lower() not in _KINDS:
        raise CommandUsageError(f"{text!r} is no resource", cure=f"did you mean topic:{text}?")
    told = {"type": kind.capitalize()}
    if name:
        told["name"] = name.removesuffix("*")
    if name.endswith("*"):
        told["patternType"] = "prefix"
    return told


def resource_text(resource: dict[str, str]) -> str:
    """Return the words for the resource of a rule."""
    star = "*" if "patternType" in resource else ""
    name = resource.get("name", "")
    kind = resource["type"].lower()
    return f"{kind}:{name}{star}" if name or star else kind
