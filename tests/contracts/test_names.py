"""What every coordinator keeps for the name service, and how it tells of changes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from imago_testing.clusters.registry import Registry, foreign, until

if TYPE_CHECKING:
    import pytest


async def test_kv_is_changed_by_compare_and_set(registry: Registry) -> None:
    one, two = await registry.join(), await registry.join()
    await asyncio.gather(
        *(one.marks.put_kv("a", f"one-{n}", "1") for n in range(20)),
        *(two.marks.put_kv("a", f"two-{n}", "2") for n in range(20)),
    )
    view = await until(one, lambda view: len(view.kv.get("a", {})) == 40)
    assert view.kv["a"]["two-19"] == "2"
    for number in range(20):
        await two.marks.put_kv("a", f"one-{number}", None)
        await two.marks.put_kv("a", f"two-{number}", None)
    assert dict(two.view().kv) == {}


async def test_wiped_write_permission_is_seen_and_given_back(registry: Registry) -> None:
    one, two = await registry.join(), await registry.join()
    await one.marks.set_write_wiped("shard-3", True)
    await one.marks.set_write_wiped("shard-4", True)
    await until(two, lambda view: view.wiped == frozenset({"shard-3", "shard-4"}))
    await two.marks.set_write_wiped("shard-3", False)
    assert two.view().wiped == frozenset({"shard-4"})


async def test_a_foreign_broker_lives_with_the_session_that_holds_it(registry: Registry) -> None:
    one, two, three = [await registry.join() for _ in range(3)]
    await one.put_foreign(foreign(1))
    await two.put_foreign(foreign(2, zone="z"))
    view = await until(three, lambda view: view.foreign == (foreign(2, zone="z"),))
    assert len(view.foreign) == 1, "one broker that two name services hold"
    await two.stop()
    await until(three, lambda view: view.foreign == (foreign(1),))
    await one.put_foreign(foreign(3))
    await until(three, lambda view: view.foreign == (foreign(3),))
    await one.remove_foreign(foreign().key)
    await until(three, lambda view: view.foreign == ())
    await one.remove_foreign(foreign().key)


async def test_a_foreign_broker_that_somebody_deletes_comes_back(registry: Registry) -> None:
    one = await registry.join()
    await one.put_foreign(foreign())
    gone: list[bool] = []
    one.on_change(lambda view: gone.append(not view.foreign))
    folder = "/imago/imago/namesrv/foreign"
    (name,) = await registry.names(folder)
    await registry.delete(f"{folder}/{name}")
    await until(one, lambda view: any(gone) and view.foreign == (foreign(),))


async def test_snapshots_are_never_changed_in_place(registry: Registry) -> None:
    one = await registry.join()
    seen: list[int] = []
    one.on_change(lambda view: seen.append(view.version))
    before = one.view()
    await one.marks.put_kv("a", "b", "c")
    assert before.kv == {}
    assert one.view().version > before.version
    assert seen == sorted(seen)
    assert seen[-1] == one.view().version


async def test_a_callback_that_fails_does_not_stop_the_others(
    registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    one = await registry.join()

    def fail(_: object) -> None:
        raise RuntimeError("a mistake in a callback")

    seen: list[int] = []
    one.on_change(fail)
    one.on_change(lambda view: seen.append(view.version))
    await one.marks.put_kv("a", "b", "c")
    assert seen
    assert "a mistake in a callback" in caplog.text
