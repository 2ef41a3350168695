/**
 * What scripts end with where they know what is wrong. Numbers that the tools
 * do not use themselves.
 */
export const EXIT = {
  missing: 40,
  /** Something on the way is no directory. */
  notDirectory: 41,
  forbidden: 42,
  /** It is there, and of another kind than the operation needs. */
  kind: 43,
  exists: 44,
  notEmpty: 45,
  beyondEnd: 46,
  /** A tool is missing; its name is the last line of stderr. */
  noTool: 47,
  /** stdin ended before all of it had come. */
  incomplete: 48,
  /** A directory is to be moved into itself. */
  intoItself: 49,
  /** A file has large holes, which the tool would write in full; its name is the last line of stderr. */
  holes: 50,
} as const;

/**
 * What every script begins with; plain `sh` of dash, bash and busybox. Scripts
 * find out by tests what is wrong, because messages differ between tools; what
 * tests cannot tell (no space, a busy mount) is read from the words of the C
 * library, which `LC_ALL=C` keeps the same.
 *
 * - `need TOOL` ends the script where the image lacks the tool.
 * - `reach PATH` ends it with the reason why the way to PATH cannot be walked.
 * - `fail TOOL PATH` ends it after TOOL failed on PATH.
 * - `regular PATH` and `directory PATH` end it where PATH, links followed, is something else.
 * - `enter PATH` goes into a directory that may be read.
 * - `place PATH` ends it where nothing can be put at PATH.
 * - `parents PATH` makes the directories on the way.
 * - `filled PATH` tells whether a directory holds anything.
 *
 * A test and what follows it are two steps: a process of the sandbox that
 * changes the path in between spoils its own sandbox's operation and nothing
 * else. A FIFO put there just then blocks the script until its time is up.
 */
const PRELUDE = `export LC_ALL=C TZ=UTC0 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\${PATH:+:$PATH}
unset CDPATH POSIXLY_CORRECT TAR_OPTIONS
umask 022
need() { command -v $1 >/dev/null && return; printf '\\n%s' $1 >&2; exit ${EXIT.noTool}; }
reach() { d= r=\${1#/}
while :; do
[ -x "\${d:-/}" ] || exit ${EXIT.forbidden}
case $r in */*) ;; *) return;; esac
d=$d/\${r%%/*} r=\${r#*/}
[ -d "$d" ] && continue
[ -e "$d" ] && exit ${EXIT.notDirectory}
exit ${EXIT.missing}
done; }
fail() { need $1; reach "$2"; [ -e "$2" ] || exit ${EXIT.missing}; exit 1; }
regular() { [ -f "$1" ] && return; [ -e "$1" ] && exit ${EXIT.kind}; reach "$1"; exit ${EXIT.missing}; }
directory() { [ -d "$1" ] && return; [ -e "$1" ] && exit ${EXIT.kind}; reach "$1"; exit ${EXIT.missing}; }
enter() { directory "$1"; cd "$1" && [ -r . ] || exit ${EXIT.forbidden}; }
place() { [ -w "\${1%/*}/" ] && [ -x "\${1%/*}/" ] && return; reach "$1"; exit ${EXIT.forbidden}; }
parents() { [ -d "\${1%/*}/" ] || mkdir -p "\${1%/*}" || { need mkdir; d=\${1%/*}
while [ "$d" ] && [ ! -e "$d" ] && [ ! -L "$d" ]; do d=\${d%/*}; done
[ -d "$d/" ] || { [ -e "$d" ] && exit ${EXIT.notDirectory}; exit ${EXIT.missing}; }
[ -w "$d/" ] || exit ${EXIT.forbidden}
exit 1; }; }
filled() { ls -A "$1" | read -r x; }
`;

/** Puts a script together. */
export function script(...parts: readonly string[]): string {
  return PRELUDE + parts.join("");
}
