import { getSystemErrorMap } from "node:util";
import type { ConnectError } from "@connectrpc/connect";
import type { Command } from "commander";
import { ErrorReason } from "../../../gen/ts/berth/v1/error_pb.js";
import { BerthError } from "../../base/errors.ts";
import { download } from "../copy/download.ts";
import { parseCopy } from "../copy/place.ts";
import { CopyProgress } from "../copy/progress.ts";
import { upload } from "../copy/upload.ts";
import { examples } from "../examples.ts";
import { EXIT, Failed } from "../exit.ts";
import { reasonOf } from "../failure.ts";
import { idValue } from "../flags.ts";
import { type ClientFlags, type CommandHost, serviceCommand, withClient } from "../host.ts";
import { visible } from "../visible.ts";

interface CpFlags extends ClientFlags {
  readonly user?: string;
  readonly parents?: boolean;
  readonly sandbox?: string;
}

/** `berth cp`: copies files and directories into and out of a sandbox. */
export function cpCommand(host: CommandHost): Command {
  return serviceCommand("cp")
    .summary("copy files and directories into a sandbox, or out of it")
    .description(
      "Copies a file, or a directory with everything in it. One side is SANDBOX:PATH, absolute or relative to the sandbox's " +
        "working directory. The other is a path on this machine (./a:b if it contains a colon), or - for stdin or stdout. As " +
        "with `cp -r`, the copy goes into the target if that is an existing directory, and DIR/. means the contents of DIR.\n\n" +
        "With -, a file is copied as it is, and a directory of the sandbox as a tar. A file is replaced in one step. A tree is " +
        "complete before any of it moves into place. Anything but files, directories and symbolic links is left out, and " +
        "stderr says so. Files keep their modes, not their owners.",
    )
    .usage("[options] SOURCE TARGET")
    .option(
      "-u, --user <user>",
      "user to act as in the sandbox: a name or uid[:gid] (default: the sandbox's)",
    )
    .option("--sandbox <id>", "sandbox, where its id contains a colon or a slash; then write :PATH")
    .option("-p, --parents", "create missing parent directories of a target in the sandbox")
    .argument("<source>", "what to copy")
    .argument("<target>", "where to")
    .addHelpText(
      "after",
      examples(
        "berth cp data.csv SANDBOX:",
        "berth cp -p ./src SANDBOX:/app/src",
        "berth cp SANDBOX:/workspace/out/. ./results",
        "berth cp SANDBOX:report.json - | jq .",
        "berth cp --sandbox team:7 :report.json .",
      ),
    )
    .action(
      host.action(async (source: string, target: string, flags: CpFlags) => {
        const copy = parseCopy(source, target, idValue("--sandbox", flags.sandbox));
        const { io, interrupts } = host;
        return withClient(host, flags, EXIT.failed, async (client) => {
          const progress = new CopyProgress(io);
          const parts = {
            client,
            // A getter, so that only copies that read stdin open it.
            get stdin() {
              return io.stdin as AsyncIterable<Buffer>;
            },
            user: flags.user,
            parents: flags.parents === true,
            progress,
            onLeftOut: (file: string, what: string) =>
              io.stderr.write(`berth: ${visible(file)} is ${what} and left out\n`),
            signal: interrupts.signal,
          };
          try {
            if (copy.direction === "up") await upload(parts, copy.from, copy.to);
            else await download(parts, copy.from, copy.to, io.stdout);
            return EXIT.ok;
          } catch (error) {
            const { sandboxId, path } = copy.direction === "up" ? copy.to : copy.from;
            const reason = reasonOf(error);
            if (reason === ErrorReason.SANDBOX_NOT_FOUND && path.includes(":")) {
              const hint = "If its id contains a colon, give it separately: --sandbox ID, then :PATH";
              throw new Failed(`There is no sandbox "${visible(sandboxId)}".`, { hint, cause: error });
            }
            if (reason === ErrorReason.FILE_NOT_FOUND && copy.direction === "up" && !parts.parents) {
              const hint = "Create missing directories with --parents";
              throw new Failed((error as ConnectError).rawMessage, { hint, cause: error });
            }
            throw localFailure(error);
          } finally {
            progress.end();
          }
        });
      }),
    );
}

/** Describes failures of local files, and problems in a tar. Returns other errors unchanged. */
function localFailure(error: unknown): unknown {
  if (error instanceof BerthError) return new Failed(error.message, { cause: error });
  const { errno, path } = error as NodeJS.ErrnoException;
  if (!(error instanceof Error) || errno === undefined) return error;
  const why = getSystemErrorMap().get(errno)?.[1] ?? error.message;
  // Hide the temporary directory that the copy is first written to.
  const place = path?.replace(/\/?\.berth-cp-[^/]*(\/tree)?/, "");
  return new Failed(place === undefined ? why : `${place || "/"}: ${why}`, { cause: error });
}
