import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import { access, constants, lstat, readFile, stat, statfs } from "node:fs/promises";
import net from "node:net";
import path from "node:path";
import { Command, Option } from "commander";
import { ErrorReason } from "../../../gen/ts/berth/v1/error_pb.js";
import { untilAborted } from "../../base/async.ts";
import type { Finding } from "../../base/diagnosis.ts";
import { quoteIfNeeded } from "../../base/shell-quote.ts";
import { writeProblem } from "../../base/write-problem.ts";
import { loadConfig } from "../../config/load.ts";
import type { Config } from "../../config/options.ts";
import { formatListenAddress } from "../../server/listen-address.ts";
import { connectTo } from "../client.ts";
import { addConfigFlags, configFlags } from "../config-flags.ts";
import { examples } from "../examples.ts";
import { EXIT } from "../exit.ts";
import { reasonOf } from "../failure.ts";
import { formatSize, formatTable } from "../format.ts";
import { accessOf, CERTIFICATE_OPTIONS, type ClientFlags, type CommandHost, certificateOf } from "../host.ts";
import { type Io, write, writeJson } from "../io.ts";
import { parseServiceAddress } from "../service-address.ts";
import { presentedCertificate } from "../tls-failure.ts";

const ANSWER_TIMEOUT_MS = 10_000;
/** More than a service writes to an empty data directory at its start. */
const START_BYTES = 2 ** 20;

/**
 * The options that it checks and shows in its help. It accepts the others too, so that the service's options can be
 * passed unchanged.
 */
const CHECKED: readonly (keyof Config)[] = [
  ...([
    "listen",
    "tlsCert",
    "tlsKey",
    "tlsClientCa",
    "tokens",
    "secrets",
    "engine",
    "dockerRequired",
    "dockerHost",
    "rootfs",
    "kubeconfig",
    "namespace",
    "nodeSelector",
  ] as const),
  ...(["tolerations", "runtimeClass", "imagePullSecrets", "podTemplate", "networkPolicy"] as const),
  ...(["workspaceVolumeBytes", "storageClass", "volumeAccessMode", "volumeClones"] as const),
  ...(["egressCidrs", "denyCidrs", "egressDns", "egressCredentials"] as const),
  ...(["allowRuntimes", "defaultImage", "desktopImage", "dataDir"] as const),
  ...(["workspacesRoot", "sharedRoot", "workspaceQuotaBytes", "sharedQuotaBytes", "auditLog"] as const),
];

type DoctorFlags = Pick<ClientFlags, "json" | "clientCert" | "clientKey">;

/** `berth doctor`: checks whether a service could run here, and says how to fix what is missing. */
export function doctorCommand(host: CommandHost): Command {
  const command = new Command("doctor").option("--json", "write JSON");
  for (const { flags, description } of CERTIFICATE_OPTIONS)
    command.addOption(new Option(flags, description).helpGroup("If a service runs already:"));
  return addConfigFlags(command, CHECKED)
    .summary("check whether the service can run here, and say how to fix what is missing")
    .description(
      "Checks what a service with these options would need. Needs no running service and changes nothing. The exit code is 1 " +
        "if anything is missing that sandboxes require.",
    )
    .addHelpText(
      "after",
      `\nThe options above are those that it checks. It accepts every option that \`berth serve --help\` lists.\n${examples("berth doctor", "berth doctor --engine bubblewrap --json")}`,
    )
    .action(
      host.action(async (flags: DoctorFlags, command: Command) => {
        host.interrupts.followOutput();
        const { signal } = host.interrupts;
        const config = loadConfig({ flags: configFlags(command), env: host.io.env });
        const diagnosis = diagnose(host, config, flags);
        // In a cluster, its last act is to remove what it has created there.
        const findings = await (config.engine === "kubernetes" ? diagnosis : untilAborted(diagnosis, signal));
        signal.throwIfAborted();
        const ok = findings.every(({ status }) => status !== "missing");
        if (flags.json) await writeJson(host.io.stdout, { ok, findings });
        else await write(host.io.stdout, report(findings, ok));
        return ok ? EXIT.ok : EXIT.failed;
      }),
    );
}

