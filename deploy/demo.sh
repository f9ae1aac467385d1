#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gpuloom in one command, without a cluster: installs what is missing, builds, and runs the demo of deploy/demo.py.
#   deploy/demo.sh            on the GPU of this machine, or on two software GPUs when there is none
#   deploy/demo.sh --softgpu  on two software GPUs
# Ends with 0 when every result is right, what had to be refused was refused, and no process is left.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

arguments=()
case "${1:-}" in
  "") [[ -e /proc/driver/nvidia/version ]] || arguments+=(--softgpu) ;;
  --softgpu) arguments+=(--softgpu) ;;
  *) grep '^#   ' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac

deploy/install-deps.sh
mkdir -p build/dev
log=build/dev/demo-build.log
echo "building (log: $log) …"
# `gpuloom` itself is for what the README shows next.
if ! { cmake --preset dev && cmake --build --preset dev --target gpuloom-agent gpuloom-scheduler gpuloom-executor \
         gpuloom_shim gpuloom_softgpu gpuloom fake-kubelet gpuloom_resting_tenant gpuloom_test_programs; } >"$log" 2>&1; then
  tail -40 "$log"
  echo "demo: the build failed, see $log" >&2
  exit 1
fi
exec deploy/demo.py --build build/dev "${arguments[@]}"
