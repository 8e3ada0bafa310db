"""Print the software bill of materials of this environment: CycloneDX 1.5, as JSON.

Python distributions as installed here, and the Debian packages they need.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.metadata import distributions
from typing import Any


def _python() -> list[dict[str, Any]]:
    found = {each.metadata["Name"].lower(): each for each in distributions()}
    components = []
    for name, distribution in sorted(found.items()):
        metadata = distribution.metadata
        component = {
            "type": "library",
            "name": name,
            "version": distribution.version,
            "purl": f"pkg:pypi/{name.replace('_', '-')}@{distribution.version}",
        }
        licence = metadata.get("License-Expression") or metadata.get("License")
        if licence and "\n" not in licence:
            component["licenses"] = [{"license": {"name": licence}}]
        components.append(component)
    return components


def _debian() -> list[dict[str, Any]]:
    if shutil.which("dpkg-query") is None:
        return []
    shown = ["dpkg-query", "-W", "-f", "${Package}\t${Version}\t${Architecture}\n"]
    told = subprocess.run(shown, capture_output=True, text=True, check=True)  # noqa: S603
    return [
        {
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:deb/debian/{name}@{version}?arch={architecture}",
        }
        for name, version, architecture in (line.split("\t") for line in told.stdout.splitlines())
    ]


if __name__ == "__main__":
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "components": _python() + _debian(),
    }
    print(json.dumps(bill, indent=1))
