"""Headers between brokers, their controller and their container (5.x)."""

from __future__ import annotations

from imago_wire.remoting.fields import Header, Int, Long, header


@header
class AlterSyncStateSetRequestHeader(Header):
    broker_name: str | None = None
    master_broker_id: Long | None = None
    master_epoch: Int | None = None
    invoke_time: Long | None = None


@header
class AlterSyncStateSetResponseHeader(Header):
    new_sync_state_set_epoch: Int | None = None


@header
class ApplyBrokerIdRequestHeader(Header):
    cluster_name: str | None = None
    broker_name: str | None = None
    applied_broker_id: Long | None = None
    register_check_code: str | None = None


@header
class ApplyBrokerIdResponseHeader(Header):
    cluster_name: str | None = None
    broker_name: str | None = None


@header
class CleanControllerBrokerDataRequestHeader(Header):
    cluster_name: str | None = None
    broker_name: str
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: Long | None = None


@header
class ElectMasterRequestHeader(Header):
    cluster_name: str = ""
    broker_name: str = ""
    broker_id: Long = -1
    designate_elect: bool = False
    invoke_time: Long | None = None


@header
class ElectMasterResponseHeader(Header):
    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None


@header
class ExchangeHAInfoRequestHeader(Header):
    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


@header
class ExchangeHAInfoResponseHeader(Header):
    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


@header
class GetMetaDataResponseHeader(Header):
    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool | None = None
    peers: str | None = None


@header
class GetNextBrokerIdRequestHeader(Header):
    cluster_name: str | None = None
    broker_name: str | None = None


@header
class GetNextBrokerIdResponseHeader(Header):
    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: Long | None = None


@header
class GetReplicaInfoRequestHeader(Header):
    broker_name: str | None = None


@header
class GetReplicaInfoResponseHeader(Header):
    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None


@header
class NotifyBrokerRoleChangedRequestHeader(Header):
    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None
    master_broker_id: Long | None = None


@header
class RegisterBrokerToControllerRequestHeader(Header):
    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: Long | None = None
    broker_address: str | None = None
    invoke_time: Long | None = None


@header
class RegisterBrokerToControllerResponseHeader(Header):
    cluster_name: str | None = None
    broker_name: str | None = None
    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None


@header
class AddBrokerRequestHeader(Header):
    config_path: str | None = None


@header
class RemoveBrokerRequestHeader(Header):
    broker_name: str
    broker_cluster_name: str
    broker_id: Long


@header
class ResetMasterFlushOffsetHeader(Header):
    master_flush_offset: Long