async function diagnose(host: CommandHost, config: Config, flags: DoctorFlags): Promise<Finding[]> {
  const { runs, ...address } = await diagnoseAddress(config, flags, host.io.env);
  return [
    { subject: "node", status: "ok", found: process.version },
    { subject: "address", ...address },
    await diagnoseDataDir(config),
    ...(await host.service.diagnose(config, runs === true)),
  ];
}

function report(findings: readonly Finding[], ok: boolean): string {
  const table = formatTable(
    ["STATUS", "WHAT", "FOUND"],
    findings.map(({ status, subject, found }) => [status, subject, found]),
  );
  const fixes = findings.flatMap(({ status, subject, fix }) =>
    fix === undefined ? [] : [`\n${subject} (${status}):\n${fix.replace(/^/gm, "  ")}\n`],
  );
  return `${table}${fixes.join("")}\n${ok ? "A service can run here: berth serve" : "Something is missing: see above."}\n`;
}

/** Whether the address is free, or used by a service (`runs`), which may be the expected one. */
async function diagnoseAddress(
  { listen, tlsCert }: Config,
  flags: DoctorFlags,
  env: Io["env"],
): Promise<Omit<Finding, "subject"> & { readonly runs?: true }> {
  const text = formatListenAddress(listen);
  const problem = await bindProblem(listen);
  if (problem === undefined) return { status: "ok", found: `${text} is free` };
  const atPath = listen.kind === "unix" ? await diagnoseSocket(listen.path) : undefined;
  if (atPath !== undefined) return atPath;
  const another = "Choose another address, for example: berth serve --listen 127.0.0.1:7071";
  if (problem.code !== "EADDRINUSE") {
    const found = `cannot listen on ${text}: ${problem.message}`;
    return { status: "missing", found, fix: another };
  }
  const presented = await presentedCertificate(parseServiceAddress(text));
  const found =
    presented === undefined
      ? await runningService(text, { token: accessOf({}, env).token })
      : await runningTlsService(text, flags, env);
  const runs = (what: string) => {
    return { status: "ok", found: `a service runs on ${text} already, ${what}`, runs: true } as const;
  };
  if (found !== undefined) return runs(found);
  if (presented === undefined)
    return { status: "missing", found: `another program uses ${text}`, fix: another };
  // It shows its certificate to anyone, and answers only those whose own it trusts.
  if (tlsCert !== undefined && (await holdsCertificate(tlsCert, presented)))
    return runs("with this --tls-cert");
  return {
    status: "missing",
    found: `a program that speaks TLS uses ${text}, and does not answer as Berth`,
    fix: `If it is Berth with --tls-client-ca, present a certificate that it trusts: berth doctor --client-cert FILE --client-key FILE\n${another}`,
  };
}

/** What is to say of a socket's path. Undefined: a program may listen there. */
async function diagnoseSocket(file: string): Promise<Omit<Finding, "subject"> | undefined> {
  const directory = path.dirname(file);
  if (!(await stat(directory).catch(() => undefined))?.isDirectory()) {
    const found = `${directory}, where the socket should be, is not a directory`;
    return { status: "missing", found, fix: `mkdir -p -m 700 ${quoteIfNeeded(directory)}` };
  }
  const there = await lstat(file).catch(() => undefined);
  if (there === undefined) return undefined;
  if (!there.isSocket()) {
    const fix = `Remove it, or choose another address, for example: berth serve --listen unix:${quoteIfNeeded(`${file}.sock`)}`;
    return { status: "missing", found: `${file} exists and is not a socket`, fix };
  }
  const socket = net.connect(file);
  const refused = await once(socket, "connect").then(
    () => false,
    ({ code }: NodeJS.ErrnoException) => code === "ECONNREFUSED",
  );
  socket.destroy();
  const found = `unix:${file} is free: nobody listens on the socket there, and a service replaces it`;
  return refused ? { status: "ok", found } : undefined;
}

/** Whether a file in PEM begins with a certificate. */
async function holdsCertificate(file: string, der: Buffer): Promise<boolean> {
  try {
    return new X509Certificate(await readFile(file)).raw.equals(der);
  } catch {
    // What is wrong with the file is a separate finding.
    return false;
  }
}

