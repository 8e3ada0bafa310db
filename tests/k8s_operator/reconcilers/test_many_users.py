"""A thousand ImagoUsers cost a cluster a few lists of its users, not a thousand."""

from __future__ import annotations

from imago_testing.operated.users import Users


async def test_many_users_have_the_list_of_all_asked_for_a_few_times() -> None:
    """Both when they are made, and by an operator that was away for an hour."""
    stage = Users()
    names = [f"user-{n}" for n in range(60)]
    for name in names:
        stage.apply(name)
    for _ in range(4):
        for name in names:
            await stage.look(name)
            stage.pass_time(0.001)
    assert [await stage.look(name) for name in names] == [None] * len(names)
    assert stage.brokers.reads <= 4
    writes, done, read = stage.kube.status_writes, len(stage.brokers.calls), stage.brokers.reads
    stage.start()
    stage.pass_time(3600)
    assert [await stage.look(name) for name in names] == [None] * len(names)
    assert stage.kube.status_writes == writes
    assert (len(stage.brokers.calls), stage.brokers.reads) == (done, read + 1)
    assert {stage.ready(name) for name in names} == {("True", "InSync")}
