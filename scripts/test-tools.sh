#!/bin/sh
# Makes sure that the programs that tests run on this machine are installed: tmux, as the user's terminal; zsh and fish,
# as shells that complete command lines; bubblewrap, as an engine; and btrfs-progs, for a disk in a file.
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
command -v zsh >/dev/null || install_packages "zsh is not installed, and tests complete lines in it" zsh
command -v fish >/dev/null || install_packages "fish is not installed, and tests complete lines in it" fish
command -v bwrap >/dev/null || install_packages "bubblewrap is not installed, and tests run sandboxes with it" bubblewrap
command -v mkfs.btrfs >/dev/null || [ -x /sbin/mkfs.btrfs ] ||
  install_packages "btrfs-progs is not installed, and tests create a disk with it" btrfs-progs
echo "Programs are installed: $(tmux -V), $(bwrap --version)."
