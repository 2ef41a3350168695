#!/bin/sh
# npm run test:runtimes: the engines' contract over runtimes and daemons that
# not every machine has: gVisor and Podman. Everything after -- goes to vitest.
#
# Usage: scripts/test-runtimes.sh [--yes] [--only gvisor|podman] [-- OPTION...]
#   --yes   install what is missing without asking; the same as CI=true
#   --only  one of them
set -eu
cd -- "$(dirname -- "$0")/.."
. scripts/common.sh
subjects="gvisor podman"
while [ $# -gt 0 ]; do
  case $1 in
    --) shift; break ;;
    --yes) agreed=true ;;
    --only) subjects=${2-}; [ $# -lt 2 ] || shift ;;
    -h | --help) usage; exit 0 ;;
    *) fail "$0: unknown option $1 (try --help)" ;;
  esac
  shift
done
export CI="$agreed"
# The Node that was installed with the packages.
export PATH="$PWD/node_modules/.bin:$PATH"
case $subjects in
  gvisor | podman | "gvisor podman") ;;
  *) fail "$0: --only takes gvisor or podman." ;;
esac
scripts/docker.sh
scripts/base-image.sh --test
code=0
for subject in $subjects; do
  config=test/contract/engine/runtimes.config.ts
  case $subject in
    gvisor) scripts/gvisor.sh && vitest run --config "$config" gvisor "$@" || code=1 ;;
    podman) scripts/podman.sh -- vitest run --config "$config" podman "$@" || code=1 ;;
  esac
done
exit "$code"
