"""MetaQ's error texts, byte for byte: clients and monitoring of its users match them."""

from __future__ import annotations

BUSY = "线程池繁忙"
"""Body of the 503 that means: later."""
TIER_AWAY = "These old messages are in the bucket, which does not answer now: try again later"
CHECKSUM_FAILURE = "Checksum failure,message may be corrupted when transfering on networking."
"""The original's spelling."""
NO_HANDLER = "未注册请求处理器\N{FULLWIDTH COMMA}请求处理器类为com.taobao.metamorphosis.network."
"""Before the class name of a command that this broker does not serve; code 503."""


def put_failed(url: str, topic: str, partition: int, detail: str = "") -> str:
    """Return the text of a put (or, in the original too, a get) that failed."""
    text = f"Put message to [broker '{url}'] [partition '{topic}-{partition}'] failed."
    return f"{text}Detail:{detail}" if detail else text


def slave_put_failed(url: str, topic: str, partition: int) -> str:
    """Return the text of a put that this broker has and its slaves have not confirmed.

    The original names its one slave; here any of several may be late, so it names the master.
    """
    return f"Put message to [slave of '{url}'] [partition '{topic}-{partition}'] failed"


SLAVE_AWAY = "Slave is disconnected "
"""A samsa master's, with the original's space at its end."""


def samsa_slave_failed(url: str, topic: str, partition: int) -> str:
    """Return the text of a put that this master has and its gregor slave has not."""
    return f"Put message to [slave '{url}'] [partition '{topic}-{partition}'] failed"


def put_closed(broker_id: int, partition: int) -> str:
    """Return the detail of a put to a closed partition."""
    return f"partition[{broker_id}-{partition}] has been closed"


def get_closed(broker_id: int, partition: int) -> str:
    """Return the text of a get from a closed partition."""
    return f"Partition[{broker_id}-{partition}] has been closed"


def topic_not_accepted(topic: str) -> str:
    """Return the detail of a put to a topic that may not be used."""
    return f"The server do not accept topic {topic}"


def wrong_partition(partition: int) -> str:
    """Return the detail of a put to a partition that is not there."""
    return f"wrong partition {partition}"


def no_store(topic: str, partition: int) -> str:
    """Return the text of a read where nothing was ever written."""
    return f"The topic `{topic}` in partition `{partition}` is not exists"


def nothing_at(offset: int) -> str:
    """Return the text of a get that found nothing new."""
    return f"Could not find message at position {offset}"


def invalid_max_size(size: int) -> str:
    """Return the text of a get that asked for no bytes."""
    return f"Bad request,invalid max size:{size}"


def transaction_unknown(key: str) -> str:
    """Return the text for a transaction that was never begun, or is over."""
    return f"{_kind(key)} transaction '{key}' has not been started."


def transaction_decided(key: str, how: str) -> str:
    """Return the text for a transaction about which a person has decided."""
    return f"XA transaction '{key}' has been heuristically {how}."


def no_xid(key: str) -> str:
    """Return the text of a request that is for XA transactions alone."""
    return f"{key} is not a valid xid"


def xa_error(code: int, text: str) -> str:
    """Return a text from which clients make an exception with a code."""
    return f"XAException:code={code},msg={text}"


LOCAL_NOT_PREPARED = "Prepare not implemented on Local Transactions."
PREPARED_ALREADY = "Cannot call prepare now."
NOT_PREPARED = "Cannot do 2 phase commit if the transaction has not been prepared."
COMMIT_FAILED = "STORE COMMIT FAILED: Transaction rolled back."
PUT_PREPARED = "Cannot put a message into a transaction that has been prepared."


def partition_not_given(partition: int) -> str:
    """Return the text of a put in a transaction that leaves the partition to the broker."""
    return f"Invalid partition for transaction command:{partition}"


def _kind(key: str) -> str:
    return "XA" if key.startswith("XID:") else "Local"
