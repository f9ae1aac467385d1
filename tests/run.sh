#!/usr/bin/env bash
# Installs what is missing, builds, and runs all tests.
set -euo pipefail
cd "$(dirname "$0")/.."
deploy/install-deps.sh
cmake --preset dev >/dev/null
cmake --build --preset dev
ctest --test-dir build/dev --output-on-failure -j2
