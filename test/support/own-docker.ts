import { type ChildProcessWithoutNullStreams, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { createWriteStream, readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import { eventually } from "./eventually.ts";
import { newDataDir } from "./settings.ts";

const run = promisify(execFile);
const PATIENT = { timeoutMs: 60_000 };
const ENV = { ...process.env, PATH: `${process.env.PATH}:/usr/sbin:/sbin` };
/** Whatever runs inside ends with its first process, and the machine's own bridge cannot be reached. */
const NAMESPACES = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"];

/**
 * The first process in the namespaces, told what to do by lines. `containerd`
 * is not the daemon's child: as on a machine, it outlives a daemon that is
 * killed, and the containers with it. Old pid files would be taken for true.
 */
const SCRIPT = `
set -e
ip link set lo up
mount -t tmpfs none /run
chmod 711 "$1"
mkdir -p "$1/data" "$1/exec" "$1/containerd"
[ -z "$3" ] || for ids in subuid subgid; do
  echo "$3" >"$1/$ids"
  mount --bind "$1/$ids" "/etc/$ids"
done
containerd --root "$1/containerd" --state /run/own --address /run/own.sock &
while read -r what; do
  case $what in
    start)
      rm -f "$1/pid" "$1/exec/containerd/containerd.pid"
      dockerd --host "unix://$1/docker.sock" --containerd /run/own.sock --pidfile "$1/pid" \
        --data-root "$1/data" --exec-root "$1/exec" --live-restore="$2" \
        --bridge=none --iptables=false --ip-forward=false --ip-masq=false \
        \${3:+"--userns-remap=\${3%%:*}"} &
      daemon=$!;;
    kill) kill -9 $daemon; wait $daemon || true;;
  esac
done
`;

/** How such a daemon is set up. */
export interface OwnDockerOptions {
  /** Whether containers live on while it is away; otherwise it ends them when it comes back. */
  readonly liveRestore: boolean;
  /** A line as in `/etc/subuid`: its containers get a user namespace with these ids. */
  readonly subIds?: string;
}

/**
 * A Docker daemon for tests that kill it: in namespaces and with data of its
 * own, where it can do the machine's no harm.
 */
export class OwnDocker {
  readonly #directory = newDataDir();
  readonly #init: ChildProcessWithoutNullStreams;

  private constructor({ liveRestore, subIds = "" }: OwnDockerOptions) {
    const args = [...NAMESPACES, "sh", "-c", SCRIPT, "sh", this.#directory, String(liveRestore), subIds];
    this.#init = spawn("unshare", args, { env: ENV });
    const log = createWriteStream(path.join(this.#directory, "log"));
    this.#init.stdout.pipe(log, { end: false });
    this.#init.stderr.pipe(log, { end: false });
    this.#init.stdin.on("error", () => {});
  }

  /** A daemon with an image of the machine's. */
  static async start(image: string, options: OwnDockerOptions): Promise<OwnDocker> {
    const docker = new OwnDocker(options);
    const archive = path.join(docker.#directory, "image.tar");
    await Promise.all([docker.start(), run("docker", ["save", "--output", archive, image])]);
    await docker.ask(["load", "--input", archive]);
    return docker;
  }

  /** As `DOCKER_HOST` is written. */
  get host(): string {
    return `unix://${path.join(this.#directory, "docker.sock")}`;
  }

  /** Starts the daemon; returns when it answers. */
  async start(): Promise<void> {
    this.#init.stdin.write("start\n");
    const answers = (): Promise<boolean> =>
      this.ask(["version"]).then(
        () => true,
        () => false,
      );
    const describe = (): unknown => readFileSync(path.join(this.#directory, "log"), "utf8").slice(-2_000);
    await eventually(answers, { ...PATIENT, describe });
  }

  /** Kills the daemon alone; returns when it answers no more. */
  async kill(): Promise<void> {
    this.#init.stdin.write("kill\n");
    const silent = (): Promise<boolean> =>
      this.ask(["version"]).then(
        () => false,
        () => true,
      );
    await eventually(silent, PATIENT);
  }

  /** What a docker command writes to stdout. */
  async ask(args: readonly string[]): Promise<string> {
    return (await run("docker", ["--host", this.host, ...args], { env: ENV })).stdout;
  }

  /** Ids of its containers, whatever their state. */
  async containers(): Promise<string[]> {
    return (await this.ask(["ps", "--all", "--quiet"])).split("\n").filter((id) => id !== "");
  }

  /** Ends it for good, with all it runs. */
  async stop(): Promise<void> {
    const ids = await this.containers();
    // Their control groups are the machine's, and would stay.
    if (ids.length > 0) await this.ask(["rm", "--force", ...ids]);
    const ended = once(this.#init, "close");
    this.#init.stdin.end();
    await ended;
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
