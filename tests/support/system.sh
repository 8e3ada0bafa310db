#!/usr/bin/env bash
# What `make test` needs beyond Python: a JDK >= 17, Maven, a C compiler, chromium, and node.
# Root on Debian: installs what is missing. Elsewhere: says what to install, and fails.
set -euo pipefail

java_ok() {
  command -v javac >/dev/null && [ "$(javac -version 2>&1 | sed -E 's/javac ([0-9]+).*/\1/')" -ge 17 ]
}

missing=()
java_ok || missing+=(openjdk-17-jdk-headless)
command -v mvn >/dev/null || missing+=(maven)
command -v gcc >/dev/null || missing+=(gcc libc6-dev)
command -v chromium >/dev/null || missing+=(chromium)
command -v node >/dev/null || missing+=(nodejs)
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing: ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  exit 0
fi
echo "missing for the tests: ${missing[*]} (Debian's names). Install a JDK 17 or newer, Maven, gcc, chromium and node, then run again." >&2
exit 2
