"""What a connection of a RocketMQ port may cost, by the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.server.grpc.grpc_port import GrpcLimits
from imago_broker.server.remoting.remoting_limits import RemotingLimits
from imago_wire.grpc.limits import Http2Limits

if TYPE_CHECKING:
    from imago_broker.config import BrokerConfig


def remoting_limits(config: BrokerConfig) -> RemotingLimits:
    """Return what one connection may cost."""
    return RemotingLimits(
        frame_bytes_max=config.rocketmq.frame_bytes_max,
        output_bytes_max=config.limits.output_bytes_max,
        idle_ms=config.rocketmq.idle_seconds * 1000,
        output_bytes_pause=config.limits.output_bytes_pause,
        input_stall_ms=config.limits.input_stall_seconds * 1000,
        output_stall_ms=config.limits.output_stall_seconds * 1000,
    )


def grpc_limits(config: BrokerConfig) -> GrpcLimits:
    """Return what one connection of an SDK may cost."""
    frame = config.rocketmq.frame_bytes_max
    return GrpcLimits(
        http2=Http2Limits(message_bytes_max=frame, buffered_bytes_max=2 * frame),
        output_bytes_max=config.limits.output_bytes_max,
        output_bytes_pause=config.limits.output_bytes_pause,
        idle_ms=config.rocketmq.idle_seconds * 1000,
        input_stall_ms=config.limits.input_stall_seconds * 1000,
        output_stall_ms=config.limits.output_stall_seconds * 1000,
    )
