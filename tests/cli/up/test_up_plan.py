"""Ports, folders and configuration of `imago up`, without a process."""

from __future__ import annotations

import asyncio
import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_broker.config.loading import from_tree
from imago_cli import toml_text
from imago_cli.exits import CommandError, CommandUsageError, Exit
from imago_cli.up import state as up_state
from imago_cli.up.command import ClusterRun, child_environment, for_other_commands
from imago_cli.up.configs import base_settings, config_path, write_configs
from imago_cli.up.plan import BrokerPlace, ClusterPlan, Present, local_base, refuse_owned_keys
from imago_cli.up.protection import refuse_less
from imago_cli.up.supervisor import SupervisedProcess

DATA = Path("/data")


FIRST = BrokerPlace(0, 0)


def plan(
    shards: int = 1,
    zookeeper: str = "auto",
    port_base: int | None = None,
    data: Path = DATA,
    replicas: int = 1,
) -> ClusterPlan:
    return ClusterPlan(
        data=data,
        cluster="imago",
        shards=shards,
        replicas=replicas,
        zookeeper=zookeeper,
        port_base=port_base,
    )


def running(made: ClusterPlan) -> dict[BrokerPlace, Present]:
    """All brokers of a plan, each replica 0 leading."""
    return {
        place: Present(4242 + n, place.replica, "slave" if place.replica else "master")
        for n, place in enumerate(made.places())
    }


def test_without_a_base_the_well_known_ports_are_used() -> None:
    made = plan(shards=2)
    assert [port for _, port in made.ports()] == [
        9876, 2181,
        8123, 10911, 10909, 10912, 8080, 8180,
        8124, 10921, 10919, 10922, 8081, 8181,
    ]  # fmt: skip


def test_with_a_base_each_broker_has_ten_ports() -> None:
    made = plan(shards=2, port_base=30000)
    assert sorted(port for _, port in made.ports()) == [
        30000, 30001,
        30010, 30011, 30012, 30013, 30014, 30015,
        30020, 30021, 30022, 30023, 30024, 30025,
    ]  # fmt: skip


@given(shards=st.integers(1, 16), replicas=st.integers(1, 4), base=st.integers(1, 60_000))
def test_a_base_keeps_every_port_in_its_block_and_apart(
    shards: int, replicas: int, base: int
) -> None:
    made = plan(shards=shards, replicas=replicas, port_base=base)
    ports, brokers = [port for _, port in made.ports()], shards * replicas
    assert len(set(ports)) == len(ports) == 2 + 6 * brokers
    assert all(base <= port < base + 10 + 10 * brokers for port in ports)


def test_brokers_are_counted_shard_by_shard() -> None:
    made = plan(shards=2, replicas=3, port_base=30000)
    assert [place.name for place in made.places()] == [
        "shard-0", "shard-0-1", "shard-0-2", "shard-1", "shard-1-1", "shard-1-2"
    ]  # fmt: skip
    assert [made.broker_ports(place).metaq for place in made.places()] == [
        30011, 30021, 30031, 30041, 30051, 30061
    ]  # fmt: skip
    assert made.broker_data(BrokerPlace(1, 2)) == DATA / "shard-1-2"


def test_more_brokers_than_a_machine_should_run_are_refused() -> None:
    with pytest.raises(CommandUsageError, match="66 brokers are more"):
        plan(shards=22, replicas=3, port_base=30000)
    with pytest.raises(CommandUsageError, match="--replicas 0: must be"):
        plan(replicas=0)


def test_well_known_ports_stay_apart_or_are_refused() -> None:
    for shards in range(1, 44):
        ports = [port for _, port in plan(shards=shards).ports()]
        assert len(set(ports)) == len(ports)
    with pytest.raises(CommandUsageError, match="44 brokers do not fit"):
        plan(shards=44)


@pytest.mark.parametrize("base", [0, -5, 65530])
def test_a_block_that_does_not_fit_is_refused(base: int) -> None:
    with pytest.raises(CommandUsageError, match="--port-base"):
        plan(port_base=base)


def test_without_zookeeper_there_is_one_broker_that_answers_the_name_service() -> None:
    with pytest.raises(CommandUsageError, match="exactly one broker"):
        plan(shards=2, zookeeper="none")
    with pytest.raises(CommandUsageError, match="exactly one broker, not 3"):
        plan(replicas=3, zookeeper="none")
    tree = plan(zookeeper="none").broker_tree(FIRST, {})
    assert tree["namesrv"] == {"enabled": True, "port": 9876}
    assert tree["zookeeper"] == {"connect": "none"}
    assert "ZooKeeper" not in [what for what, _ in plan(zookeeper="none").ports()]


