"""Sorted offsets as short text, each with a count: what notes in the metadata hold. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def pack(offsets: Sequence[int], counts: Mapping[int, int]) -> str:
    """Return sorted offsets as text: each as its distance from the one before, and its count."""
    if offsets and offsets[-1] - offsets[0] == len(offsets) - 1 and not any(counts.values()):
        return f"{offsets[0]}" + " 1" * (len(offsets) - 1)
    words, before = [], 0
    for offset in offsets:
        words.append(
            f"{offset - before}*{counts[offset]}" if counts[offset] else f"{offset - before}"
        )
        before = offset
    return " ".join(words)


def unpack(text: str) -> dict[int, int]:
    """Return the offsets of a text and their counts. ValueError: it is none."""
    found, offset = {}, 0
    for word in text.split():
        step, _, count = word.partition("*")
        offset += int(step)
        found[offset] = int(count or 0)
    return found
