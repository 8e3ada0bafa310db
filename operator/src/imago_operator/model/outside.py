"""What clients outside of the Kubernetes cluster are told: hosts of brokers, by listener."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from imago_operator.model import names

if TYPE_CHECKING:
    from imago_operator.model.desired import Desired
    from imago_operator.model.state import Observed
    from imago_operator.spec.cluster.listeners import ExternalListener


def balancer(observed: Observed, service: str) -> str:
    """Return the address that a Service's load balancer has got; empty: none."""
    found = observed.child("Service", service)
    status = found.live.get("status") or {} if found is not None else {}
    for led in (status.get("loadBalancer") or {}).get("ingress") or ():
        if address := led.get("hostname") or led.get("ip"):
            return str(address)
    return ""


def told_host(
    desired: Desired, listener: ExternalListener, shard: int, ordinal: int, node: str = ""
) -> str:
    """Return the host that a broker tells its clients; empty: its node's, whichever that is."""
    template = listener.advertised_host_template or ""
    if "{node}" in template and not node:
        return ""
    return (
        template.replace("{node}", node)
        .replace("{shard}", str(shard))
        .replace("{ordinal}", str(ordinal))
        .replace("{pod}", names.pod(desired.name, shard, ordinal))
        .replace("{namespace}", desired.namespace)
    )


def general_name(host: str) -> str:
    """Return a host as a certificate names it: clients look for an address among addresses."""
    try:
        return f"IP:{ip_address(host)}"
    except ValueError:
        return f"DNS:{host}"
