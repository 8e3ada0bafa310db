"""What an edit would bring about: nothing is changed."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from imago_cli.exits import Exit
from imago_cli.kubectl.options import Format, Output
from imago_cli.kubectl.planning.edit import Edit, edit_of
from imago_cli.kubectl.planning.installed import installed
from imago_cli.kubectl.planning.look import look
from imago_cli.kubectl.tool import CLUSTERS, Kubectl, KubectlError
from imago_cli.line.declared import Option
from imago_cli.output import print_json, print_line, print_table
from imago_operator.model.actions import Apply, Certify, Hibernate, Stop
from imago_operator.model.state import Observed
from imago_operator.plan import plan as planned
from imago_operator.plan.restarts.staging import staged
from imago_operator.plan.rows import PlanRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imago_operator.model.actions import Action
    from imago_operator.plan import ReconcilePlan

COLUMNS = ("what", "about", "how")
NEXT_COLUMNS = ("action", "about", "why", "also without the edit")


def plan(
    file: Annotated[
        str, Option("--filename", "-f", help="Edited manifests, as for kubectl apply.")
    ],
    *,
    kube: Kubectl,
    output: Output = Format.TABLE,
) -> None:
    """Show the effects of an edit without applying it.

    A dry run asks the API server whether it accepts the edit, admission included. The operator's
    own functions then find what the edit changes, and what the operator does next, given the
    current brokers and objects. Exit code 1: the server refuses the edit.
    """
    found = [_looked_at(kube, one) for one in kube.dry_run(file)]
    if output is Format.JSON:
        print_json(found)
    else:
        for one in found:
            _print(one)
    if any(one["refused"] for one in found):
        sys.exit(Exit.FAILED)


def _looked_at(kube: Kubectl, after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the messages about one manifest."""
    metadata = after["metadata"]
    said: dict[str, Any] = {
        "kind": after["kind"],
        "name": metadata["name"],
        "namespace": metadata.get("namespace", ""),
        "refused": "",
        "effects": [],
        "plan": None,
        "unseen": [],
    }
    if after["kind"] != "ImagoCluster":
        return said | {"unseen": ["effects: they are shown of an ImagoCluster only"]}
    there = Kubectl(metadata.get("namespace"), kube.context, kube.kubeconfig)
    before = _before(there, metadata["name"])
    operator, unseen = installed(
        there, metadata.get("namespace", ""), (before or {}).get("status", {})
    )
    edit = edit_of(before, after, operator)
    if isinstance(edit, str):
        return said | {"refused": edit}
    now, also = _next(there, edit, before)
    if now["row"] == PlanRow.INVALID.title:
        return said | {"refused": now["problem"], "unseen": [*unseen, *also]}
    return said | {
        "effects": [asdict(effect) for effect in edit.effects()],
        "plan": now,
        "unseen": [*unseen, *also],
    }


def _before(kube: Kubectl, name: str) -> dict[str, Any] | None:
    try:
        return kube.get(CLUSTERS, name)
    except KubectlError as error:
        if "(NotFound)" in error.message:
            return None
        raise


def _next(
    kube: Kubectl, edit: Edit, before: Mapping[str, Any] | None
) -> tuple[dict[str, Any], list[str]]:
    """Return what the operator would do next, and what was not seen."""
    now = datetime.now(UTC)
    if before is None or edit.before is None:
        return _told(planned(edit.after, Observed(synced=True, registry_user=False), now), ()), []
    observed, unseen = look(kube, edit.before, before)
    usual = planned(staged(edit.before, observed), observed, now)
    return _told(planned(staged(edit.after, observed), observed, now), usual.actions), unseen


def _told(found: ReconcilePlan, usual: tuple[Action, ...]) -> dict[str, Any]:
    return {
        "row": found.row.title,
        "number": found.row.number,
        "actions": [_action(one) | {"anyway": one in usual} for one in found.actions],
        "waitsFor": found.wait.message if found.wait else "",
        "problem": "; ".join(dict.fromkeys(one.message for one in found.findings if one.message))
        if found.row is PlanRow.INVALID
        else "",
        "next": found.next,
    }


def _action(action: Action) -> dict[str, str]:
    said = {"action": type(action).__name__}
    if isinstance(action, Apply | Stop | Hibernate):
        manifest: Any = action.manifest
        why = action.why if isinstance(action, Apply) else "no pods"
        return said | {"about": f"{manifest['kind']} {manifest['metadata']['name']}", "why": why}
    if isinstance(action, Certify):
        about = f"shard-{action.holder}" if isinstance(action.holder, int) else action.holder
        return said | {"about": about or "authority", "why": action.work.value}
    fields = asdict(action)
    about = fields.pop("name", None) or fields.pop("pod", None)
    if about is None:
        return said | {"about": f"shard-{fields['shard']}", "why": ""}
    kind = f"{fields['kind']} " if "kind" in fields else ""
    return said | {"about": f"{kind}{about}", "why": "; ".join(_reasons(fields))}


def _reasons(fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield what else is worth knowing of an action."""
    if fields.get("why"):
        yield fields["why"]
    if "values" in fields:
        yield ", ".join(f"{name}: {value}" for name, value in fields["values"].items())
    for name in ("role", "size"):
        if name in fields:
            yield f"{name} {fields[name]}"


def _print(said: Mapping[str, Any]) -> None:
    name = f"{said['kind']} {said['name']}"
    if said["refused"]:
        print_line(f"{name}: the operator refuses it: {said['refused']}")
        return
    if said["effects"]:
        rows = [tuple(effect.values()) for effect in said["effects"]]
        print_table(f"{name}: what the edit changes", COLUMNS, rows)
    elif said["kind"] == "ImagoCluster":
        print_line(f"{name}: nothing would change")
    else:
        print_line(name)
    if said["plan"]:
        _print_next(said["plan"])
    for text in said["unseen"]:
        print_line(f"  not seen: {text}")


def _print_next(now: Mapping[str, Any]) -> None:
    rows = [
        (one["action"], one["about"], one["why"], "yes" if one["anyway"] else "")
        for one in now["actions"]
    ]
    title = f"at its next look the operator would be in case {now['number']} {now['row']}"
    if rows:
        print_table(title, NEXT_COLUMNS, rows)
    else:
        print_line(f"{title}, and do nothing")
    if now["waitsFor"]:
        print_line(f"  waits for: {now['waitsFor']}")
    if now["next"]:
        print_line(f"  next: {now['next']}")
