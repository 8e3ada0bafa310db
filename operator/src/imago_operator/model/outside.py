"""What clients outside of the Kubernetes cluster are told: hosts of brokers, by listener."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from imago_operator.model import names

if TYPE_CHECKING:
    from imago_operator.model.desired import Desired
    from imago_operator.spec.cluster.cluster import ExternalListener


def told_host(desired: Desired, listener: ExternalListener, shard: int, ordinal: int) -> str:
    """Return the host that a broker tells its clients; empty: its node's, whichever that is."""
    return (
        (listener.advertised_host_template or "")
        .replace("{shard}", str(shard))
        .replace("{ordinal}", str(ordinal))
        .replace("{pod}", names.pod(desired.name, shard, ordinal))
        .replace("{namespace}", desired.namespace)
    )


def openssl_name(host: str) -> str:
    """Return a host as a certificate names it: clients look for an address among addresses."""
    try:
        return f"IP:{ip_address(host)}"
    except ValueError:
        return f"DNS:{host}"
