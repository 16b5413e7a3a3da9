#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Install the system packages that are missing, of those that a program prints. Root is used for this only, and only if
# needed.
#
#   tools/install-packages.sh PROGRAM.py [ARGUMENT]...
set -eu
cd "$(dirname "$0")/.."
wanted=$(python3 "$@")
missing=""
for package in $wanted; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ]; then as_root=""; elif command -v sudo >/dev/null; then as_root="sudo"; else
    echo "These packages are missing, and root is needed to install them:$missing" >&2
    echo "Ask for: apt-get install -y --no-install-recommends$missing" >&2
    exit 3
fi
echo "installing:$missing"
$as_root apt-get -o DPkg::Lock::Timeout=600 update -qq
# shellcheck disable=SC2086  # the list is split on purpose
# One that runs already is waited for.
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -o DPkg::Lock::Timeout=600 -y -qq --no-install-recommends $missing >/dev/null
