"""What a mirror says of itself: as JSON, as metrics, and as a page."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from imago_mirror.mirror import RunningMirror


def status(mirror: RunningMirror) -> dict[str, Any]:
    """Return everything that can be asked."""
    known = mirror.knowledge
    topics: dict[str, dict[str, Any]] = {}
    for queue, lane in known.note.lanes.items():
        lag, seconds = known.lag(queue)
        topic = topics.setdefault(
            queue.topic,
            {"queues": 0, "lagMessages": 0, "lagSeconds": 0.0, "copiedMessages": 0, "expired": 0},
        )
        topic["queues"] += 1
        topic["lagMessages"] += lag
        topic["lagSeconds"] = round(max(topic["lagSeconds"], seconds), 1)
        topic["expired"] += lane.position.lost
        topic["copiedMessages"] = known.copied_messages[queue.topic]
    source, target = mirror.clusters
    return {
        "name": mirror.settings.name,
        "state": known.note.state,
        "sourceCluster": source,
        "targetCluster": target,
        "begun": mirror.begun,
        "lagMessages": sum(topic["lagMessages"] for topic in topics.values()),
        "lagSeconds": max((topic["lagSeconds"] for topic in topics.values()), default=0.0),
        "lastCopiedMs": known.last_copied_ms,
        "returnedMessages": known.returned,
        "topics": dict(sorted(topics.items())),
        "groups": dict(sorted(known.groups.items())),
        "troubles": [
            {
                "reason": each.reason,
                "subject": each.subject,
                "message": each.message,
                "cure": each.cure,
            }
            for each in mirror.troubles.all()
        ],
        "failover": known.note.report,
    }


def metrics(found: dict[str, Any]) -> str:
    """Return the same for Prometheus."""
    name = found["name"]
    lines: list[str] = []
    families = (
        ("lag_messages", "gauge", "Messages that the target lacks.", "lagMessages"),
        ("lag_seconds", "gauge", "For how long the oldest of them has waited.", "lagSeconds"),
        ("copied_messages_total", "counter", "Messages copied by this process.", "copiedMessages"),
        ("expired_messages", "gauge", "Messages deleted before they were copied.", "expired"),
    )
    for family, kind, text, key in families:
        lines += [f"# HELP imago_mirror_{family} {text}", f"# TYPE imago_mirror_{family} {kind}"]
        lines += [
            f'imago_mirror_{family}{{mirror="{name}",topic="{topic}"}} {each[key]}'
            for topic, each in found["topics"].items()
        ]
    reasons = sorted({each["reason"] for each in found["troubles"]})
    lines += [
        "# HELP imago_mirror_state 1 for what it does now.",
        "# TYPE imago_mirror_state gauge",
        f'imago_mirror_state{{mirror="{name}",state="{found["state"]}"}} 1',
        "# HELP imago_mirror_trouble 1 for each reason why it cannot do its work.",
        "# TYPE imago_mirror_trouble gauge",
        *(f'imago_mirror_trouble{{mirror="{name}",reason="{each}"}} 1' for each in reasons),
    ]
    return "\n".join(lines) + "\n"


def page(found: dict[str, Any]) -> str:
    """Return the same for people."""
    head = ("topic", "queues", "lag", "seconds", "copied since start", "expired")
    keys = ("queues", "lagMessages", "lagSeconds", "copiedMessages", "expired")
    rows = "".join(
        f"<tr><td>{escape(topic)}{''.join(f'<td>{each[key]}' for key in keys)}"
        for topic, each in found["topics"].items()
    )
    troubles = "".join(
        f"<li><b>{escape(each['reason'])}</b> {escape(each['subject'])}:"
        f" {escape(each['message'])}. <i>{escape(each['cure'])}</i>"
        for each in found["troubles"]
    )
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=5>"
        f"<title>Mirror {escape(found['name'])}</title>"
        "<style>body{font:16px sans-serif;margin:2em}td,th{padding:.2em 1em}</style>"
        f"<h1>Mirror {escape(found['name'])}</h1>"
        f"<p>{escape(found['state'])}: cluster {escape(found['sourceCluster'] or '?')} to"
        f" {escape(found['targetCluster'] or '?')}; {found['lagMessages']} messages,"
        f" {found['lagSeconds']} s behind."
        f"<ul>{troubles}</ul><table><tr>{''.join(f'<th>{each}' for each in head)}{rows}</table>"
    )
