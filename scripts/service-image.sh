#!/bin/sh
# Makes sure that the image berth/service exists: the service itself, from this checkout, as deploy/helm runs it. The
# package is installed in it.
#
# Usage: scripts/service-image.sh [--yes]
#   --yes  asks nothing; the same as CI=true in the environment
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"
take_only_yes "$@"

IMAGE=berth/service:latest

export CI="$agreed"
"$root/scripts/docker.sh" >&2
# Provides the Debian image on which it is built.
"$root/scripts/base-image.sh" >&2
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
say "Packing berth ..."
(cd "$root" && npm pack --silent --pack-destination "$work" >/dev/null) || fail "npm could not pack berth. See above."
tarball=$(echo "$work"/berth-*.tgz)
source=$({ tar -xOzf "$tarball" | cat "$root/images/service/Dockerfile" -; } | sha256sum | cut -c1-16)
if image_is_from "$IMAGE" "$source"; then
  echo "Image is ready: $IMAGE."
  exit 0
fi
say "Building $IMAGE ..."
mkdir "$work/image"
cp "$root/images/service/Dockerfile" "$work/image/"
npm install --global --prefix "$work/image/prefix" --prefer-offline --no-audit --no-fund --silent "$tarball" ||
  fail "npm could not install berth's package. See above."
# npm creates files with the permissions that the user's umask leaves.
chmod -R go+rX "$work/image/prefix"
log=$work/log
docker build --label "berth.source=$source" --tag "$IMAGE" "$work/image" >"$log" 2>&1 ||
  { tail -n 30 "$log" >&2; fail "Building $IMAGE failed."; }
echo "Image is ready: $IMAGE."
