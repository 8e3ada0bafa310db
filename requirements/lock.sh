#!/usr/bin/env bash
# Writes the hashed requirement files from pyproject.toml. They hold no download address.
set -euo pipefail
cd "$(dirname "$0")/.."
compile() {
  .venv/bin/uv pip compile -q pyproject.toml --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --no-header "$@"
}
compile --extra spark --extra operator --group build --group dev -o requirements/dev.txt
compile --extra spark --group build -c requirements/dev.txt -o requirements/run.txt
compile -c requirements/dev.txt -o requirements/broker.txt
