#!/bin/sh
# npm run test:runtimes: the engines' contract over runtimes and daemons that not every machine has. Everything after --
# goes to vitest.
#
# Usage: scripts/test-runtimes.sh [--yes] [--only SUBJECT | --ci] [-- OPTION...]
#   --yes   install what is missing without asking; the same as CI=true
#   --only  gvisor, podman, rootless-docker or rootless-podman
#   --ci    Podman, and gVisor if it is built or an installed Go builds it within
#           eight minutes; reports what it skips
set -eu
cd -- "$(dirname -- "$0")/.."
. scripts/common.sh
all="gvisor podman rootless-docker rootless-podman"
subjects=$all
ci=false
while [ $# -gt 0 ]; do
  case $1 in
    --) shift; break ;;
    --yes) agreed=true ;;
    --only) subjects=${2-}; [ $# -lt 2 ] || shift ;;
    --ci) ci=true subjects="podman gvisor" ;;
    -h | --help) usage; exit 0 ;;
    *) fail "$0: unknown option $1 (try --help)" ;;
  esac
  shift
done
export CI="$agreed"
# The Node that was installed with the packages.
export PATH="$PWD/node_modules/.bin:$PATH"
case $subjects in
  gvisor | podman | rootless-docker | rootless-podman | "podman gvisor" | "$all") ;;
  *) fail "$0: --only takes one of $all." ;;
esac
scripts/docker.sh
scripts/base-image.sh --test
if [ "$ci" = true ]; then
  if ! scripts/gvisor.sh built && ! { command -v go >/dev/null && timeout 480 scripts/gvisor.sh; }; then
    echo "Skipping the contract under gVisor: runsc is not built here. Type: scripts/gvisor.sh --yes"
    subjects=podman
  fi
  for subject in rootless-docker rootless-podman; do
    echo "Skipping the contract over $subject. Type: npm run test:runtimes -- --only $subject"
  done
fi
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
