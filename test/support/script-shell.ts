import { quote } from "../../src/base/shell-quote.ts";
import type { RawResult } from "./docker.ts";
import { ScriptRunner } from "./script-runner.ts";

/**
 * A `/bin/sh` in a sandbox that runs each script in a shell of its own. For looks and polls: a `docker exec` takes ten
 * times the processor time.
 */
export class ScriptShell extends ScriptRunner {
  run(script: string): Promise<RawResult> {
    return this.runMarked(
      script,
      (mark) => `/bin/sh -c ${quote(script)} </dev/null; echo "${mark} $?"; echo ${mark} >&2\n`,
    );
  }
}
