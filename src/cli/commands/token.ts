import { Command, Option } from "commander";
import { parseDuration } from "../../config/values.ts";
import { TokenFileError, type TokenRecord } from "../../tenants/token-file.ts";
import { complaint } from "../colour.ts";
import { examples } from "../examples.ts";
import { EXIT, Failed, UsageError } from "../exit.ts";
import { flagValue } from "../flags.ts";
import { formatDuration } from "../format.ts";
import type { CommandHost } from "../host.ts";
import { write } from "../io.ts";
import { addListFlags, type ListForm, printerFor } from "../list/list.ts";
import { visible } from "../visible.ts";

const DAY_MS = 24 * 3600 * 1000;
const MAX_EXPIRES_MS = 3650 * DAY_MS;

interface TokenFlags {
  readonly tokens?: string;
}

interface CreateFlags extends TokenFlags {
  readonly tenant: string;
  readonly scope: TokenRecord["scope"];
  readonly expires?: string;
  readonly note?: string;
}

interface LsFlags extends TokenFlags {
  readonly json?: boolean;
  readonly quiet?: boolean;
  readonly format?: string;
}

/** `berth token`: manages the tokens for the service. */
export function tokenCommand(host: CommandHost): Command {
  return new Command("token")
    .summary("create, list and revoke the tokens of a tokens file")
    .description(
      "Edits the file that `berth serve --tokens FILE` reads. Needs no running service; a running one applies a change within a " +
        "second. The file holds hashes: a token is shown once, when it is created.",
    )
    .addHelpText("after", examples("berth token create --tenant default", "berth token ls"))
    .addCommand(createCommand(host))
    .addCommand(lsCommand(host))
    .addCommand(revokeCommand(host));
}

function createCommand(host: CommandHost): Command {
  return tokenFileCommand("create")
    .summary("create a token and print it")
    .description(
      "Creates a token and prints it, and nothing else, to stdout. Creates the file and the tenant if they do not exist.",
    )
    .requiredOption(
      "--tenant <name>",
      "the tenant it belongs to: it sees and creates only what is this tenant's",
    )
    .addOption(
      new Option(
        "--scope <scope>",
        "what it may do: everything in its tenant, only read, or everything in the service",
      )
        .choices(["user", "read-only", "admin"])
        .default("user"),
    )
    .option("--expires <duration>", "how long it is valid, such as 12h or 30d (default: until it is revoked)")
    .option("--note <text>", "what it is for; shown by berth token ls")
    .addHelpText(
      "after",
      examples(
        "berth token create --tenant acme",
        "berth token create --tenant acme --scope read-only --expires 30d --note dashboard",
      ),
    )
    .action(
      host.action(async (flags: CreateFlags) => {
        const { tenant, scope, note } = flags;
        const file = fileOf(flags, host);
        const lifetimeMs = flagValue("--expires", flags.expires, (text) =>
          parseDuration(text, { minMs: 1000, maxMs: MAX_EXPIRES_MS }),
        );
        const expires = lifetimeMs === undefined ? undefined : Date.now() + lifetimeMs;
        const { addToken } = await import("../../tenants/edit-tokens.ts");
        const { id, text } = await explained(addToken(file, { tenant, scope, expires, note }));
        host.interrupts.made = `The token was created, and is kept nowhere. Revoke it with: berth token revoke ${id}`;
        await write(host.io.stdout, `${text}\n`);
        const until = lifetimeMs === undefined ? "until it is revoked" : `for ${formatDuration(lifetimeMs)}`;
        await write(
          host.io.stderr,
          `Token ${id} of the tenant ${tenant}, scope ${scope}, valid ${until}. It is kept nowhere: store it now.\n`,
        );
        return EXIT.ok;
      }),
    );
}

const TOKENS: ListForm<TokenRecord> = {
  schema: { named: ["id", "tenant", "scope", "expires", "isExpired", "note"] },
  jsonOf,
  idOf: ({ id }) => id,
  columns: [
    { heading: "ID", text: ({ id }) => id },
    { heading: "TENANT", text: ({ tenant }) => tenant },
    { heading: "SCOPE", text: ({ scope }) => scope },
    {
      heading: "EXPIRES",
      text: expiryOf,
      tone: (token) => (isExpired(token) ? "warning" : undefined),
    },
    { heading: "NOTE", text: ({ note = "" }) => visible(note) },
  ],
};

function lsCommand(host: CommandHost): Command {
  return addListFlags(tokenFileCommand("ls").option("--json", "write JSON"))
    .summary("list tokens")
    .description("Lists the tokens of the file, in the file's order.")
    .addHelpText("after", examples("berth token ls", "berth token ls -q"))
    .action(
      host.action(async (flags: LsFlags) => {
        host.interrupts.followOutput();
        const print = printerFor(host, flags, TOKENS);
        const file = fileOf(flags, host);
        const { readTokenFile } = await import("../../tenants/live-tokens.ts");
        const { tokens } = await explained(readTokenFile(file));
        const items = [...tokens.values()];
        await print(items, () => ({ tokens: items.map(jsonOf) }));
        return EXIT.ok;
      }),
    );
}

function revokeCommand(host: CommandHost): Command {
  return tokenFileCommand("revoke")
    .summary("revoke tokens")
    .description(
      "Removes tokens from the file and prints the id of each. A running service refuses new calls with them within a second, " +
        "and ends their calls in progress. The exit code is 1 if the file has no such token.",
    )
    .argument("<token...>", "ids of the tokens, from berth token ls")
    .addHelpText("after", examples("berth token revoke TOKEN"))
    .action(
      host.action(async (ids: string[], flags: TokenFlags) => {
        const file = fileOf(flags, host);
        const { revokeTokens } = await import("../../tenants/edit-tokens.ts");
        const { tokenIdIn } = await import("../../tenants/token.ts");
        const asked = [...new Set(ids.map((id) => tokenIdIn(id) ?? id))];
        const revoked = await explained(revokeTokens(file, asked));
        for (const id of asked) {
          if (revoked.has(id)) await write(host.io.stdout, `${id}\n`);
          else await write(host.io.stderr, complaint(host.io, `${file} has no token ${JSON.stringify(id)}`));
        }
        return revoked.size === asked.length ? EXIT.ok : EXIT.failed;
      }),
    );
}

function tokenFileCommand(name: string): Command {
  return new Command(name).option("--tokens <FILE>", "the tokens file (env BERTH_TOKENS)");
}

function fileOf({ tokens }: TokenFlags, { io }: CommandHost): string {
  const file = tokens ?? io.env.BERTH_TOKENS;
  if (file) return file;
  throw new UsageError(
    "which tokens file? Name it with --tokens FILE or BERTH_TOKENS=FILE, as for berth serve",
  );
}

async function explained<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if (!(error instanceof TokenFileError)) throw error;
    const hint = error.fix === undefined ? undefined : `Type: ${error.fix}`;
    throw new Failed(error.message, { hint, cause: error });
  }
}

function jsonOf(token: TokenRecord) {
  const { id, tenant, scope, expires, note } = token;
  return {
    ...{ id, tenant, scope },
    ...(expires !== undefined && { expires: new Date(expires).toISOString() }),
    isExpired: isExpired(token),
    ...(note !== undefined && { note }),
  };
}

function isExpired({ expires = Number.POSITIVE_INFINITY }: TokenRecord): boolean {
  return expires <= Date.now();
}

function expiryOf(token: TokenRecord): string {
  if (token.expires === undefined) return "never";
  return isExpired(token) ? "expired" : `in ${formatDuration(token.expires - Date.now())}`;
}
