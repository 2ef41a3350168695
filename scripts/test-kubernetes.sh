#!/bin/sh
# npm run test:kubernetes: the tests that need a Kubernetes cluster, on one node that scripts/kubernetes.sh brings up
# and takes down. A cluster that is already up stays up. Everything after -- goes to vitest.
#
# Usage: scripts/test-kubernetes.sh [--yes] [--contract] [-- OPTION...]
#   --yes       install what is missing without asking; the same as CI=true
#   --contract  only the engine's contract, which takes three minutes
set -eu
cd -- "$(dirname -- "$0")/.."
. scripts/common.sh
contract=false
while [ $# -gt 0 ]; do
  case $1 in
    --) shift; break ;;
    --yes) agreed=true ;;
    --contract) contract=true ;;
    -h | --help) usage; exit 0 ;;
    *) fail "$0: unknown option $1 (try --help)" ;;
  esac
  shift
done
export CI="$agreed"
PATH=$PWD/node_modules/.bin:$PATH
if ! scripts/kubernetes.sh env >/dev/null 2>&1; then
  trap 'scripts/kubernetes.sh down' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
fi
scripts/kubernetes.sh up
variables=$(scripts/kubernetes.sh env)
eval "$variables"
if $contract; then
  vitest run --config test/kubernetes.config.ts test/contract "$@"
  exit
fi
scripts/helm.sh >/dev/null
scripts/nginx.sh >/dev/null
scripts/service-image.sh
scripts/kubernetes.sh load berth/service:latest berth/bash:latest
if [ $# -gt 0 ]; then
  vitest run --config test/kubernetes.config.ts "$@"
  exit
fi
code=0
vitest run --config test/kubernetes.config.ts || code=1
# The suites that every engine must pass.
BERTH_TEST_ENGINE=kubernetes vitest run --config test/kubernetes-suites.config.ts || code=1
exit "$code"
