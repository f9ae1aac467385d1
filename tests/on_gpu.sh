#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a command where there is an NVIDIA driver; elsewhere says so and exits with 77, which ctest counts as skipped.
if [ ! -e /proc/driver/nvidia/version ]; then
  echo "skipped: this machine has no NVIDIA driver"
  exit 77
fi
exec "$@"
