"""Where things are: what is built once is cached outside the checkout, what runs has a folder."""

from __future__ import annotations

import os
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
"""The folder `e2e/cluster` of the checkout."""
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "imago" / "e2e"
STATE = CACHE / "state"
"""Everything of the running cluster; gone after `down --clean`."""
VOLUMES = STATE / "volumes"
"""The volumes of all claims. Those of a size are mounted by the control plane, and seen by all."""
TARS = CACHE / "images"
"""Image archives; those of a cluster's first start are imported in the order of their names."""
KUBECONFIG = STATE / "kubeconfig"
NETWORK = "rig"
"""The network namespace of the control plane and of node 1; tests run inside it."""
API = "https://10.99.0.1:6443"
SERVICE_RANGE, POD_RANGE = "10.96.0.0/16", "10.244.0.0/16"
DNS_ADDRESS = "10.96.0.10"


class RigError(RuntimeError):
    """The cluster cannot be had here; the text says why and what to do."""
