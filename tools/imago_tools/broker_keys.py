"""The operator's table of broker settings, made from the broker's own: `python -m` prints it."""

from __future__ import annotations

from imago_broker.config.loading import describe

HEAD = '''\
"""Settings of brokers, as far as the operator must know them. Made by `make docs`."""

from __future__ import annotations

from typing import Final, NamedTuple

Scalar = bool | int | float | str | tuple[str, ...]


class BrokerKey(NamedTuple):
    """One setting: what it is unless set, and whether it may change while a broker runs."""

    default: Scalar
    dynamic: bool


KEYS: Final[dict[str, BrokerKey]] = {
'''


def module() -> str:
    """Return the text of `imago_operator/brokerkeys.py`."""
    rows = []
    for key in describe():
        default = repr(key.default).replace("'", '"')
        rows.append(f'    "{key.key}": BrokerKey({default}, {key.dynamic}),\n')
    return HEAD + "".join(rows) + "}\n"


if __name__ == "__main__":
    print(module(), end="")
