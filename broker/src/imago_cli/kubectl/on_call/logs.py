"""What the servers of a cluster have logged, as one story."""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Final

from imago_cli.exits import CommandError, Exit
from imago_cli.kubectl.brokers import AT_ONCE, CONTAINER, name_of, shard_of
from imago_cli.kubectl.options import Cluster
from imago_cli.kubectl.tool import CLUSTERS, Kubectl, KubectlError
from imago_cli.line.declared import Option
from imago_cli.output import print_line, say
from imago_operator.model import names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LINES: Final = 200
_STAMPED: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(\S*) ?(.*)")


def logs(
    cluster: Cluster,
    shard: Annotated[int | None, Option(help="Members of this shard alone.")] = None,
    member: Annotated[
        int | None, Option(help="Of each shard, the member with this number alone.")
    ] = None,
    zookeeper: Annotated[
        bool, Option("--zookeeper", help="Servers of the managed ZooKeeper instead.")
    ] = False,
    since: Annotated[
        str | None, Option(metavar="DURATION", help="As kubectl has it: 90s, 10m, 2h.")
    ] = None,
    tail: Annotated[
        int | None, Option(help=f"Last lines of each; {LINES}, or all of --since.")
    ] = None,
    previous: Annotated[
        bool, Option("--previous", "-p", help="Of the container that ran before.")
    ] = False,
    follow: Annotated[bool, Option("--follow", "-f", help="Go on as lines come.")] = False,
    *,
    kube: Kubectl,
) -> None:
    """Print what a cluster's brokers log, each line with time and pod, in the order of time.

    Followed, lines stand in the order in which they come. Exit code 1: a pod's log is not to be
    had; what the others have is printed.
    """
    kube.get(CLUSTERS, cluster)
    component = names.ZOOKEEPER if zookeeper else names.BROKER
    labels = f"{names.CLUSTER_LABEL}={cluster},{names.COMPONENT_LABEL}={component}"
    labels += "" if shard is None else f",{names.SHARD_LABEL}={shard}"
    pods = sorted(
        (shard_of(pod), name_of(pod))
        for pod in kube.all_of("pods", labels=labels)
        if member is None or name_of(pod).rpartition("-")[2] == str(member)
    )
    if not pods:
        cure = f"`kubectl imago status {cluster}` lists its members"
        raise CommandError(f"{cluster} has no such pod", cure=cure)
    lines = tail if tail is not None else -1 if since else LINES
    words = [f"--container={'zookeeper' if zookeeper else CONTAINER}", f"--tail={lines}"]
    words += ["--timestamps"] + ([f"--since={since}"] if since else [])
    words += ["--previous"] if previous else []
    named = [name for _, name in pods]
    if follow:
        chosen = [named[0]] if len(named) == 1 else ["-l", _labels(labels, member, named)]
        more = ("--follow", "--prefix", f"--max-log-requests={len(named)}")
        sys.exit(kube.stream("logs", *chosen, *words, *more))
    _print(kube, named, words)


def _labels(labels: str, member: int | None, named: Sequence[str]) -> str:
    """Return what kubectl chooses those pods by: it follows one that is named, or all that fit."""
    if member is None:
        return labels
    return f"statefulset.kubernetes.io/pod-name in ({','.join(named)})"


def _print(kube: Kubectl, pods: Sequence[str], words: Sequence[str]) -> None:
    def read(pod: str) -> str | KubectlError:
        try:
            return kube.call("logs", pod, *words)
        except KubectlError as error:
            return error

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = dict(zip(pods, pool.map(read, pods), strict=True))
    told = {pod: text for pod, text in found.items() if isinstance(text, str)}
    for line in merged(told.items()):
        print_line(line)
    for pod, text in found.items():
        if isinstance(text, KubectlError):
            say(f"{pod}: {text.message}")
    if len(told) < len(found):
        sys.exit(Exit.FAILED)


def merged(logs: Iterable[tuple[str, str]]) -> list[str]:
    """Return lines of several logs by their times; one without a time stays behind its own."""
    found: list[tuple[str, float, str]] = []
    for pod, text in logs:
        at, part = "", 0.0
        for line in text.splitlines():
            if stamped := _STAMPED.match(line):
                at, part = stamped[1], float(f"0{stamped[2] or ''}")
                time = f"{stamped[1]}{(stamped[2] or '')[:4]}{stamped[3]}"
                found.append((at, part, f"{time} {pod} {stamped[4]}"))
            else:
                found.append((at, part, f"{pod} {line}"))
    return [line for _, _, line in sorted(found, key=lambda one: one[:2])]
