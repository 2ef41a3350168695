# Sourced by the scripts that set up a machine. Handles their options:
#   --yes   do it without asking; the same as CI=true in the environment

agreed=${CI:-false}

say() {
  printf '%s\n' "$@" >&2
}

fail() {
  say "$@"
  exit 1
}

# Whether the user agrees. Without a terminal, only --yes does.
agree() {
  [ "$agreed" != true ] || return 0
  [ -t 0 ] && [ -t 2 ] || return 1
  printf '%s [y/N] ' "$1" >&2
  read -r answer || return 1
  case $answer in
    [yY] | [yY][eE][sS]) return 0 ;;
    *) return 1 ;;
  esac
}

# Prints the comment at the top of a script.
usage() {
  sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p;}' "$0"
}

# install_packages PURPOSE PACKAGE...: with apt-get, as root, if the user agrees.
install_packages() {
  purpose=$1
  shift
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    fail "$purpose. On Debian or Ubuntu type:" "  sudo apt-get install --no-install-recommends $*"
  fi
  agree "$purpose. Install $* with apt-get?" || fail "$purpose. Type:" \
    "  apt-get install --no-install-recommends $*" "or run this again with --yes."
  say "Installing $* ..."
  set -- env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
  # Missing or outdated package lists appear only as a failed install.
  "$@" >/dev/null 2>&1 || { apt-get update -qq && "$@" >/dev/null; } || fail "apt-get could not install them."
}

# Whether an image exists and was built from the source that $2 identifies.
image_is_from() {
  [ "$(docker image inspect --format '{{index .Config.Labels "berth.source"}}' "$1" 2>/dev/null)" = "$2" ]
}

# Reads the options of a script that only has --yes and --help.
take_only_yes() {
  while [ $# -gt 0 ]; do
    case $1 in
      --yes) agreed=true ;;
      -h | --help) usage; exit 0 ;;
      *) fail "$0: unknown option $1 (try --help)" ;;
    esac
    shift
  done
}

# Podman, what it needs to run containers, and the init process that it puts in them.
PODMAN_PACKAGES="podman catatonit netavark runc"
has_podman() {
  command -v podman >/dev/null && command -v runc >/dev/null && [ -x /usr/libexec/podman/catatonit ]
}

# clean_at_exit COMMAND: also after a signal.
clean_at_exit() {
  # shellcheck disable=SC2064 # expands the command now
  trap "$1" EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
}

# remove_directory DIRECTORY: first unmounts what is mounted below, so that none of it is removed.
remove_directory() {
  sed -n "s|^[^ ]* \($1/[^ ]*\) .*|\1|p" /proc/mounts | sort -r | while read -r mounted; do
    umount --lazy "$mounted" || true
  done
  rm -rf --one-file-system -- "$1"
}
