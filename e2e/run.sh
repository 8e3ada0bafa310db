#!/usr/bin/env bash
# Run the stories: run.sh [ARGUMENTS OF pytest]. With E2E_KUBECONFIG on that cluster, whose nodes
# must have the images; else on a cluster of our own, which is started and provided with images:
# all, or those that E2E_IMAGES names.
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD/e2e/cluster:$PWD/e2e/support:$PWD/tests/support:$PWD/broker/src:$PWD/operator/src"
stories=(.venv/bin/pytest -p no:cacheprovider -s e2e "$@")
if [ -n "${E2E_KUBECONFIG:-}" ]; then
  KUBECONFIG="$E2E_KUBECONFIG" exec "${stories[@]}"
fi
[ "$(id -u)" = 0 ] || { echo "e2e: root is needed for a Kubernetes of our own; or name another: E2E_KUBECONFIG=…"; exit 2; }
needed="containerd runc containernetworking-plugins iptables nftables buildah skopeo debootstrap xfsprogs"
missing=$(for package in $needed; do dpkg -s "$package" >/dev/null 2>&1 || echo "$package"; done)
if [ -n "$missing" ]; then
  echo "e2e: installing" $missing
  apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing >/dev/null \
    || { echo "e2e: missing here: apt-get install" $missing; exit 2; }
fi
bash tests/support/system.sh
# Where images are left out, so is Prometheus' own parser, which takes a minute to build.
layer=apiserver programs=--promcheck
[ -z "${E2E_IMAGES:-}" ] || layer="apiserver and not promcheck" programs=
.venv/bin/python -m rig build $programs
# Operator and chart are tried against an API server without nodes beside all else: that needs no
# image, and is waiting most of the time.
told=$(mktemp)
nice -n 5 .venv/bin/pytest -q -p no:cacheprovider -m "$layer" --timeout 500 \
  tests/k8s_operator/apiserver tests/chart >"$told" 2>&1 &
tried=$!
trap 'failed=$?; wait "$tried" || failed=$?; cat "$told"; rm "$told"; exit "$failed"' EXIT
# Images before the cluster: new nodes share one copy of them.
.venv/bin/python e2e/images.py ${E2E_IMAGES:-}
.venv/bin/python -m rig up
.venv/bin/python -m rig run "${stories[@]}"
