"""Room on the disk for the whole suite."""

from __future__ import annotations

from imago_testing.room import ROOM_MIN, lacking_room


def test_a_full_disk_is_named_with_what_to_do() -> None:
    assert lacking_room(ROOM_MIN, "/tmp") is None
    cure = lacking_room(ROOM_MIN - 1, "/data/tmp")
    assert cure is not None
    assert "/data/tmp has 3.0 GiB" in cure
    assert "TMPDIR" in cure
