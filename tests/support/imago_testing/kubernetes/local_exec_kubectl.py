#!/usr/bin/env python3
"""A kubectl that is the real one, but for `exec`: there are no nodes, so commands run here.

`LOCAL_EXEC` names a file of JSON: `kubectl`, the real program, and `brokers`, pod → port of what
answers in its place. A command gets that port where it names the broker's own, and a token beside
that file where it reads the one that brokers have mounted.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

OPTIONS = ("--namespace=", "--context=", "--kubeconfig=")
OWN = "127.0.0.1:8080"
TOKEN = "/etc/imago/token/token"


def main(arguments: list[str]) -> None:
    """Become what was asked for."""
    told = Path(os.environ["LOCAL_EXEC"])
    known = json.loads(told.read_text())
    words = [word for word in arguments if not word.startswith(OPTIONS)]
    if words[0] != "exec":
        os.execv(known["kubectl"], ["kubectl", *arguments])
    program, *rest = words[words.index("--") + 1 :]
    assert program == "python3"
    here = f"127.0.0.1:{known['brokers'][words[1]]}"
    token = told.with_name("token")
    token.write_text("secret\n")
    found = (one.replace(OWN, here).replace(TOKEN, str(token)) for one in rest)
    os.execv(sys.executable, [program, *found])


if __name__ == "__main__":
    main(sys.argv[1:])
