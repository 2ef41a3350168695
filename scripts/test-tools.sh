#!/bin/sh
# Makes sure that the programs are there that tests run on this machine: tmux,
# as the terminal that a person sits at, and bubblewrap, as an engine.
#
# Usage: scripts/test-tools.sh [--yes]
#   --yes  install what is missing (root on Debian or Ubuntu) without asking;
#          the same as CI=true in the environment
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"
take_only_yes "$@"

command -v tmux >/dev/null || install_packages "tmux is not installed, and tests drive terminals with it" tmux
command -v bwrap >/dev/null || install_packages "bubblewrap is not installed, and tests run sandboxes with it" bubblewrap
echo "Programs are there: $(tmux -V), $(bwrap --version)."
