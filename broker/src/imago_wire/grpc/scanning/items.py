"""What the hot functions return."""

from __future__ import annotations

PlainSend = tuple[str, str, bytes, bytes, bytes, int]
"""Topic, message group, id, properties as the log has them, body, time of birth."""