/** Whether the service can write to its data directory, or create it. */
async function diagnoseDataDir({ dataDir }: Config): Promise<Finding> {
  const subject = "data directory";
  const present = await nearestPresent(dataDir);
  const another = "Choose another, for example: berth serve --data-dir DIR";
  const next = path.join(present, path.relative(present, dataDir).split(path.sep)[0] ?? "");
  if (next !== present && (await lstat(next).catch(() => undefined))?.isSymbolicLink()) {
    const found = `${next} is a link to a place that does not exist`;
    const fix = `Make the directory that it names: ls -l ${quoteIfNeeded(next)}\n${another}`;
    return { subject, status: "missing", found, fix };
  }
  if (!(await stat(present)).isDirectory()) {
    return { subject, status: "missing", found: `${present} is not a directory`, fix: another };
  }
  try {
    await access(present, constants.W_OK | constants.X_OK);
  } catch (error) {
    const isReadOnly = (error as NodeJS.ErrnoException).code === "EROFS";
    const found = isReadOnly
      ? `the file system of ${present} is read-only`
      : `this user may not write ${present}`;
    // A directory that is there may be one that others need.
    const canMake = !isReadOnly && present !== dataDir;
    const fix = canMake ? `sudo install -d -m 700 -o "$USER" ${quoteIfNeeded(dataDir)}\n${another}` : another;
    return { subject, status: "missing", found, fix };
  }
  // The mode of a directory does not show that its disk failed.
  if ((await writeProblem(present)) !== undefined) {
    const found = `the disk of ${present} refuses every write`;
    return { subject, status: "missing", found, fix: `Check the disk: dmesg\n${another}` };
  }
  const { bavail, bsize, files, ffree } = await statfs(present);
  const free = bavail * bsize;
  // Some file systems count no files.
  if (free < START_BYTES || (files > 0 && ffree === 0)) {
    return {
      subject,
      status: "missing",
      found: `the disk of ${present} is full: room for ${formatSize(free)} and ${ffree} files`,
      fix: `Free space there\n${another}`,
    };
  }
  return {
    subject,
    status: "ok",
    found: `${dataDir} ${present === dataDir ? "can be written" : "can be made"}`,
  };
}

/** The directory, or its nearest existing parent. */
async function nearestPresent(dir: string): Promise<string> {
  for (let place = dir; ; place = path.dirname(place)) {
    const isThere = await access(place).then(
      () => true,
      () => false,
    );
    if (isThere || place === path.dirname(place)) return place;
  }
}

async function bindProblem(listen: Config["listen"]): Promise<NodeJS.ErrnoException | undefined> {
  const server = net.createServer();
  const bound = once(server, "listening");
  if (listen.kind === "unix") server.listen(listen.path);
  else server.listen({ port: listen.port, host: listen.host || undefined });
  const problem = await bound.then(
    () => undefined,
    (error: NodeJS.ErrnoException) => error,
  );
  if (problem === undefined) await new Promise((closed) => server.close(closed));
  return problem;
}

/** What a service with TLS says about itself. Undefined: none answers. */
async function runningTlsService(
  text: string,
  flags: DoctorFlags,
  env: Io["env"],
): Promise<string | undefined> {
  const { baseUrl } = parseServiceAddress(text);
  const url = baseUrl.replace(/^http/, "https");
  const certificate = await certificateOf(flags, accessOf({}, env), env, parseServiceAddress(url));
  // Few certificates name the address that a service listens on, so it cannot be verified and gets no token.
  return runningService(url, { certificate, trustAny: true });
}

/** What a service at the address says about itself. Undefined: none answers. */
async function runningService(
  text: string,
  options: Parameters<typeof connectTo>[1],
): Promise<string | undefined> {
  const client = connectTo(parseServiceAddress(text), options);
  try {
    const { engine } = await client.sandboxes.getStats({}, { timeoutMs: ANSWER_TIMEOUT_MS });
    return engine && `engine ${engine.name} ${engine.version}`;
  } catch (error) {
    return reasonOf(error) === ErrorReason.UNAUTHENTICATED ? "which needs a token" : undefined;
  } finally {
    client.close();
  }
}