def test_an_ensemble_that_is_there_is_used() -> None:
    made = plan(shards=2, zookeeper="zk-0:2181,zk-1:2181/root")
    assert made.zookeeper_connect == "zk-0:2181,zk-1:2181/root"
    assert made.broker_tree(BrokerPlace(1, 0), {})["zookeeper"] == {
        "connect": "zk-0:2181,zk-1:2181/root"
    }
    assert made.ready("h", running(made))["zookeeper"] == "zk-0:2181,zk-1:2181/root"
    assert "ZooKeeper" not in [what for what, _ in made.ports()]


def test_what_a_broker_is_told_is_a_configuration_that_it_takes() -> None:
    base = {**local_base(), "metaq": {"port": 1, "default_partitions": 3}}
    for shard in range(2):
        config = from_tree(plan(shards=2, port_base=30000).broker_tree(BrokerPlace(shard, 0), base))
        assert config.broker.shard == shard
        assert config.broker.bind == config.broker.host == "127.0.0.1"
        assert config.metaq.port == 30011 + 10 * shard
        assert config.metaq.default_partitions == 3
        assert config.rocketmq.fast_port == config.rocketmq.port - 2
        assert Path(config.broker.data_dir) == DATA / f"shard-{shard}"
        assert not config.namesrv.enabled
    made = plan(shards=2, replicas=3, port_base=30000)
    member = from_tree(made.broker_tree(BrokerPlace(1, 2), base))
    assert (member.broker.shard, member.broker.replica, member.broker.replicas) == (1, 2, 3)
    assert (member.min_in_sync, member.acknowledgement_level) == (2, "replicated")
    least = {"replication": {"min_in_sync": 2}}
    assert from_tree(plan(replicas=3).namesrv_tree(least)).min_in_sync == 2
    names = from_tree(plan(port_base=30000).namesrv_tree(base))
    assert (names.namesrv.enabled, names.namesrv.port) == (True, 30000)


def test_settings_of_a_file_stand_below_those_of_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "all.toml"
    file.write_text('[broker]\nhost = "h"\n[acl]\nenabled = true\n[tls]\nmode = "enforcing"\n')
    tree = base_settings(["tls.mode=permissive"], None, file)
    assert (tree["acl"], tree["tls"]) == ({"enabled": True}, {"mode": "permissive"})
    assert (tree["broker"]["host"], tree["broker"]["bind"]) == ("h", "127.0.0.1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[admin]\nport = 1", "admin.port: --port-base decides this"),
        ("acl = true", "acl is in no section"),
        ("[acl", "is not TOML"),
        (None, "No such file"),
    ],
)
def test_a_file_of_settings_that_cannot_be_used_is_named(
    tmp_path: Path, text: str | None, said: str
) -> None:
    file = tmp_path / "all.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(CommandUsageError, match=said) as refused:
        base_settings([], None, file)
    assert str(file) in str(refused.value)


def test_the_ready_line_is_as_documented() -> None:
    made = plan(replicas=2, port_base=30000).ready("h", running(plan(replicas=2)))
    assert [(b["shard"], b["replica"], b["role"], b["replication"]) for b in made["brokers"]] == [
        ("shard-0", 0, "master", "h:30013"),
        ("shard-0", 1, "slave", "h:30023"),
    ]
    assert plan().ready("127.0.0.1", running(plan())) == {
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
                "grpc": "127.0.0.1:8081",
                "replication": "127.0.0.1:10912",
                "admin": "http://127.0.0.1:8080",
                "data": "/data/shard-0",
            }
        ],
    }


def test_other_commands_are_told_where_to_ask() -> None:
    made = plan(shards=2, replicas=2, port_base=30000)
    present = {
        place: Present(4242, place.replica, "master" if place.replica else "slave")
        for place in made.places()
    }
    assert for_other_commands(made.ready("127.0.0.1", present)) == (
        "export IMAGO_BOOTSTRAP=127.0.0.1:30000 IMAGO_ADMIN=http://127.0.0.1:30014"
    )


async def test_nobody_starts_before_zookeeper_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = plan(port_base=30000, data=tmp_path, replicas=2)
    run = ClusterRun(made, write_configs(made, base_settings([], None)), restart=True, as_json=True)
    said: list[str] = []

    async def start(child: SupervisedProcess) -> None:
        said.append(f"{child.spec.name} starts")
        await asyncio.sleep(0)
        said.append(f"{child.spec.name} serves")

    async def lives(_: SupervisedProcess) -> None:
        await asyncio.Event().wait()

    async def settled(_: ClusterRun) -> None:
        said.append("settled")

    monkeypatch.setattr(SupervisedProcess, "start", start)
    monkeypatch.setattr(SupervisedProcess, "fail_when_dead", lives)
    monkeypatch.setattr(ClusterRun, "_settle", settled)
    await run._start()
    assert said[:2] == ["zookeeper starts", "zookeeper serves"]
    assert len(said) == 9
    assert said[-1] == "settled"


