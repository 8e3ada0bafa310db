"""Original MetaQ producers of transactions: local ones, and XA as its managers drive it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.interop.metaq import Put
from imago_testing.interop.targets import TargetName
from imago_testing.java.driver import DriverError
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_testing.interop.metaq import Got, MetaqClient, MetaqFactory, MetaqTransactional
    from imago_testing.interop.targets import Target

pytestmark = [
    pytest.mark.interop,
    pytest.mark.shows("transactions"),
]
XA_OK, XA_RDONLY = 0, 3


def puts(what: str, count: int) -> list[Put]:
    return [Put(f"{what} {index}".encode(), f"{what}") for index in range(count)]


def browsed(factory: MetaqFactory, topic: str, count: int) -> list[Got]:
    """Wait until so many are there; return all."""
    wait_until(
        lambda: len(factory.browse(topic)) >= count, seconds_max=60, what=f"{count} in {topic}"
    )
    return factory.browse(topic)


def bodies(found: Sequence[Got | Put]) -> list[bytes]:
    return sorted(each.body for each in found)


def test_local_transactions_are_seen_whole_or_not_at_all(
    metaq: MetaqClient, metaq_topic: str
) -> None:
    kept = puts("kept", 12)
    with metaq.factory() as factory, factory.transactional([metaq_topic]) as producer:
        producer.begin()
        dropped = producer.send(metaq_topic, puts("dropped", 5))
        producer.roll_back()
        producer.begin()
        results = producer.send(metaq_topic, kept)
        assert factory.browse(metaq_topic) == []
        producer.commit()
        found = browsed(factory, metaq_topic, len(kept))
    assert all(each.success for each in (*dropped, *results))
    assert {each.offset for each in results} == {-1}
    assert bodies(found) == bodies(kept)
    assert {each.id for each in found} == {each.id for each in results}
    assert {each.attribute for each in found} == {"kept"}


def test_what_a_transaction_puts_into_a_partition_stands_together(
    metaq: MetaqClient, metaq_topic: str
) -> None:
    with metaq.factory() as factory, factory.producer([metaq_topic]) as plain:
        with factory.transactional([metaq_topic]) as producer:
            producer.begin()
            results = producer.send(metaq_topic, puts("one", 8))
            plain.send(metaq_topic, puts("between", 8))
            results += producer.send(metaq_topic, puts("two", 8))
            producer.commit()
        found = browsed(factory, metaq_topic, 24)
    ids = [each.id for each in results]
    assert {each.id for each in found} >= set(ids)
    # The browser goes through one partition after the other.
    in_order = [ids.index(each.id) if each.id in ids else -1 for each in found]
    starts = [
        now
        for before, now in zip([-1, *in_order], in_order, strict=False)
        if now >= 0 and (before < 0 or now < before)
    ]
    assert len(starts) == len({each.partition for each in results})


def test_several_topics_in_one_transaction(
    metaq: MetaqClient, metaq_topics: object, metaq_topic: str
) -> None:
    other = next(metaq_topics)  # type: ignore[call-overload]
    with (
        metaq.factory() as factory,
        factory.transactional([metaq_topic, other]) as producer,
    ):
        producer.begin()
        for topic in (metaq_topic, other):
            producer.send(topic, puts(topic, 3))
        producer.commit()
        for topic in (metaq_topic, other):
            assert bodies(browsed(factory, topic, 3)) == bodies(puts(topic, 3))


def test_local_transaction_whose_time_is_over_cannot_be_committed(
    metaq: MetaqClient, metaq_topic: str
) -> None:
    with metaq.factory() as factory, factory.transactional([metaq_topic]) as producer:
        producer.set_timeout(1)
        producer.begin()
        producer.send(metaq_topic, puts("late", 1))

        def over() -> bool:
            try:
                producer.send(metaq_topic, puts("late", 1))
            except DriverError:
                return True
            return any(not each.success for each in producer.send(metaq_topic, puts("late", 1)))

        wait_until(over, seconds_max=50, what="the broker knows the transaction no more")
        with pytest.raises(DriverError) as caught:
            producer.commit()
        assert "has not been started" in caught.value.text
        assert factory.browse(metaq_topic) == []


@pytest.mark.shows("xa")
def test_xa_in_two_phases(
    metaq: MetaqClient, metaq_topic: str, unique: Callable[[str], str]
) -> None:
    xid, qualifier = unique("xa"), unique("q")
    with (
        metaq.factory("xa") as factory,
        factory.transactional([metaq_topic], xa=True, qualifier=qualifier) as producer,
    ):
        producer.xa("start", xid)
        results = producer.send(metaq_topic, puts("two", 6))
        producer.xa("end", xid)
        assert producer.xa("prepare", xid) == XA_OK
        assert factory.browse(metaq_topic) == []
        assert producer.recover() == [xid]
        producer.xa("commit", xid)
        found = browsed(factory, metaq_topic, 6)
        assert producer.recover() == []
    assert bodies(found) == bodies(puts("two", 6))
    assert {each.id for each in found} == {each.id for each in results}


@pytest.mark.shows("xa")
def test_xa_in_one_phase_and_rolled_back(
    metaq: MetaqClient, metaq_topic: str, unique: Callable[[str], str]
) -> None:
    with (
        metaq.factory("xa") as factory,
        factory.transactional([metaq_topic], xa=True, qualifier=unique("q")) as producer,
    ):
        for what, prepared, end in (
            ("open", False, "rollback"), ("prepared", True, "rollback"), ("kept", False, "commit"),
        ):  # fmt: skip
            xid = unique(what)
            producer.xa("start", xid)
            producer.send(metaq_topic, puts(what, 3))
            producer.xa("end", xid)
            if prepared:
                assert producer.xa("prepare", xid) == XA_OK
            options = {"one_phase": True} if end == "commit" else {}
            producer.xa(end, xid, **options)
        found = browsed(factory, metaq_topic, 3)
        assert producer.recover() == []
    assert bodies(found) == bodies(puts("kept", 3))


@pytest.mark.shows("xa")
def test_xa_without_messages_is_read_only(
    metaq: MetaqClient, metaq_topic: str, unique: Callable[[str], str]
) -> None:
    xid = unique("xa")
    with (
        metaq.factory("xa") as factory,
        factory.transactional([metaq_topic], xa=True, qualifier=unique("q")) as producer,
    ):
        producer.xa("start", xid)
        producer.xa("end", xid)
        assert producer.xa("prepare", xid) == XA_RDONLY
        with pytest.raises(DriverError) as caught:
            producer.xa("commit", xid)
        assert caught.value.text.startswith("XA -4: ")


@pytest.mark.shows("xa")
def test_xa_errors_have_the_codes_of_the_original(
    metaq: MetaqClient, metaq_topic: str, unique: Callable[[str], str]
) -> None:
    xid, unknown = unique("xa"), unique("unknown")
    with (
        metaq.factory("xa") as factory,
        factory.transactional([metaq_topic], xa=True, qualifier=unique("q")) as producer,
    ):
        producer.recover()
        for step in ("prepare", "commit", "rollback"):
            with pytest.raises(DriverError) as caught:
                producer.xa(step, unknown)
            assert caught.value.text.startswith("XA -4: "), step
        producer.xa("start", xid)
        producer.send(metaq_topic, puts("x", 1))
        producer.xa("end", xid)
        with pytest.raises(DriverError) as caught:
            producer.xa("commit", xid)
        assert caught.value.text.startswith("XA -6: ")
        assert producer.xa("prepare", xid) == XA_OK
        with pytest.raises(DriverError) as caught:
            producer.xa("prepare", xid)
        assert caught.value.text.startswith("XA -6: ")
        producer.xa("rollback", xid)


@pytest.mark.shows("xa")
def test_recover_tells_a_producer_what_is_its_own(
    metaq: MetaqClient, metaq_topic: str, unique: Callable[[str], str]
) -> None:
    mine, others = unique("mine"), unique("others")
    qualifier, another = unique("q"), unique("r")
    with metaq.factory("xa") as factory:
        with (
            factory.transactional([metaq_topic], xa=True, qualifier=qualifier) as producer,
            factory.transactional([metaq_topic], xa=True, qualifier=another) as other,
        ):
            for each, xid in ((producer, mine), (other, others)):
                each.xa("start", xid)
                each.send(metaq_topic, puts(xid, 2))
                each.xa("end", xid)
                assert each.xa("prepare", xid) == XA_OK
            other.xa("rollback", others)
        # Another process of the same application takes over.
        with (
            metaq.factory("xa") as later,
            later.transactional([metaq_topic], xa=True, qualifier=qualifier) as producer,
        ):
            assert producer.recover() == [mine]
            commit_recovered(producer, mine)
            found = browsed(factory, metaq_topic, 2)
    assert bodies(found) == bodies(puts(mine, 2))


def commit_recovered(producer: MetaqTransactional, xid: str) -> None:
    """Commit what recover has told: the client asks all brokers, and ends it at one of them."""

    def committed() -> bool:
        producer.recover()  # with a resource of one broker or the other
        try:
            producer.xa("commit", xid)
        except DriverError as error:
            if not error.text.startswith("XA -4: "):
                raise
            return False
        return True

    wait_until(committed, seconds_max=60, what="the client commits at the right broker")


def test_lost_connection_rolls_back_what_is_open(
    metaq: MetaqClient, target: Target, metaq_topic: str
) -> None:
    """The original broker keeps it until its time is over: there the client cannot tell."""
    with metaq.factory() as factory:
        with metaq.factory() as leaving, leaving.transactional([metaq_topic]) as producer:
            producer.begin()
            producer.send(metaq_topic, puts("open", 3))
        if target.name is TargetName.IMAGO:
            assert factory.browse(metaq_topic) == []
