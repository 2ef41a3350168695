#!/bin/sh
# Makes sure that bubblewrap, which needs no daemon, is installed.
#
# Usage: scripts/bubblewrap.sh [--yes]
#   --yes  install it (root on Debian or Ubuntu) without asking; the same as
#          CI=true in the environment
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"
take_only_yes "$@"

command -v bwrap >/dev/null || install_packages "Bubblewrap is not installed" bubblewrap
echo "$(bwrap --version) is installed."
