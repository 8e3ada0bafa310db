"""Bodies about the members of a shard and what they have of the log."""

from dataclasses import field

from imago_wire.remoting.bodies.fields import Body, body


@body
class HAConnectionInfo(Body):
    """A member that copies the log; offsets are bytes of the log."""

    addr: str
    slave_ack_offset: int = 0
    diff: int = 0
    in_sync: bool = False
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0


@body
class HAClientInfo(Body):
    """How a member that copies the log stands to its master."""

    master_addr: str | None = None
    transferred_byte_in_second: int = 0
    max_offset: int = 0
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_flush_offset: int = 0
    activated: bool = False


@body
class HARuntimeInfo(Body):
    """What a member says: the master about those that copy from it, another one about itself."""

    master: bool = False
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: tuple[HAConnectionInfo, ...] = ()
    ha_client_runtime_info: HAClientInfo = field(default_factory=HAClientInfo)
