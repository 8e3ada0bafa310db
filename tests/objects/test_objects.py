"""The door to object stores: the same promises from a folder, memory and a server of S3."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from imago_objects import (
    BucketAwayError,
    BucketRefusedError,
    ObjectMissingError,
    Objects,
    ObjectsConfig,
    ObjectTooLargeError,
    objects,
    open_objects,
)
from imago_testing.processes.s3 import S3Server, running_s3

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(params=["folder", "memory", "s3", "s3 without a prefix"])
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    if request.param == "folder":
        return open_objects(ObjectsConfig(f"file://{tmp_path}/bucket"))
    if request.param == "memory":
        return open_objects(ObjectsConfig("memory://"))
    s3: S3Server = request.getfixturevalue("s3")
    prefix = tmp_path.name if request.param == "s3" else ""
    return open_objects(s3.objects(prefix))


async def test_what_is_put_is_there_whole(bucket: Objects, tmp_path: Path) -> None:
    await bucket.put("a/one", b"0123456789")
    await bucket.put("a/one", b"abcdefghij")
    assert await bucket.get("a/one") == b"abcdefghij"
    assert await bucket.get("a/one", 8) == b"ij"
    assert await bucket.get("a/one", 2, 3) == b"cde"
    assert await bucket.get("a/one", 8, 30) == b"ij"
    assert await bucket.get("a/one", 10, 5) == b""
    found = await bucket.head("a/one")
    assert found is not None
    assert (found.name, found.size) == ("a/one", 10)
    large = tmp_path / "large"
    large.write_bytes(bytes(range(256)) * (objects.PART_BYTES // 256) + b"the second part")
    await bucket.put("a/large", large)
    assert await bucket.get("a/large", objects.PART_BYTES - 1) == b"\xffthe second part"
    assert [one.name for one in await bucket.list("a")] == ["a/large", "a/one"]
    assert [one.name for one in await bucket.list()] == ["a/large", "a/one"]
    assert await bucket.list("a/on") == []  # no folder of that name
    await bucket.delete(["a/gone", "a/large", "a/one"])
    assert await bucket.list() == []
    assert await bucket.head("a/one") is None
    await bucket.delete(["a/gone"])
    await bucket.delete([])
    await bucket.probe()
    assert await bucket.list() == []


async def test_one_of_many_writes_what_is_absent(bucket: Objects) -> None:
    wrote = await asyncio.gather(
        *(bucket.put_if_absent("epoch", str(k).encode()) for k in range(8))
    )
    assert wrote.count(True) == 1
    assert await bucket.get("epoch") == str(wrote.index(True)).encode()
    await bucket.delete(["epoch"])


async def test_missing_objects_are_named(bucket: Objects, tmp_path: Path) -> None:
    for read in (bucket.get("a/no"), bucket.get("a/no", 0, 5)):
        with pytest.raises(ObjectMissingError, match=r"there is no 'a/no'; was it deleted") as told:
            await read
        assert str(told.value).startswith(bucket.url)
    with pytest.raises(BucketRefusedError, match="is no file; nothing was sent"):
        await bucket.put("a", tmp_path / "none")


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "../a", "a/./b", "a b", "a\n", "é"])
async def test_odd_names_are_refused(name: str) -> None:
    bucket = open_objects(ObjectsConfig("memory://"))
    for call in (bucket.put(name, b""), bucket.put_if_absent(name, b""), bucket.get(name),
                 bucket.head(name), bucket.delete([name])):  # fmt: skip
        with pytest.raises(BucketRefusedError, match="is no name of an object"):
            await call


async def test_sizes_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = open_objects(ObjectsConfig("memory://"))
    for name in "abc":
        await bucket.put(name, b"12345")
    monkeypatch.setattr(objects, "GET_BYTES_MAX", 5)
    assert await bucket.get("a") == b"12345"
    monkeypatch.setattr(objects, "GET_BYTES_MAX", 4)
    with pytest.raises(ObjectTooLargeError, match="5 bytes are more than 4 at once; read it in"):
        await bucket.get("a")
    monkeypatch.setattr(objects, "LISTED_MAX", 3)
    assert len(await bucket.list()) == 3
    monkeypatch.setattr(objects, "LISTED_MAX", 2)
    with pytest.raises(ObjectTooLargeError, match="holds more than 2 objects"):
        await bucket.list()
    monkeypatch.setattr(objects, "NAME_BYTES_MAX", 3)
    await bucket.put("abc", b"")
    with pytest.raises(BucketRefusedError, match="at most 3"):
        await bucket.put("abcd", b"")


async def test_a_bucket_that_is_away_is_said_and_comes_back(s3: S3Server) -> None:
    bucket = open_objects(s3.objects("away"))
    await bucket.put("kept", b"1")
    s3.stop()
    try:
        calls = [bucket.put("x", b"1"), bucket.put_if_absent("x", b"1"), bucket.get("kept"),
                 bucket.head("kept"), bucket.list(), bucket.delete(["kept"])]  # fmt: skip
        for call in calls:
            with pytest.raises(BucketAwayError, match="reachable from here") as told:
                await call
            assert "Debug" not in str(told.value)
            assert len(str(told.value)) < 200
    finally:
        s3.start()
    assert await bucket.get("kept") == b"1"


async def test_a_wrong_bucket_is_refused_with_a_cure(s3: S3Server, tmp_path: Path) -> None:
    bucket = open_objects(s3.objects(bucket="no-such-bucket"))
    with pytest.raises(BucketRefusedError, match="404 NoSuchBucket; make the bucket"):
        await bucket.put("x", b"1")
    with pytest.raises(BucketRefusedError, match="NoSuchBucket"):
        await bucket.get("x", 0, 1)
    (s3.credentials / "secret_access_key").rename(tmp_path / "away")
    try:
        with pytest.raises(BucketRefusedError, match=r"secret_access_key: No such file .*there\?"):
            open_objects(s3.objects())
    finally:
        (tmp_path / "away").rename(s3.credentials / "secret_access_key")


async def test_a_careless_service_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = open_objects(ObjectsConfig("memory://"))

    async def overwrites(name: str, data: bytes) -> bool:
        await bucket.put(name, data)
        return True

    monkeypatch.setattr(Objects, "put_if_absent", lambda _self, name, data: overwrites(name, data))
    with pytest.raises(BucketRefusedError, match="overwrites what must not be overwritten"):
        await bucket.probe()
    assert await bucket.list() == []


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "no such kind of bucket; write one of s3://"),
        ("http://bucket/x", "no such kind of bucket"),
        ("s3:///x", "names no bucket"),
        ("file://host/x", "names no folder"),
        ("s3://key:hidden@bucket/x", "holds more than bucket and prefix"),
        ("s3://bucket/x?secret=hidden", "holds more than bucket and prefix"),
    ],
)
def test_a_url_says_where_and_no_secret(url: str, said: str) -> None:
    with pytest.raises(BucketRefusedError, match=said) as told:
        ObjectsConfig(url)
    assert "hidden" not in str(told.value)


@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_other_clouds_are_opened_with_their_files(scheme: str, tmp_path: Path) -> None:
    config = ObjectsConfig(f"{scheme}://account/container/p", credentials_folder=str(tmp_path))
    with pytest.raises(BucketRefusedError, match="No such file"):
        open_objects(config)
    if scheme == "az":
        (tmp_path / "account_name").write_text("account")
        (tmp_path / "account_key").write_text("a2V5")
        assert open_objects(config).url == config.url
    else:
        (tmp_path / "service_account.json").write_text("{}")
        with pytest.raises(BucketRefusedError, match="missing field"):
            open_objects(config)


async def test_a_certificate_that_nobody_vouches_for_is_named(tmp_path: Path) -> None:
    config = ObjectsConfig("s3://b", endpoint="https://127.0.0.1:1", ca_file=str(tmp_path / "ca"))
    with pytest.raises(BucketRefusedError, match="No such file"):
        open_objects(config)
