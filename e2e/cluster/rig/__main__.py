"""`python -m rig build|up|down|off|on|cut|mend|load|run …`: the cluster of the end-to-end suite."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rig import build, cluster, node, wires
from rig.places import KUBECONFIG, NETWORK, RigError


def main() -> int:
    parser = argparse.ArgumentParser(prog="rig", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    built = commands.add_parser("build", help="build its programs, unless they are there")
    built.add_argument("--promcheck", action="store_true", help="and what checks alerts")
    commands.add_parser("built", help="end with 1 unless its programs are there")
    commands.add_parser("up", help="start it").add_argument("--nodes", type=int, default=3)
    commands.add_parser("down", help="stop it").add_argument("--clean", action="store_true")
    commands.add_parser("off", help="cut a node's power").add_argument("node", type=int)
    commands.add_parser("on", help="give it back").add_argument("node", type=int)
    commands.add_parser("cut", help="pull a node's cable").add_argument("node", type=int)
    commands.add_parser("mend", help="put it back").add_argument("node", type=int)
    commands.add_parser("load", help="bring an image to every node").add_argument("tar", type=Path)
    inside = commands.add_parser("run", help="run a command inside the cluster's network")
    inside.add_argument("words", nargs=argparse.REMAINDER)
    chosen = parser.parse_args()
    if chosen.command == "built":
        return 0 if build.built() else 1
    try:
        _do(chosen)
    except RigError as error:
        print(f"rig: {error}", file=sys.stderr)
        return 2
    return 0


def _do(chosen: argparse.Namespace) -> None:
    match chosen.command:
        case "build":
            build.make(checks=chosen.promcheck)
        case "up":
            cluster.up(chosen.nodes)
        case "down":
            cluster.down(clean=chosen.clean)
        case "off" | "on" | "cut" | "mend":
            _change_node(chosen.command, chosen.node)
        case "load":
            cluster.load(chosen.tar)
        case "run":
            path = f"{build.programs()}:{os.environ['PATH']}"
            environment = {**os.environ, "KUBECONFIG": str(KUBECONFIG), "PATH": path}
            # What measures the cluster must not wait longer than the cluster does.
            node.give_share("control", os.getpid())
            command = ["nsenter", f"--net=/run/netns/{NETWORK}", *chosen.words]
            os.execvpe(command[0], command, environment)
        case other:
            raise AssertionError(other)


def _change_node(command: str, number: int) -> None:
    match command:
        case "off":
            cluster.power_off(f"node{number}")
        case "on":
            cluster.power_on(number)
        case _:
            wires.connect(number, on=command == "mend")


if __name__ == "__main__":
    sys.exit(main())
