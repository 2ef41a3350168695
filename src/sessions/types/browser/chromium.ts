import { randomBytes } from "node:crypto";
import { BerthError } from "../../../base/errors.ts";
import type { SessionHost } from "../../backend.ts";
import { Program, type ProgramHost } from "../program.ts";

/** The options of a browser process. */
export interface ChromiumOptions {
  readonly width: number;
  readonly height: number;
  /** A language tag, such as `de-DE`. */
  readonly locale: string | undefined;
  readonly userAgent: string | undefined;
  readonly env: Readonly<Record<string, string>>;
}

const CLOSE_MS = 3_000;
/** The script's exit code if it finds no browser: the shell's code for "not found". */
const NOT_FOUND = 127;

/**
 * Removes the profile in $profile. Retries, because processes of a killed browser keep writing to it for a moment, and
 * rm fails on a directory that is being filled.
 */
const REMOVE_PROFILE = `
left=30
until rm -rf -- "$profile" 2>/dev/null || [ $((left -= 1)) -le 0 ]; do sleep 0.1; done
`;

/**
 * Creates a private profile, starts the browser with its pipe on the descriptors it expects, and removes the profile
 * when the browser ends. This also works if the service was killed: then the pipe closes, and Chromium ends. Looks for
 * the program behind Debian's start script first, because that script is slow and adds extensions. Without a language,
 * it would refuse file names that are not ASCII.
 */
const SCRIPT = `
profile=$1; shift
for browser in /usr/lib/chromium/chromium chromium chromium-browser google-chrome google-chrome-stable; do
  command -v "$browser" >/dev/null && break || browser=
done
[ -n "$browser" ] || exit ${NOT_FOUND}
mkdir -m 700 "$profile" || exit 1
export HOME="$profile" XDG_CONFIG_HOME="$profile" XDG_CACHE_HOME="$profile" XDG_DATA_HOME="$profile" XDG_RUNTIME_DIR="$profile"
export LANG="\${LANG:-C.UTF-8}" TMPDIR="$profile" DBUS_SESSION_BUS_ADDRESS=disabled: DBUS_SYSTEM_BUS_ADDRESS=disabled:
trap : TERM
exec 3<&0 4>&1 </dev/null >/dev/null
"$browser" --user-data-dir="$profile" "$@" &
exec 3<&- 4>&-
wait $!
code=$?
wait
${REMOVE_PROFILE}
exit $code
`;

/**
 * Berth provides the sandbox. Chromium's own needs user namespaces or set-user-ID programs, which sandboxes do not
 * have.
 */
const FLAGS = [
  "--headless=new",
  "--no-sandbox",
  "--remote-debugging-pipe",
  // /dev/shm in a sandbox has 64 MiB, too little for large pages.
  "--disable-dev-shm-usage",
  "--disable-gpu",
  "--no-first-run",
  "--no-default-browser-check",
  "--disable-breakpad",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-component-extensions-with-background-pages",
  "--disable-default-apps",
  "--disable-extensions",
  "--disable-sync",
  "--disable-domain-reliability",
  "--disable-client-side-phishing-detection",
  "--disable-search-engine-choice-screen",
  "--disable-background-timer-throttling",
  "--disable-backgrounding-occluded-windows",
  "--disable-renderer-backgrounding",
  "--disable-hang-monitor",
  "--disable-infobars",
  "--password-store=basic",
  "--use-mock-keychain",
  "--metrics-recording-only",
  "--no-pings",
  "--mute-audio",
  "--hide-scrollbars",
  "--force-color-profile=srgb",
  "--log-level=3",
  // With RenderDocument, a dialog that opens while a page of the same site takes over can neither be answered nor ends: the
  // old page waits for the answer, and the new one for the old page's process.
  "--disable-features=RenderDocument,Translate,MediaRouter,DialMediaRouteProvider,OptimizationHints,OptimizationGuideModelDownloading,BackForwardCache,HttpsUpgrades,HttpsFirstBalancedModeAutoEnable,InterestFeedContentSuggestions,AutofillServerCommunication,GlobalMediaControls,PaintHolding,WebUIOmniboxPopup,WebUIOmniboxAimPopup,AiModeOmniboxEntryPoint",
];

/**
 * Starts Chromium in a sandbox.
 * @param output receives what it writes to its pipe.
 * @throws the engine's errors. If the sandbox has no Chromium, it ends at once: see {@link startFailure}.
 */
export async function startChromium(
  host: ProgramHost,
  { sandbox, sessionId }: SessionHost,
  options: ChromiumOptions,
  output: (chunk: Buffer) => void,
  signal: AbortSignal,
): Promise<Program> {
  const profile = `/tmp/berth-browser-${randomBytes(8).toString("hex")}`;
  const { width, height, locale, userAgent } = options;
  const argv = [
    ...["sh", "-c", SCRIPT, "browser", profile],
    ...FLAGS,
    `--window-size=${width},${height}`,
    ...(locale === undefined ? [] : [`--lang=${locale}`, `--accept-lang=${locale}`]),
    ...(userAgent === undefined ? [] : [`--user-agent=${userAgent}`]),
    "about:blank",
  ];
  const place = { env: options.env, workingDir: sandbox.spec.workingDir };
  // A killed browser has no time to remove its profile.
  const removal = { script: `profile=$1${REMOVE_PROFILE}`, path: profile };
  const request = { sessionId, argv, ...place, name: "Chromium", closeMs: CLOSE_MS, output, removal };
  return Program.start(host, sandbox, request, signal);
}

/** The error for a browser that ended before it answered. */
export function startFailure(program: Program): BerthError {
  const missing = program.exitCode === NOT_FOUND;
  return new BerthError(
    "SESSION_START_FAILED",
    missing
      ? "There is no Chromium in the sandbox (chromium, chromium-browser or google-chrome). Use an image that has it, such as berth/desktop, or install it in this one."
      : `Chromium ended before it was ready: ${program.said.slice(-1_000) || `its exit code is ${program.exitCode ?? "unknown"}`}`,
    { metadata: missing ? { missing: "chromium" } : {} },
  );
}
