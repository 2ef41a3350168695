import { LOOK_UP_USER } from "../user-lookup.ts";
import { PIPES_TARGET } from "./named-pipes.ts";

/** The zygote's files, in a container's directory of pipes. */
export const ZYGOTE_FILES = {
  /** A named pipe for requests, as lines of shell script. */
  requests: "requests",
  /** A named pipe for answers, one per line. */
  answers: "answers",
  /** {@link ZYGOTE_SCRIPT}. */
  script: "zygote",
  /** {@link userEntry}. */
  entry: "enter",
} as const;

const inside = (file: string): string => `${PIPES_TARGET}/${file}`;

/**
 * Opens the pipes, reports that with one byte, and executes the program once it has read a line from stdin. So a
 * service that gives up before sending the line knows that the program never runs. An empty line means empty stdin.
 * Otherwise like the script of spawn-piped.ts.
 */
const OPEN_PIPES =
  'exec 1<>"$BERTH_STDOUT" 2<>"$BERTH_STDERR" <"$BERTH_STDIN" && unset BERTH_STDIN BERTH_STDOUT BERTH_STDERR && printf . && read -r BERTH_GO && { [ "$BERTH_GO" ] || exec </dev/null; } && unset BERTH_GO && exec "$@"';

/**
 * What a container's zygote reads first. A zygote is a shell that forks another shell in a millisecond; an exec of the
 * daemon takes tens of milliseconds. After this script it reads requests in the same way as its script, because most
 * shells then read many bytes at once. It uses no program of the image but `/bin/sh`, and its variables begin with
 * `BERTHZ_`, so that they do not change the container's environment. $1: whether the container's environment sets HOME.
 *
 * - `Z id user uid stdin stdout stderr NAME=VALUE... -- argv...` is a request. It starts a program as a user, waits for
 *   it, and answers how it ended. The shell that waits is an orphan, so the container's first process reaps it. It is
 *   in the main process's session, by which lanes recognize it. `command eval` keeps a failing fork from ending the
 *   shell. The first answer is `p<pid>`, the pid of the shell that waits.
 * - `K id pid` is a request. It answers `y` or `n`: whether the process exists.
 * - `D` and `U` look up a user. They fail for unusual spellings, which are left to Docker.
 * - `BERTHZ_T` collects the lines of a request that is longer than one line. The last line evaluates it.
 * - `R text` sends an answer. If no service is running, it waits for one.
 *
 * Answers: the exit code; `u<uid>` if the user's uid is not that of the pipes; `-` if the user was not found.
 */
export const ZYGOTE_SCRIPT = `BERTHZ_SETS_HOME=$1
BERTHZ_N='
'
BERTHZ_OPEN='${OPEN_PIPES}'
Z() { BERTHZ_ID=$1; command eval '( ( S "$@" ) & R "p$!" )' || R 125; }
K() { BERTHZ_ID=$1; if kill -0 "$2"; then R y; else R n; fi; }
S() {
  BERTHZ_ID=$1 BERTH_STDIN=$4 BERTH_STDOUT=$5 BERTH_STDERR=$6
  U "$2" || { R -; return; }
  [ "$BERTHZ_UID" = "$3" ] || { R "u$BERTHZ_UID"; return; }
  shift 6
  [ "$BERTHZ_SETS_HOME" ] || export HOME="$BERTHZ_HOME"
  while [ "$1" != -- ]; do command export "$1" || { R -; return; }; shift; done
  shift
  export BERTH_STDIN BERTH_STDOUT BERTH_STDERR
  command eval '${inside(ZYGOTE_FILES.entry)} "$BERTHZ_UID" "$BERTHZ_GID" "$BERTHZ_GID$BERTHZ_GROUPS" /bin/sh -c "$BERTHZ_OPEN" sh "$@"'
  R $?
}
R() { printf '%s %s\\n' "$BERTHZ_ID" "$1" >${inside(ZYGOTE_FILES.answers)}; }
${LOOK_UP_USER}`;

/** The first line of requests. It makes the zygote read its script. */
export const READ_SCRIPT = `. ${inside(ZYGOTE_FILES.script)}\n`;

/**
 * Starts the zygote, before anything changes the environment, if the container has its files and can open them. By then
 * the service has written {@link READ_SCRIPT}, and perhaps a request. $1: as above.
 */
export const START_ZYGOTE = `if [ -x ${inside(ZYGOTE_FILES.entry)} ] && true <>${inside(ZYGOTE_FILES.requests)}; then
  exec 3<>${inside(ZYGOTE_FILES.requests)}
  /bin/sh -s -- "$1" <&3 3>&- >/dev/null 2>&1 &
  exec 3>&-
fi 2>/dev/null`;
