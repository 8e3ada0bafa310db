"""The program `kubectl-imago`, which kubectl finds by its name: `kubectl imago COMMAND`."""

from __future__ import annotations

from imago_cli import exits
from imago_cli.kubectl import handover, orders, queues, status, users
from imago_cli.kubectl.on_call import connected, fencing, logs, outside, report, room, serving
from imago_cli.kubectl.planning import plan
from imago_cli.line.declared import CommandGroup
from imago_cli.line.running import invoke
from imago_cli.main import run

PROGRAM = "kubectl imago"


def main() -> None:
    """Run the command of this process's arguments and exit with its code."""
    run(lambda: invoke(build(), PROGRAM))


def build() -> CommandGroup:
    """Return the command with all that it knows."""
    root = CommandGroup(
        "Show clusters of Imago on Kubernetes, and give the operator its orders.", epilog=exits.HELP
    )
    for command in (
        status.status,
        status.explain,
        plan.plan,
        handover.handover,
        orders.approve,
        orders.pause,
        orders.resume,
        orders.restart,
        queues.topics,
        queues.groups,
        serving.puts,
        room.disks,
        connected.clients,
        outside.addresses,
        outside.pipelines,
        report.report,
        logs.logs,
        fencing.fence,
        fencing.unfence,
    ):
        root.add(command.__name__, command)
    users.attach(root)
    return root
