from __future__ import annotations

import pytest

from imago_wire.record_format.tags import java_hash, tag_code

HASHES = {
    "TagA": 2598919,
    "TagC-neg-zzzzzz": -1657720607,
    "TopicTest": -1902610879,
    "TopicTest#order-1": -1829193424,
    "TopicTest#AC1E0A0100002A9F4D5E6F7081920000": 1312508705,
    "polygenelubricants": -2147483648,
    "T#order-1": -1840611261,
    "": 0,
    "é": 0xE9,
    "😀": 0xD83D * 31 + 0xDE00,  # two UTF-16 code units
}


@pytest.mark.parametrize("text", HASHES)
def test_hash_is_that_of_java(text: str) -> None:
    assert java_hash(text) == HASHES[text]


def test_tag_code_is_zero_without_a_tag() -> None:
    assert (tag_code(None), tag_code(b""), tag_code(b"TagA")) == (0, 0, 2598919)


def test_bytes_that_are_no_text_hash_as_java_reads_them() -> None:
    assert tag_code(b"a\xffb") == java_hash("a�b")
