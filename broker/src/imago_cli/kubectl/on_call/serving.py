"""Whether puts are refused, and for whom: asked of the brokers at this moment."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

from imago_cli.clusters.missing import all_pages
from imago_cli.exits import CommandError, Exit
from imago_cli.kubectl.brokers import AT_ONCE, ClusterBrokers, NotThereError, name_of, shard_of
from imago_cli.kubectl.options import Cluster, Format, Output
from imago_cli.kubectl.status import holds
from imago_cli.kubectl.tool import CLUSTERS, Kubectl
from imago_cli.line.declared import Option
from imago_cli.output import print_json, print_table, role_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PUTS = ("shard", "of", "puts", "why", "gets", "why not", "said by")
STATUS = "/admin/v1/status"
WRITE: Final = 2
"""The bit of a topic's permissions that lets messages in."""
REPLICATED: Final = "replicated"
"""How the levels of acknowledgement begin that wait for other members."""
ACCEPTED, REFUSED, HELD_UP = "accepted", "refused", "held up"


def puts(
    cluster: Cluster,
    topic: Annotated[str | None, Option(help="This topic as well.")] = None,
    user: Annotated[str | None, Option(help="The limits of this user as well.")] = None,
    *,
    kube: Kubectl,
    output: Output = Format.TABLE,
) -> None:
    """Show for each shard whether messages are accepted now, and why not: its master says so.

    So are users and topics whose limits hold their requests up at this moment. Exit code 1: some
    shard refuses messages, or those to the topic, or no broker of it answers; 6: it hibernates.
    """
    brokers = brokers_of(kube, cluster)
    rows, leading = [], {}
    for shard, pods in _by_shard(asked(brokers)).items():
        row, pod = _serving(shard, pods)
        rows.append(row)
        if pod:
            leading[shard] = pod
    named = [f"topic:{topic}"] if topic else []
    named += [f"user:{user}"] if user else []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        masters = list(leading.items())
        for found in pool.map(partial(_limits, brokers, named), masters):
            rows += found
        if topic:
            rows += pool.map(partial(_topic, brokers, topic), masters)
    rows.sort(key=lambda row: int(row["shard"].rpartition("-")[2]))
    if output is Format.JSON:
        print_json(rows)
    else:
        print_table("", PUTS, [tuple(row.values()) for row in rows])
    if any(row["puts"] not in (ACCEPTED, HELD_UP) for row in _counting(rows, topic)):
        sys.exit(Exit.FAILED)


def _counting(rows: list[dict[str, Any]], topic: str | None) -> Iterator[dict[str, Any]]:
    """Yield what the exit code is about: a topic need not be on every shard."""
    yield from (row for row in rows if not row["of"])
    mine = [row for row in rows if topic and row["of"] == topic]
    if mine and not any(row["puts"] == ACCEPTED for row in mine):
        yield from mine


def brokers_of(kube: Kubectl, cluster: str) -> ClusterBrokers:
    """Return brokers that may be asked; CommandError says why there are none."""
    resource = kube.get(CLUSTERS, cluster)
    found = ClusterBrokers(kube, cluster)
    if found.pods:
        return found
    if holds(resource, "Hibernated") == "True":
        patch = '{"spec":{"hibernated":false}}'
        raise CommandError(
            f"{cluster} hibernates, as its spec says: nobody is served",
            cure=f"kubectl patch imc {cluster} --type merge -p '{patch}' wakes it",
            code=Exit.HIBERNATED,
        )
    raise CommandError(
        f"{cluster} has no broker pods", cure=f"kubectl imago explain {cluster} says why"
    )


Answer = tuple[int, "dict[str, Any] | CommandError"]
"""The shard of a pod, and what its broker says, or why it says nothing."""


def asked(brokers: ClusterBrokers) -> dict[str, Answer]:
    """Return what each broker says of itself, by pod."""

    def one(pod: Mapping[str, Any]) -> Answer:
        try:
            return shard_of(pod), brokers.ask(name_of(pod), STATUS)
        except CommandError as error:
            return shard_of(pod), error

    pods = sorted(brokers.pods, key=lambda pod: (shard_of(pod), name_of(pod)))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(map(name_of, pods), pool.map(one, pods), strict=True))


