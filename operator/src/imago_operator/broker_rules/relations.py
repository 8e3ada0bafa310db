"""What settings of brokers have to do with each other. Made by `make docs`."""

# ruff: noqa: E501

from __future__ import annotations

from typing import Final

from imago_operator.broker_rules.reading import Holds, Relation

RELATIONS: Final[tuple[Relation, ...]] = (
    Relation(
        when=(),
        must=(Holds(key="metaq.broker_id_base", sign="<=", value=1023, plus_of="broker.shard"),),
        says="metaq.broker_id_base + broker.shard: must be at most 1023",
    ),
    Relation(
        when=(),
        must=(
            Holds(
                key="rocketmq.message_bytes_max",
                sign="<=",
                of="store.segment_bytes_max",
                plus=33294,
            ),
        ),
        says="rocketmq.message_bytes_max: {rocketmq.message_bytes_max}, does not fit into a file of the log: lower it, or set store.segment_bytes_max = {needed} or more (it is {store.segment_bytes_max})",
    ),
    Relation(
        when=(),
        must=(
            Holds(
                key="metaq.message_bytes_max", sign="<=", of="store.segment_bytes_max", plus=33294
            ),
        ),
        says="metaq.message_bytes_max: {metaq.message_bytes_max}, does not fit into a file of the log: lower it, or set store.segment_bytes_max = {needed} or more (it is {store.segment_bytes_max})",
    ),
    Relation(
        when=(),
        must=(Holds(key="store.disk_clean_ratio", sign="<=", of="store.disk_force_ratio"),),
        says="store.disk_clean_ratio: {store.disk_clean_ratio}, must be at most store.disk_force_ratio = {store.disk_force_ratio}",
    ),
    Relation(
        when=(),
        must=(Holds(key="store.disk_force_ratio", sign="<=", of="store.disk_full_ratio"),),
        says="store.disk_force_ratio: {store.disk_force_ratio}, must be at most store.disk_full_ratio = {store.disk_full_ratio}",
    ),
    Relation(
        when=(Holds(key="limits.input_bytes_total_max", sign="!=", value=0),),
        must=(Holds(key="limits.input_bytes_total_max", sign=">=", of="rocketmq.frame_bytes_max"),),
        says="limits.input_bytes_total_max: {limits.input_bytes_total_max}, does not hold one frame: set 0 or at least rocketmq.frame_bytes_max = {rocketmq.frame_bytes_max}",
    ),
    Relation(
        when=(Holds(key="broker.replicas", sign=">=", value=2),),
        must=(Holds(key="zookeeper.connect", sign="!=", value="none"),),
        says="broker.replicas: {broker.replicas}, needs a registry: set zookeeper.connect",
    ),
    Relation(
        when=(Holds(key="replication.open", sign="==", value=True),),
        must=(Holds(key="zookeeper.connect", sign="!=", value="none"),),
        says="replication.open: true, needs a registry: set zookeeper.connect",
    ),
    Relation(
        when=(),
        must=(Holds(key="replication.min_in_sync", sign="<=", of="broker.replicas"),),
        says="replication.min_in_sync: {replication.min_in_sync}, must be at most broker.replicas = {broker.replicas}",
    ),
    Relation(
        when=(
            Holds(key="broker.replicas", sign=">=", value=2),
            Holds(key="replication.min_in_sync", sign="==", value=1),
            Holds(key="acknowledgement.level", sign="begins", value="replicated"),
        ),
        must=(),
        says="replication.min_in_sync: 1, would let one copy stand for {acknowledgement.level}: set 2, or acknowledgement.level = leader",
    ),
    Relation(
        when=(
            Holds(key="broker.bind", sign="is", value="loopback"),
            Holds(key="broker.host", sign="!="),
        ),
        must=(Holds(key="broker.host", sign="is", value="loopback"),),
        says="broker.bind: {broker.bind}, is not where broker.host = {broker.host} is: set broker.bind = 0.0.0.0, or to that network's address",
    ),
    Relation(
        when=(Holds(key="tls.key_file", sign="!="),),
        must=(Holds(key="tls.certificate_file", sign="!="),),
        says="tls.key_file: needs a certificate: set tls.certificate_file and tls.key_file",
    ),
    Relation(
        when=(Holds(key="tls.client_auth", sign="!=", value="none"),),
        must=(Holds(key="tls.certificate_file", sign="!="),),
        says="tls.client_auth: needs a certificate: set tls.certificate_file and tls.key_file",
    ),
    Relation(
        when=(Holds(key="tls.client_ca_file", sign="!="),),
        must=(Holds(key="tls.certificate_file", sign="!="),),
        says="tls.client_ca_file: needs a certificate: set tls.certificate_file and tls.key_file",
    ),
    Relation(
        when=(
            Holds(
                key="tls.admin_client_auth",
                sign="in",
                value=(
                    "optional",
                    "required",
                ),
            ),
        ),
        must=(Holds(key="tls.certificate_file", sign="!="),),
        says="tls.admin_client_auth: needs a certificate: set tls.certificate_file and tls.key_file",
    ),
    Relation(
        when=(Holds(key="tls.mode", sign="==", value="enforcing"),),
        must=(Holds(key="tls.certificate_file", sign="!="),),
        says="tls.mode = enforcing: needs a certificate: set tls.certificate_file and tls.key_file",
    ),
    Relation(
        when=(Holds(key="tls.metaq_port", sign=">=", value=0),),
        must=(Holds(key="tls.certificate_file", sign="!="),),
        says="tls.metaq_port: needs a certificate: set tls.certificate_file and tls.key_file",
    ),
    Relation(
        when=(Holds(key="tls.replication", sign="!=", value="disabled"),),
        must=(Holds(key="tls.certificate_file", sign="!="),),
        says="tls.replication = {tls.replication}: needs a certificate: set tls.certificate_file and tls.key_file",
    ),
    Relation(
        when=(Holds(key="tls.calls", sign="==", value="enforcing"),),
        must=(Holds(key="tls.certificate_file", sign="!="),),
        says="tls.calls = enforcing: needs a certificate: set tls.certificate_file and tls.key_file",
    ),
    Relation(
        when=(Holds(key="tls.certificate_file", sign="!="),),
        must=(Holds(key="tls.key_file", sign="!="),),
        says="tls.certificate_file: needs its key: set tls.key_file",
    ),
    Relation(
        when=(
            Holds(key="tls.certificate_file", sign="!="),
            Holds(key="tls.client_ca_file", sign="=="),
            Holds(key="tls.client_auth", sign="!=", value="none"),
        ),
        must=(Holds(key="tls.ca_file", sign="!="),),
        says="tls.client_auth: {tls.client_auth}, needs authorities: set tls.client_ca_file or tls.ca_file",
    ),
    Relation(
        when=(
            Holds(key="tls.certificate_file", sign="!="),
            Holds(key="tls.client_ca_file", sign="=="),
            Holds(
                key="tls.admin_client_auth",
                sign="in",
                value=(
                    "optional",
                    "required",
                ),
            ),
        ),
        must=(Holds(key="tls.ca_file", sign="!="),),
        says="tls.admin_client_auth: {tls.admin_client_auth}, needs authorities: set tls.client_ca_file or tls.ca_file",
    ),
    Relation(
        when=(
            Holds(key="tls.certificate_file", sign="!="),
            Holds(key="tls.client_ca_file", sign="!="),
            Holds(key="tls.client_auth", sign="==", value="none"),
            Holds(
                key="tls.admin_client_auth",
                sign="in",
                value=(
                    "same",
                    "none",
                ),
            ),
        ),
        must=(),
        says="tls.client_ca_file: nobody is asked for a certificate: set tls.client_auth",
    ),
    Relation(
        when=(Holds(key="zookeeper.tls_certificate_file", sign="!="),),
        must=(Holds(key="zookeeper.tls_key_file", sign="!="),),
        says="zookeeper.tls_certificate_file: goes with zookeeper.tls_key_file: set both",
    ),
    Relation(
        when=(Holds(key="zookeeper.tls_key_file", sign="!="),),
        must=(Holds(key="zookeeper.tls_certificate_file", sign="!="),),
        says="zookeeper.tls_certificate_file: goes with zookeeper.tls_key_file: set both",
    ),
    Relation(
        when=(Holds(key="zookeeper.tls_certificate_file", sign="!="),),
        must=(Holds(key="zookeeper.tls_ca_file", sign="!="),),
        says="zookeeper.tls_certificate_file: needs authorities: set zookeeper.tls_ca_file",
    ),
    Relation(
        when=(Holds(key="zookeeper.user", sign="!="),),
        must=(Holds(key="zookeeper.password_file", sign="!="),),
        says="zookeeper.user: goes with zookeeper.password_file: set both",
    ),
    Relation(
        when=(Holds(key="zookeeper.password_file", sign="!="),),
        must=(Holds(key="zookeeper.user", sign="!="),),
        says="zookeeper.user: goes with zookeeper.password_file: set both",
    ),
    Relation(
        when=(),
        must=(Holds(key="zookeeper.user", sign="lacks", value=":"),),
        says="zookeeper.user: {zookeeper.user}, must have no colon",
    ),
    Relation(
        when=(Holds(key="metaq.slave_id", sign=">=", value=0),),
        must=(Holds(key="zookeeper.connect", sign="!=", value="none"),),
        says="metaq.slave_id: the master is found in ZooKeeper: set zookeeper.connect",
    ),
    Relation(
        when=(Holds(key="metaq.slave_id", sign=">=", value=0),),
        must=(Holds(key="metaq.gregor", sign="==", value=False),),
        says="metaq.gregor: does not go with metaq.slave_id, which is another kind of slave",
    ),
    Relation(
        when=(Holds(key="metaq.samsa_slave", sign="!="),),
        must=(
            Holds(key="metaq.gregor", sign="==", value=False),
            Holds(key="metaq.slave_id", sign="<=", value=-1),
        ),
        says="metaq.samsa_slave: a slave is no master: leave metaq.gregor and slave_id out",
    ),
    Relation(
        when=(
            Holds(key="acl.enabled", sign="==", value=True),
            Holds(key="admin.enabled", sign="==", value=True),
        ),
        must=(Holds(key="admin.token_file", sign="!="),),
        says="acl.enabled: needs an administrator's token: set admin.token_file",
    ),
    Relation(
        when=(
            Holds(key="security.allow_open", sign="==", value=False),
            Holds(key="acl.enabled", sign="==", value=False),
        ),
        must=(Holds(key="broker.bind", sign="is", value="loopback"),),
        says="security.allow_open: false, and all that reach {broker.bind} may send, read and administer: set acl.enabled = true, bind loopback (broker.bind = 127.0.0.1), or set security.allow_open = true",
    ),
    Relation(
        when=(
            Holds(key="security.allow_open", sign="==", value=False),
            Holds(key="acl.audit", sign="==", value=True),
        ),
        must=(Holds(key="broker.bind", sign="is", value="loopback"),),
        says="security.allow_open: false, and all that reach {broker.bind} may send, read and administer: set acl.audit = false, bind loopback (broker.bind = 127.0.0.1), or set security.allow_open = true",
    ),
    Relation(
        when=(Holds(key="token_review.url", sign="!="),),
        must=(
            Holds(key="token_review.token_file", sign="!="),
            Holds(key="token_review.audience", sign="!="),
        ),
        says="token_review.url: needs token_review.token_file and an audience",
    ),
)
