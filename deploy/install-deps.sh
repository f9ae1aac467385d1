#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs, from Debian 12's packages, everything that building, testing and the demo need, apart from the CUDA
# Toolkit. Installs nothing when nothing is missing, so an ordinary user can run it once the packages are there.
#   deploy/install-deps.sh           all but the next
#   deploy/install-deps.sh --arm64   and what the preset arm64 needs: a cross compiler, qemu-user, and arm64 libraries
set -euo pipefail

packages=(
  git ca-certificates ccache cmake ninja-build g++ clang clang-format clang-tidy libclang-rt-14-dev binutils procps
  python3 python3-jsonschema python3-yaml
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc
  libboost-dev libyaml-cpp-dev libspdlog-dev libcli11-dev nlohmann-json3-dev libzstd-dev liblz4-dev
  libcurl4-openssl-dev openssl  # events for the API server, and certificates of the one that tests have
  libgtest-dev libgmock-dev
  dpkg-dev lintian systemd  # what makes and checks packages and units; 0.1 GB
  groff-base shellcheck fish zsh  # what checks manual pages, scripts and completion
  prometheus-cpp-dev
  prometheus  # scrapes the agent in a test, and promtool
  chromium  # shows the agent's page in a test; 0.4 GB
  musl-tools libc6-i386  # programs of other C libraries, which tests run
  golang-go golang-github-masterminds-sprig-dev golang-k8s-sigs-yaml-dev  # what helm renders with: the chart's test; 0.5 GB
)

arm64=0
case "${1:-}" in
  "") ;;
  --arm64) arm64=1 packages+=(g++-aarch64-linux-gnu qemu-user) ;;
  *) grep '^#   ' "$0" >&2; exit 2 ;;
esac

missing=()
for p in "${packages[@]}"; do
  [[ $(dpkg-query -W -f='${db:Status-Abbrev}' "$p" 2>/dev/null) == ii* ]] || missing+=("$p")
done
if ((${#missing[@]})); then
  if ((EUID != 0)); then
    echo "install-deps: missing packages: ${missing[*]}" >&2
    echo "install-deps: run this script once as root: sudo $0 $*" >&2
    exit 1
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  # Tests start a Prometheus of their own; the package's must not run as a service of the machine, now or after a reboot.
  policy=/usr/sbin/policy-rc.d
  if [[ ! -e $policy ]]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
  fi
  apt-get install -y -qq --no-install-recommends "${missing[@]}"
  if [[ " ${missing[*]} " == *" prometheus "* ]] && command -v systemctl >/dev/null; then
    systemctl --quiet disable prometheus
  fi
fi

if ((arm64)) && ! "$(dirname "$0")/arm64_libraries.sh" --check 2>/dev/null; then
  if ((EUID != 0)); then
    echo "install-deps: arm64 libraries are missing: run this script once as root: sudo $0 $*" >&2
    exit 1
  fi
  "$(dirname "$0")/arm64_libraries.sh"
fi

cuda=${CUDAToolkit_ROOT:-/usr/local/cuda}
if [[ ! -x $cuda/bin/nvcc ]]; then
  echo "install-deps: no CUDA Toolkit at $cuda: install CUDA 13.0, or set CUDAToolkit_ROOT to where it lies" >&2
  exit 1
fi