def test_settings_that_a_flag_decides_are_refused() -> None:
    refuse_owned_keys(["metaq.default_partitions=3", "broker.bind=0.0.0.0"])
    refuse_owned_keys(["replication.min_in_sync=2", "broker.zone=a"])
    with pytest.raises(CommandUsageError, match=r"rocketmq\.port: --port-base decides"):
        refuse_owned_keys(["rocketmq.port=1"])
    with pytest.raises(CommandUsageError, match=r"broker\.replicas: --replicas decides"):
        refuse_owned_keys(["broker.replicas=2"])


def again(
    folder: Path,
    *,
    shards: int | None = None,
    replicas: int | None = None,
    cluster: str | None = None,
    port_base: int | None = None,
) -> ClusterPlan:
    """The plan of a folder for a command line that gives only these."""
    return up_state.plan(
        folder,
        shards=shards,
        replicas=replicas,
        cluster=cluster,
        zookeeper=None,
        port_base=port_base,
    )


def test_a_folder_remembers_its_cluster(tmp_path: Path) -> None:
    made = ClusterPlan(
        data=tmp_path, cluster="mine", shards=3, replicas=2, zookeeper="h:1", port_base=30000
    )
    up_state.remember(made)
    assert again(tmp_path) == made
    more = again(tmp_path, shards=4, port_base=31000)
    assert (more.shards, more.port_base, more.cluster) == (4, 31000, "mine")
    (tmp_path / "shard-2-1").mkdir()
    with pytest.raises(CommandUsageError, match="holds 3 shards"):
        again(tmp_path, shards=2)
    assert again(tmp_path, replicas=3).replicas == 3
    with pytest.raises(CommandUsageError, match="holds 2 members of each shard"):
        again(tmp_path, replicas=1)
    with pytest.raises(CommandUsageError, match="holds cluster mine"):
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


def test_a_memory_of_before_there_were_replicas_is_understood(tmp_path: Path) -> None:
    text = '{"format": 1, "cluster": "c", "shards": 2, "zookeeper": "auto", "port_base": null}'
    (tmp_path / "cluster.json").write_text(text)
    assert (again(tmp_path).shards, again(tmp_path).replicas) == (2, 1)


def test_a_refused_command_leaves_no_folder_that_it_made(tmp_path: Path) -> None:
    def refused(folder: Path, makes: str) -> None:
        with up_state.locked(folder):
            (folder / makes).mkdir()
            raise CommandUsageError("port 9876 cannot be bound")

    (tmp_path / "old").mkdir()
    for name, makes in (("new", "config"), ("old", "config"), ("ran", "logs")):
        with pytest.raises(CommandUsageError):
            refused(tmp_path / name, makes)
    assert {path.name for path in tmp_path.iterdir()} == {"old", "ran"}


def test_only_one_process_holds_a_folder(tmp_path: Path) -> None:
    with up_state.locked(tmp_path / "new"):
        second = up_state.locked(tmp_path / "new")
        with pytest.raises(CommandUsageError, match="locked by another"), second:
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


def test_settings_of_the_environment_are_named_since_they_do_not_count(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("IMAGO__METAQ__PORT", "1")
    assert "metaq" not in base_settings([], None)
    assert "IMAGO__METAQ__PORT: imago up takes settings from --set" in capsys.readouterr().err


def protected(tmp_path: Path, *settings: str) -> Path:
    """Write what a start with these settings leaves; return a broker's configuration."""
    made, place = plan(data=tmp_path), BrokerPlace(0, 0)
    path = config_path(made, place)
    path.parent.mkdir()
    path.write_text(toml_text.dump(made.broker_tree(place, base_settings(settings, None))))
    return path


@pytest.mark.parametrize(
    ("had", "opened"),
    [
        ("acl.enabled=true", "acl.enabled=false"),
        ("tls.mode=enforcing", "tls.mode=permissive"),
        ("tls.mode=enforcing", "tls.mode=disabled"),
    ],
)
def test_a_protected_cluster_is_not_opened_by_oversight(
    tmp_path: Path, had: str, opened: str
) -> None:
    before = protected(tmp_path, had)
    refuse_less(before, base_settings([had], None))
    with pytest.raises(CommandUsageError, match=had) as refused:
        refuse_less(before, base_settings([], None))
    assert "--config and --set as before" in refused.value.cure
    refuse_less(before, base_settings([opened], None))


def test_an_open_cluster_and_a_first_start_are_refused_nothing(tmp_path: Path) -> None:
    refuse_less(tmp_path / "config" / "shard-0.toml", base_settings([], None))
    before = protected(tmp_path, "acl.enabled=false")
    refuse_less(before, base_settings([], None))
    before.write_text("[acl\n")  # what cannot be read says nothing
    refuse_less(before, base_settings([], None))
