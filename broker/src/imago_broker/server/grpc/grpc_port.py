"""What the connections of the gRPC port share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_wire.grpc.limits import Http2Limits

if TYPE_CHECKING:
    from imago_broker.core.budget import InputBudget, OutputBudget
    from imago_broker.processors.grpc.service import GrpcService
    from imago_broker.server.grpc.grpc_relay import GrpcRelays


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcLimits:
    """What one connection may cost. Bytes and milliseconds."""

    http2: Http2Limits = field(default_factory=Http2Limits)
    output_bytes_pause: int = 1 << 20
    output_bytes_max: int = 32 << 20
    idle_ms: int = 120_000
    """Without a call; a telemetry stream is one."""
    input_stall_ms: int = 30_000
    output_stall_ms: int = 30_000


class GrpcPort:
    """One port."""

    def __init__(
        self,
        service: GrpcService,
        *,
        limits: GrpcLimits,
        budget: OutputBudget,
        input_budget: InputBudget,
        relays: GrpcRelays | None = None,
    ) -> None:
        """`relays`: what passes connections on to the master; None: there is no other."""
        self.service, self.limits = service, limits
        self.budget, self.input_budget = budget, input_budget
        self.relays = relays
