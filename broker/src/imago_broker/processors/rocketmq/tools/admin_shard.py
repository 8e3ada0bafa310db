"""What RocketMQ's tools and slaves ask of a master and its slaves: how far they have the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_broker.processors.rocketmq.exchange import OK, Exchange, Reply, RequestError
from imago_wire.remoting.bodies.ha import HAClientInfo, HAConnectionInfo, HARuntimeInfo
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.headers.admin import (
    ExchangeHAInfoResponseHeader,
    ResetMasterFlushOffsetHeader,
)
from imago_wire.remoting.headers.namesrv import NotifyMinBrokerIdChangeRequestHeader

if TYPE_CHECKING:
    from imago_broker.model.registry.cluster import BrokerRecord
    from imago_broker.ports import Registry
    from imago_broker.processors.rocketmq.identity import RocketmqIdentity
    from imago_broker.service.serving_rules import ServingRules
    from imago_log.store import MessageStore


@dataclass(slots=True, eq=False, kw_only=True)
class ShardAdmin:
    """The request codes about the members of the shard."""

    store: MessageStore
    registry: Registry
    serving_rules: ServingRules
    identity: RocketmqIdentity

    def status(self, _: Exchange) -> Reply:
        """GET_BROKER_HA_STATUS: of a master its followers, of another member itself."""
        leads = self.serving_rules.leads
        body = (
            self._of_master() if leads else HARuntimeInfo(ha_client_runtime_info=self._of_slave())
        )
        return Reply(body=body.encode())

    def exchange(self, _: Exchange) -> Reply:
        """EXCHANGE_BROKER_HA_INFO: who has the log, and how far; nothing of the peer is taken.

        There is no port for original slaves: members copy the log by a protocol of their own.
        """
        if not self.serving_rules.leads:
            return OK
        identity = self.identity
        header = ExchangeHAInfoResponseHeader(
            master_flush_offset=self.store.durable_end,
            master_address=f"{identity.host}:{identity.port}",
        )
        return Reply(ext=header.to_ext())

    def reset_flush_offset(self, exchange: Exchange) -> Reply:
        """RESET_MASTER_FLUSH_OFFSET: nothing to do, followers know the master's log themselves."""
        ResetMasterFlushOffsetHeader.from_ext(exchange.ext)
        return OK

    def smallest_id_changed(self, exchange: Exchange) -> Reply:
        """NOTIFY_MIN_BROKER_ID_CHANGE: nothing to do, the registry says who leads the shard."""
        NotifyMinBrokerIdChangeRequestHeader.from_ext(exchange.ext)
        return OK

    def timer_check_point(self, _: Exchange) -> Reply:
        """GET_TIMER_CHECK_POINT: an original slave's timer log has no counterpart here."""
        raise RequestError(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")

    def timer_metrics(self, _: Exchange) -> Reply:
        """GET_TIMER_METRICS: the same of its counts by topic."""
        raise RequestError(ResponseCode.SYSTEM_ERROR, "The timer message store is null")

    def _of_master(self) -> HARuntimeInfo:
        end = self.store.log_end
        followers = tuple(self._follower(member, end) for member in self._others())
        return HARuntimeInfo(
            master=True,
            master_commit_log_max_offset=end,
            in_sync_slave_nums=sum(follower.in_sync for follower in followers),
            ha_connection_info=followers,
        )

    def _others(self) -> tuple[BrokerRecord, ...]:
        own = self.registry.registered
        if own is None:
            return ()
        members = self.registry.view().members(own.shard)
        return tuple(member for member in members if member.uuid != own.uuid)

    def _follower(self, member: BrokerRecord, end: int) -> HAConnectionInfo:
        """Return what is sure of a follower: the in-sync ones have all below the high watermark.

        Of the others it is known what they had when they registered.
        """
        state = self.registry.view().states.get(member.shard)
        in_sync = state is not None and any(one.uuid == member.uuid for one in state.in_sync)
        known = min(self.store.high_watermark if in_sync else member.log_end, end)
        return HAConnectionInfo(
            addr=f"{member.host}:{member.replication}",
            slave_ack_offset=known,
            diff=end - known,
            in_sync=in_sync,
            transfer_from_where=known,
        )

    def _of_slave(self) -> HAClientInfo:
        store, leader = self.store, self.serving_rules.role.current.leader
        return HAClientInfo(
            master_addr=None if leader is None else f"{leader.host}:{leader.rocketmq}",
            max_offset=store.log_end,
            master_flush_offset=store.high_watermark,
            activated=leader is not None,
        )