def _by_shard(answers: Mapping[str, Answer]) -> dict[int, dict[str, Answer]]:
    found: dict[int, dict[str, Answer]] = {}
    for pod, answer in answers.items():
        found.setdefault(answer[0], {})[pod] = answer
    return found


def _serving(shard: int, pods: Mapping[str, Answer]) -> tuple[dict[str, Any], str]:
    """Return what the master says, and its pod; where nobody leads, what the others say."""
    told = {pod: said for pod, (_, said) in pods.items() if isinstance(said, dict)}
    leading = {pod: said for pod, said in told.items() if said["role"] == "master"}
    pod, said = next(iter({**leading, **told}.items()), ("", None))
    name = f"shard-{shard}"
    if said is None:
        why = next(error.message for _, error in pods.values() if isinstance(error, CommandError))
        return _row(name, "", "unknown", why, "unknown", why), ""
    cells: list[str] = []
    for kind in ("puts", "gets"):
        refused = [] if leading and said[kind]["accepted"] else said[kind]["reasons"]
        if not leading and not refused:
            refused = [said["waitsFor"] or "the shard has no master"]
        cells += [REFUSED if refused else ACCEPTED, "; ".join(refused)]
    role = role_name(said["role"])
    return _row(name, "", *cells, f"{pod}, {role}"), pod if leading else ""


def _limits(
    brokers: ClusterBrokers, named: list[str], master: tuple[int, str]
) -> list[dict[str, Any]]:
    """Return whose limits hold somebody up on a shard now; of those that are named, all."""
    shard, pod = master
    try:
        found = all_pages(partial(brokers.ask, pod), "/admin/v1/quotas")[0]
    except CommandError as error:
        return [_row(f"shard-{shard}", "limits", "unknown", error.message, "", "", pod)]
    rows = []
    for one in found:
        usage = one["usage"]
        owed = usage.get("owedMs") or {}
        if not owed and one["subject"] not in named:
            continue
        said = [f"{limit}: the next waits {ms} ms" for limit, ms in owed.items()]
        if refused := usage.get("refused"):
            said.append(f"{refused} refused since the broker began")
        state = HELD_UP if owed else ACCEPTED
        rows.append(_row(f"shard-{shard}", one["subject"], state, "; ".join(said), "", "", pod))
    return rows


def _topic(brokers: ClusterBrokers, topic: str, master: tuple[int, str]) -> dict[str, Any]:
    """Return whether a shard's queues of a topic are open to messages."""
    shard, pod = master
    try:
        found = brokers.ask(pod, f"/admin/v1/topics/{quote(topic, safe='')}")
        standing = brokers.ask(pod, "/admin/v1/shard")
    except NotThereError:
        return _row(f"shard-{shard}", topic, "not here", "no queue of it is on this shard")
    except CommandError as error:
        return _row(f"shard-{shard}", topic, "unknown", error.message)
    why = []
    # Without a state there is one member, which holds everything.
    here, least = len(standing["inSync"] or (pod,)), standing["minInSync"]
    if found["acknowledgement"].startswith(REPLICATED) and here < least:
        why.append(f"it waits for replicas, and {here} of {least} members are in sync")
    if found.get("sealed"):
        why.append("its queues here are sealed: it was moved, or its shard is drained")
    elif not found["perm"] & WRITE:
        why.append(f"perm is {found['perm']}: it is closed to messages")
    elif not found["writeQueues"]:
        why.append("it has no queue to write to")
    return _row(f"shard-{shard}", topic, REFUSED if why else ACCEPTED, "; ".join(why), "", "", pod)


def _row(*cells: str) -> dict[str, Any]:
    return dict(zip(PUTS, (*cells, *[""] * (len(PUTS) - len(cells))), strict=True))
