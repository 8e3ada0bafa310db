"""Who is connected to a cluster, as whom, and whether with TLS: asked of its brokers now."""

from __future__ import annotations

from typing import Annotated

from imago_cli.clusters.client import print_clients
from imago_cli.clusters.missing import end_with_told
from imago_cli.exits import CommandError
from imago_cli.kubectl.brokers import ClusterBrokers, NotThereError
from imago_cli.kubectl.options import Cluster, Format, Output
from imago_cli.kubectl.tool import CLUSTERS, Kubectl
from imago_cli.line.declared import Option
from imago_cli.output import print_json, say


def clients(
    cluster: Cluster,
    user: Annotated[str | None, Option(help="Those alone that are this user.")] = None,
    group: Annotated[str | None, Option(help="Those alone that consume or produce in it.")] = None,
    topic: Annotated[
        str | None, Option(help="Those alone that read it, or send to it through an SDK.")
    ] = None,
    *,
    kube: Kubectl,
    output: Output = Format.TABLE,
) -> None:
    """Show who is connected to which broker, as whom, and whether with TLS.

    A row a connection; `shard` is the broker, as shard and replica. Connections to the name
    service alone are not shown. Exit code 1: a shard or a member did not answer.
    """
    kube.get(CLUSTERS, cluster)
    given = {"user": user, "group": group, "topic": topic}
    chosen = {name: value for name, value in given.items() if value is not None}
    try:
        found, missing = ClusterBrokers(kube, cluster).clients(chosen)
    except NotThereError as error:
        raise CommandError(
            f"the brokers of {cluster} do not say who is connected: they are an older version",
            cure=f"kubectl imago status {cluster} shows their version; upgrade them",
        ) from error
    if output is Format.JSON:
        print_json({"clients": found, "missing": missing})
    elif found:
        print_clients(found)
    elif not missing:
        say("nobody who fits is connected" if chosen else f"nobody is connected to {cluster}")
    end_with_told(missing, partial=False)
