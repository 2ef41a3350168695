#!/bin/sh
# npm run test:runtimes: the engines' contract over runtimes and daemons that
# not every machine has. Everything after -- goes to vitest.
#
# Usage: scripts/test-runtimes.sh [--yes] [--only SUBJECT] [-- OPTION...]
#   --yes   install what is missing without asking; the same as CI=true
#   --only  gvisor, podman, rootless-docker or rootless-podman
set -eu
cd -- "$(dirname -- "$0")/.."
. scripts/common.sh
all="gvisor podman rootless-docker rootless-podman"
subjects=$all
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
  gvisor | podman | rootless-docker | rootless-podman | "$all") ;;
  *) fail "$0: --only takes one of $all." ;;
esac
scripts/docker.sh
scripts/base-image.sh --test
code=0
for subject in $subjects; do
  config=test/contract/engine/runtimes.config.ts
  case $subject in
    gvisor) scripts/gvisor.sh && vitest run --config "$config" engine/gvisor "$@" || code=1 ;;
    podman) scripts/podman.sh -- vitest run --config "$config" engine/podman "$@" || code=1 ;;
    rootless-*)
      scripts/rootless.sh "${subject#rootless-}" -- vitest run --configLoader runner \
        --config test/contract/engine/rootless.config.ts "engine/$subject" "$@" || code=1 ;;
  esac
done
exit "$code"
