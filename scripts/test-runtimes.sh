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
    --only) shift; subjects=${1-} ;;
    -h | --help) usage; exit 0 ;;
    *) fail "$0: unknown option $1 (try --help)" ;;
  esac
  shift
done
export CI="$agreed"
scripts/docker.sh
scripts/base-image.sh --test
code=0
for subject in $subjects; do
  config=test/contract/engine/runtimes.config.ts
  case $subject in
    gvisor) scripts/gvisor.sh && node_modules/.bin/vitest run --config "$config" gvisor "$@" || code=1 ;;
    podman) scripts/podman.sh -- node_modules/.bin/vitest run --config "$config" podman "$@" || code=1 ;;
    *) fail "$0: --only takes one of gvisor, podman." ;;
  esac
done
exit "$code"
