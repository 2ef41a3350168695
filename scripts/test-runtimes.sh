#!/bin/sh
# npm run test:runtimes: the engines' contract over runtimes that not every
# machine has: gVisor. Everything after -- goes to vitest.
#
# Usage: scripts/test-runtimes.sh [--yes] [-- OPTION...]
#   --yes  install what is missing without asking; the same as CI=true
set -eu
cd -- "$(dirname -- "$0")/.."
. scripts/common.sh
while [ $# -gt 0 ]; do
  case $1 in
    --) shift; break ;;
    --yes) agreed=true ;;
    -h | --help) usage; exit 0 ;;
    *) fail "$0: unknown option $1 (try --help)" ;;
  esac
  shift
done
export CI="$agreed"
scripts/docker.sh
scripts/base-image.sh --test
scripts/gvisor.sh
exec node_modules/.bin/vitest run --config test/contract/engine/runtimes.config.ts "$@"
