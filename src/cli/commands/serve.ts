import { Command } from "commander";
import type { Logger } from "pino";
import { BerthError } from "../../base/errors.ts";
import { loadConfig, misspelledVariables } from "../../config/load.ts";
import type { Config } from "../../config/options.ts";
import { describeIsolation } from "../../engine/port.ts";
import { addConfigFlags, configFlags } from "../config-flags.ts";
import { examples } from "../examples.ts";
import { EXIT, Failed, Interrupted } from "../exit.ts";
import type { CommandHost } from "../host.ts";
import type { Io } from "../io.ts";
import type { RunningService } from "../service.ts";

/** `berth serve`: runs the service until it is stopped. */
export function serveCommand(host: CommandHost): Command {
  return addConfigFlags(new Command("serve"))
    .summary("run the service")
    .description(
      "Runs the service until SIGTERM, SIGINT or SIGHUP. Each option can also be set by its environment variable or in the " +
        "configuration file. Flags override variables, and variables override the file. If an option may be repeated, " +
        "separate the values with commas in the variable, and use a list in the file.",
    )
    .addHelpText(
      "after",
      examples(
        "berth serve",
        "berth serve --listen 127.0.0.1:7071 --max-sandboxes 20 --idle-timeout 30m",
        "berth serve --engine bubblewrap --data-dir ./data",
      ),
    )
    .action(
      host.action(async (_flags: unknown, command: Command) => {
        // File modes must not depend on the umask of the user.
        process.umask(0o022);
        const config = loadConfig({ flags: configFlags(command), env: host.io.env });
        const logger = await createLogger(config, host.io);
        // Otherwise Node opens its inspector, through which every user of this machine can run code as the service.
        process.on("SIGUSR1", () =>
          logger.warn({}, "SIGUSR1 is ignored. To debug the service, start it with NODE_OPTIONS=--inspect."),
        );
        for (const misspelled of misspelledVariables(host.io.env)) {
          logger.warn(misspelled, "no option has this environment variable; it looks like a misspelling");
        }
        const service = await start(host, config, logger);
        if (service === undefined) return EXIT.ok;
        const { address, engine } = service;
        host.io.stdout.write(
          `berth listens on ${address}; engine ${engine.name} ${engine.version}, isolation: ${describeIsolation(engine.isolation)}\n`,
        );
        logger.info({ address, engine }, "listening");
        host.interrupts.lastWords = "Sandboxes may be left behind.";
        const reason = await untilAborted(host.interrupts.signal);
        logger.info({ reason }, "stopping");
        const { left } = await service.stop();
        logger.info({ left: left.length }, "stopped");
        if (left.length === 0 || config.leaveSandboxes) return EXIT.ok;
        throw new Failed(`${left.length} sandboxes could not be deleted in time: ${left.join(", ")}`, {
          hint: "Find their containers with: docker ps --filter label=berth.sandbox_id",
        });
      }),
    );
}

/** Logs to stderr, as text for people or as JSON. */
async function createLogger({ logLevel, logFormat }: Config, { stderr, env }: Io): Promise<Logger> {
  const { pino } = await import("pino");
  const { serviceLog } = await import("../service-log.ts");
  const options = { level: logLevel, base: undefined, timestamp: pino.stdTimeFunctions.isoTime };
  if (logFormat === "json" || (logFormat === "auto" && !stderr.isTTY)) return serviceLog(options);
  const { prettyFactory } = await import("pino-pretty");
  const colorize = stderr.isTTY === true && !env.NO_COLOR;
  return serviceLog(options, prettyFactory({ colorize, singleLine: true, translateTime: "SYS:HH:MM:ss.l" }));
}

/** Starts the service. Undefined: a signal stopped it before. */
async function start(
  { service, interrupts: { signal } }: CommandHost,
  config: Config,
  logger: Logger,
): Promise<RunningService | undefined> {
  try {
    return await service.start(config, logger, signal);
  } catch (error) {
    if (signal.aborted) {
      logger.info({ reason: await untilAborted(signal) }, "stopped before it had started");
      return undefined;
    }
    if (!(error instanceof BerthError)) throw error;
    // The message says that details are in the log.
    if (error.reason === "INTERNAL") logger.error({ err: error }, "the service could not start");
    const hint =
      error.reason === "ENGINE_UNAVAILABLE"
        ? "See what is missing: berth doctor, with the same options"
        : undefined;
    throw new Failed(error.message, { hint, cause: error });
  }
}

async function untilAborted(signal: AbortSignal): Promise<string> {
  if (!signal.aborted) {
    await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
  }
  return signal.reason instanceof Interrupted ? signal.reason.message : String(signal.reason);
}
