"""Ports, folders and configuration of `imago up`, without a process."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_broker.config.loading import from_tree
from imago_cli import toml_text, up_state
from imago_cli.exits import CommandError, Exit, UsageError
from imago_cli.up import child_environment
from imago_cli.up_plan import ClusterPlan, local_base, refuse_owned_keys

DATA = Path("/data")


def plan(
    shards: int = 1, zookeeper: str = "auto", port_base: int | None = None, data: Path = DATA
) -> ClusterPlan:
    return ClusterPlan(
        data=data, cluster="imago", shards=shards, zookeeper=zookeeper, port_base=port_base
    )


def test_without_a_base_the_well_known_ports_are_used() -> None:
    made = plan(shards=2)
    assert [port for _, port in made.ports()] == [
        9876, 2181,
        8123, 10911, 10909, 10912, 8080,
        8124, 10921, 10919, 10922, 8081,
    ]  # fmt: skip


def test_with_a_base_each_broker_has_ten_ports() -> None:
    made = plan(shards=2, port_base=30000)
    assert sorted(port for _, port in made.ports()) == [
        30000, 30001,
        30010, 30011, 30012, 30013, 30014,
        30020, 30021, 30022, 30023, 30024,
    ]  # fmt: skip


@given(shards=st.integers(1, 64), base=st.integers(1, 60_000))
def test_a_base_keeps_every_port_in_its_block_and_apart(shards: int, base: int) -> None:
    ports = [port for _, port in plan(shards=shards, port_base=base).ports()]
    assert len(set(ports)) == len(ports) == 2 + 5 * shards
    assert all(base <= port < base + 10 + 10 * shards for port in ports)


def test_well_known_ports_stay_apart_or_are_refused() -> None:
    for shards in range(1, 44):
        ports = [port for _, port in plan(shards=shards).ports()]
        assert len(set(ports)) == len(ports)
    with pytest.raises(UsageError, match="44 shards do not fit"):
        plan(shards=44)


@pytest.mark.parametrize("base", [0, -5, 65530])
def test_a_block_that_does_not_fit_is_refused(base: int) -> None:
    with pytest.raises(UsageError, match="--port-base"):
        plan(port_base=base)


def test_without_zookeeper_there_is_one_broker_that_answers_the_name_service() -> None:
    with pytest.raises(UsageError, match="exactly one broker"):
        plan(shards=2, zookeeper="none")
    tree = plan(zookeeper="none").broker_tree(0, {})
    assert tree["namesrv"] == {"enabled": True, "port": 9876}
    assert tree["zookeeper"] == {"connect": "none"}
    assert "ZooKeeper" not in [what for what, _ in plan(zookeeper="none").ports()]


def test_an_ensemble_that_is_there_is_used() -> None:
    made = plan(shards=2, zookeeper="zk-0:2181,zk-1:2181/root")
    assert made.zookeeper_connect == "zk-0:2181,zk-1:2181/root"
    assert made.broker_tree(1, {})["zookeeper"] == {"connect": "zk-0:2181,zk-1:2181/root"}
    assert made.ready("h", [1, 2])["zookeeper"] == "zk-0:2181,zk-1:2181/root"
    assert "ZooKeeper" not in [what for what, _ in made.ports()]


def test_what_a_broker_is_told_is_a_configuration_that_it_takes() -> None:
    base = {**local_base(), "metaq": {"port": 1, "default_partitions": 3}}
    for shard in range(2):
        config = from_tree(plan(shards=2, port_base=30000).broker_tree(shard, base))
        assert config.broker.shard == shard
        assert config.broker.bind == config.broker.host == "127.0.0.1"
        assert config.metaq.port == 30011 + 10 * shard
        assert config.metaq.default_partitions == 3
        assert config.rocketmq.fast_port == config.rocketmq.port - 2
        assert Path(config.broker.data_dir) == DATA / f"shard-{shard}"
        assert not config.namesrv.enabled
    names = from_tree(plan(port_base=30000).namesrv_tree(base))
    assert (names.namesrv.enabled, names.namesrv.port) == (True, 30000)


def test_the_ready_line_is_as_documented() -> None:
    assert plan(shards=1).ready("127.0.0.1", [4242]) == {
        "ready": True,
        "namesrv": "127.0.0.1:9876",
        "zookeeper": "127.0.0.1:2181",
        "data": "/data",
        "brokers": [
            {
                "shard": "shard-0",
                "replica": 0,
                "pid": 4242,
                "role": "master",
                "metaq": "127.0.0.1:8123",
                "rocketmq": "127.0.0.1:10911",
                "fast": "127.0.0.1:10909",
                "replication": "127.0.0.1:10912",
                "admin": "http://127.0.0.1:8080",
                "data": "/data/shard-0",
            }
        ],
    }


def test_settings_that_a_flag_decides_are_refused() -> None:
    refuse_owned_keys(["metaq.default_partitions=3", "broker.bind=0.0.0.0"])
    with pytest.raises(UsageError, match=r"rocketmq\.port: --port-base decides"):
        refuse_owned_keys(["rocketmq.port=1"])


def again(
    folder: Path,
    *,
    shards: int | None = None,
    cluster: str | None = None,
    port_base: int | None = None,
) -> ClusterPlan:
    """The plan of a folder for a command line that gives only these."""
    return up_state.plan(
        folder, shards=shards, cluster=cluster, zookeeper=None, port_base=port_base
    )


def test_a_folder_remembers_its_cluster(tmp_path: Path) -> None:
    made = ClusterPlan(data=tmp_path, cluster="mine", shards=3, zookeeper="h:1", port_base=30000)
    up_state.remember(made)
    assert again(tmp_path) == made
    more = again(tmp_path, shards=4, port_base=31000)
    assert (more.shards, more.port_base, more.cluster) == (4, 31000, "mine")
    with pytest.raises(UsageError, match="holds 3 shards"):
        again(tmp_path, shards=2)
    with pytest.raises(UsageError, match="holds cluster mine"):
        again(tmp_path, cluster="other")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"format": 2}',
        '{"format": 1}',
        '{"format": 1, "cluster": 5, "shards": 1, "zookeeper": "auto", "port_base": null}',
    ],
)
def test_a_damaged_memory_is_refused_with_the_cure(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(CommandError, match="cannot be understood") as refused:
        again(tmp_path)
    assert refused.value.code == Exit.DATA
    assert refused.value.cure


def test_only_one_process_holds_a_folder(tmp_path: Path) -> None:
    with up_state.locked(tmp_path / "new"):
        second = up_state.locked(tmp_path / "new")
        with pytest.raises(UsageError, match="locked by another"), second:
            pass
    with up_state.locked(tmp_path / "new"):
        pass


def test_brokers_do_not_inherit_settings_from_our_environment() -> None:
    ours = {"PATH": "/bin", "IMAGO__METAQ__PORT": "1", "IMAGO_PURE": "1"}
    assert child_environment(ours) == {"PATH": "/bin", "IMAGO_PURE": "1"}


scalars = (
    st.booleans()
    | st.integers(-(1 << 62), 1 << 62)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
values = scalars | st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=3)
keys = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10)


@given(
    tree=st.dictionaries(
        keys,
        st.dictionaries(keys, values | st.dictionaries(keys, scalars, max_size=3), max_size=4),
        max_size=4,
    )
)
def test_toml_is_read_back_as_it_was(tree: dict[str, dict[str, object]]) -> None:
    filled = {section: inside for section, inside in tree.items() if inside}
    assert tomllib.loads(toml_text.dump(tree)) == filled


def test_cluster_json_is_replaced_whole(tmp_path: Path) -> None:
    up_state.remember(plan(data=tmp_path))
    up_state.remember(plan(data=tmp_path, shards=2))
    assert json.loads((tmp_path / "cluster.json").read_text())["shards"] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.json"]
