import { quote } from "../../base/shell-quote.ts";
import { BWRAP_FDS } from "./arguments.ts";
import { pipesText, REPORTS_FD, reopenText, reportStartText } from "./shell-pipes.ts";

/** Descriptors of a keeper. What bwrap gets has the numbers that {@link BWRAP_FDS} says. */
export const KEEPER_FDS = {
  /** What bwrap and the main process say until that is ready. */
  output: 7,
  /** What bwrap tells of the number and the end of its child. */
  status: BWRAP_FDS.status,
  /** A line in it lets the keeper go on; then it is the main process's stdin. */
  go: 9,
  /** At last, the sandbox's outer user namespace. */
  userNamespace: BWRAP_FDS.args,
} as const;

/** What a sandbox's keeper is told. */
export interface KeeperPlan {
  readonly tag: number;
  readonly joinFiles: readonly string[];
  readonly bwrapArguments: readonly string[];
  /** The main process. */
  readonly command: readonly string[];
}

/**
 * A sandbox's keeper, a shell of the host's: starts bwrap in the sandbox's
 * control groups, opens the outer user namespace while bwrap is held up, and
 * keeps it open for whoever is to enter. It ends the sandbox when the service
 * is gone, which is the end of the socket that it reads. SIGTERM ends both.
 *
 * Nothing may end it with a signal or 255: xargs would start nothing more.
 */
export function keeperScript({ tag, joinFiles, bwrapArguments, command }: KeeperPlan): string {
  const { args, info, gate, status } = BWRAP_FDS;
  const { output, go, userNamespace } = KEEPER_FDS;
  const both = {
    [args]: "<>",
    [info]: "<>",
    [gate]: "<>",
    [output]: "<>",
    [status]: "<>",
    [go]: "<>",
  } as const;
  const bwrap = ["bwrap", "--args", String(args), "--", ...command];
  const own = [
    ...[`</proc/self/fd/${go}`, `>/proc/self/fd/${output}`, "2>&1", `${REPORTS_FD}>&-`],
    ...[reopenText({ [args]: "<", [info]: ">", [gate]: "<", [status]: ">" }), `${output}>&-`, `${go}>&-`],
  ];
  return `${pipesText(Object.keys(both).map(Number))}exec 2>/dev/null ${reopenText(both)}
printf '%s\\0' ${bwrapArguments.map(quote).join(" ")} >&${args}
(${joinText(joinFiles)}exec ${bwrap.map(quote).join(" ")}) ${own.join(" ")} &
b=$!
i=
trap 'kill -9 $i $b; wait $b; exit 0' TERM
exec ${args}>&- ${info}</proc/self/fd/${info}
${reportStartText(tag, "'$b'")}while read -r x; do
  case $x in *'"child-pid": '*) i=\${x#*'"child-pid": '} i=\${i%%[!0-9]*} ;; esac
  case $x in *'}'*) break ;; esac
done <&${info}
[ ! "$i" ] || exec ${userNamespace}</proc/$i/ns/user
read -r x <&${go}
exec ${info}<&- ${output}>&- ${status}>&- ${gate}>&-
read -r x <&${REPORTS_FD}
kill -9 $i $b
wait $b
exit 0
`;
}

/** Has a shell of one thread join control groups. */
export function joinText(files: readonly string[]): string {
  return files.map((file) => `echo 0 >${quote(file)} || exit 125\n`).join("");
}
