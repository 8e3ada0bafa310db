#!/usr/bin/env bash
# The wheel under another Python than this machine's: built, installed and tried in a Debian of its own (root).
#   tools/wheel_on_debian.sh trixie python3.13      tools/wheel_on_debian.sh sid python3.14
set -euo pipefail
suite=${1:?which Debian: trixie, sid}
python=${2:?which Python of it: python3.13, python3.14}
cd "$(dirname "$0")/.."
command -v debootstrap >/dev/null || { echo "debootstrap is missing: apt-get install debootstrap" >&2; exit 2; }
root=${DEBIAN_ROOT:-$(mktemp -d)/$suite} # may be one that is there already

if [ ! -x "$root/usr/bin/$python" ]; then
  echo "unpacking Debian $suite with $python in $root"
  debootstrap --variant=minbase --include="gcc,libc6-dev,ca-certificates,$python-dev,$python-venv" \
    "$suite" "$root" > "$root.log" || { tail "$root.log"; exit 1; }
fi
# As this machine reaches the package index.
cp /etc/resolv.conf "$root/etc/"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
for file in /etc/pip.conf ~/.config/pip/pip.conf; do
  if [ -e "$file" ]; then cp "$file" "$root/etc/pip.conf"; fi
done
rm -rf "$root/imago" && mkdir -p "$root/imago"
git archive HEAD | tar -x -C "$root/imago"

mount -t proc proc "$root/proc"
trap 'umount "$root/proc"' EXIT
chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/bin:/bin LANG=C.UTF-8 IMAGO_REQUIRE_COMPILED=1 PYTHON="$python" PORT="${PORT:-21000}" \
  bash -euo pipefail << 'END'
cd /imago
"$PYTHON" -m venv .venv
.venv/bin/pip wheel -q --no-deps --wheel-dir dist .
"$PYTHON" -m venv /imago/used && cd /
/imago/used/bin/pip install -q --only-binary :all: /imago/dist/*.whl
export PATH=/imago/used/bin:$PATH PYTHONWARNINGS=default::DeprecationWarning
imago --version
trap 'imago down --data /imago/data > /dev/null' EXIT
imago up --detach --json --zookeeper none --port-base "$PORT" --data /imago/data > /imago/up.json
IMAGO_BOOTSTRAP=$("$PYTHON" -c 'import json; print(json.load(open("/imago/up.json"))["namesrv"])')
export IMAGO_BOOTSTRAP
seq 1000 | imago produce numbers --create
imago consume numbers --count 1000 | sort -n | cmp - <(seq 1000)
seq 10 | imago produce numbers --transaction
imago group list && imago topic describe numbers
echo "$PYTHON: the wheel works"
END
