#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the preset arm64 compiles and links with: Debian's arm64 packages of the libraries that gpuloom needs, and of those that
# they need, unpacked below /usr/local/aarch64-linux-gnu. Nothing is installed, and no package of this machine is touched:
# libyaml-cpp-dev of two architectures cannot be installed together, and others only in the same version.
#   deploy/arm64_libraries.sh            unpacks them, unless they are there; as root
#   deploy/arm64_libraries.sh --check    says whether they are there
set -euo pipefail

root=/usr/local/aarch64-linux-gnu
packages=(
  libc6-dev
  libgrpc++-dev libprotobuf-dev
  libboost-dev libyaml-cpp-dev libspdlog-dev libcli11-dev nlohmann-json3-dev libzstd-dev liblz4-dev
  libcurl4-openssl-dev
  prometheus-cpp-dev
)
# Written last, so that it stands for all of it.
list=$root/packages.txt

if [[ -e $list && $(<"$list") == "${packages[*]}" ]]; then exit 0; fi
if [[ ${1:-} == --check ]]; then
  echo "arm64_libraries: Debian's arm64 libraries are not below $root: deploy/install-deps.sh --arm64" >&2
  exit 1
fi

# An apt of its own, whose machine is an arm64 one without any package.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists,archives}/partial
touch "$work/status"
cat >"$work/apt.conf" <<END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "root";
Dir::State "$work";
Dir::State::status "$work/status";
Dir::Cache "$work";
END
export APT_CONFIG=$work/apt.conf DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq -y --download-only --no-install-recommends "${packages[@]}" >/dev/null

rm -rf "$root"
mkdir -p "$root"
for package in "$work"/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
# Links that begin at the root mean this one.
find "$root" -type l -lname '/*' -print0 | while IFS= read -r -d '' link; do
  ln -sfr "$root$(readlink "$link")" "$link"
done
# gRPC's CMake files name its compilers' plugins, which run on this machine.
mkdir -p "$root/usr/bin"
ln -s /usr/bin/grpc_*_plugin "$root/usr/bin/"
echo "${packages[*]}" >"$list"
