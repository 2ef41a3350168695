import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { startTestApp, useApp } from "../../support/app.ts";
import { type Client, failureOf } from "../../support/client.ts";
import { DESKTOP_ENGINES, desktopSandbox, TestDesktop } from "../../support/desktop.ts";
import { testsInTurn } from "../../support/engines.ts";
import { eventually } from "../../support/eventually.ts";
import { DESKTOP_IMAGE } from "../../support/images.ts";
import { useLastingApp } from "../../support/lasting-service.ts";
import { Worker } from "../../support/worker.ts";
import { WorkspaceClient } from "../../support/workspaces.ts";

const RECORDED = { record: true, screen_size: [801, 601] };
const PATIENCE = { timeoutMs: 60_000 };
const RED = [0xcc, 0x00, 0x00];
/** The tolerance between two colour values, because video is lossy. */
const TOLERANCE = 24;
const CALLS = 20;

/** A line of a timeline. */
interface Line {
  readonly time: string;
  readonly seconds: number;
  readonly video: string;
  readonly tool: string;
  readonly params: Readonly<Record<string, unknown>>;
  readonly code: number | null;
  readonly message: string;
  readonly duration_ms: number;
  readonly session_restarted: boolean;
  readonly screenshot: string | null;
  readonly recording?: string;
  readonly reason?: string;
}

/** The files in the directory of a recording, as seen from a sandbox. */
class Recording {
  readonly #output: (line: string) => Promise<string>;

  constructor(client: Client, sandboxId: string, directory: string) {
    this.#output = (line) => client.output(sandboxId, `cd '${directory}' && ${line}`);
  }

  async timeline(): Promise<readonly Line[]> {
    const lines = (await this.#output("cat timeline.jsonl")).trim().split("\n");
    return lines.map((line) => JSON.parse(line) as Line);
  }

  async files(): Promise<readonly string[]> {
    return (await this.#output("ls")).trim().split("\n");
  }

  /** The size of a picture. Also checks that its data is complete. */
  async picture(name: string): Promise<string> {
    return (await this.#output(`convert ${name} -format '%wx%h' info:`)).trim();
  }

  async owner(name: string): Promise<string> {
    return (await this.#output(`stat -c %u ${name}; id -u`)).trim();
  }

  /** What ffprobe reports. Also decodes every frame without an error. */
  async video(name: string): Promise<{ size: string; codec: string; duration: number; frames: number }> {
    const shown = "format=duration:stream=width,height,codec_name,nb_read_frames";
    const text = await this.#output(
      `ffprobe -v error -count_frames -show_entries ${shown} -of json ${name} 2>&1`,
    );
    const { streams, format } = JSON.parse(text);
    const [{ width, height, codec_name: codec, nb_read_frames: frames }] = streams;
    return {
      size: `${width}x${height}`,
      codec,
      duration: Number(format.duration ?? 0),
      frames: Number(frames),
    };
  }

  /** Waits until a video that is being recorded has come to a second. A busy machine records late. */
  async reaches(name: string, seconds: number): Promise<void> {
    const shown = "packet=pts_time -of csv=p=0";
    await eventually(
      async () =>
        Number(await this.#output(`ffprobe -v quiet -show_entries ${shown} ${name} | tail -n 1`)) > seconds,
      PATIENCE,
    );
  }

  /** Red, green and blue of a pixel at a time in a video. */
  async pixel(name: string, seconds: number, x: number, y: number): Promise<number[]> {
    const filter = `format=rgb24,crop=1:1:${x}:${y}`;
    const said = await this.#output(
      `ffmpeg -v error -nostdin -ss ${Math.max(0, seconds)} -i ${name} -frames:v 1 -vf ${filter} -f rawvideo - | od -An -tu1`,
    );
    return said.trim().split(/\s+/).map(Number);
  }
}

function isNear(pixel: readonly number[], wanted: readonly number[]): boolean {
  return wanted.every((value, index) => Math.abs(value - (pixel[index] ?? Number.NaN)) <= TOLERANCE);
}

/** Opens a red window. Returns its centre. */
async function openRed(desktop: TestDesktop): Promise<{ x: number; y: number }> {
  const command = [
    "xterm",
    "-bg",
    "#cc0000",
    "-T",
    "red",
    "-geometry",
    "40x12+100+100",
    "-e",
    "sleep",
    "600",
  ];
  const { bounds } = await desktop.open(command, ({ title }) => title === "red");
  const [x, y] = [bounds[0] + Math.floor(bounds[2] / 2), bounds[1] + Math.floor(bounds[3] / 2)];
  await eventually(async () => (await desktop.screenshot()).picture.pixel(x, y) === "#cc0000", PATIENCE);
  return { x, y };
}

describe.each(DESKTOP_ENGINES)("on $name", ({ name, settings }) => {
  const app = useApp(settings);
  const it = testsInTurn(name);
  const workspaces = new WorkspaceClient(() => app.client);
  let sandboxId = "";
  let serial = 0;
  const newDesktop = () => new TestDesktop(new Worker(app.client, `user ${++serial}`));
  const here = () => ({ sandbox_id: sandboxId });
  const image = name === "docker" ? { image: DESKTOP_IMAGE } : {};

  beforeAll(async () => {
    sandboxId = await desktopSandbox(app.client, name);
  });

  /** The recording of a worker's session, in the directory of the sandbox that outlives it. */
  async function recordingOf({ worker }: TestDesktop, inSandbox: string, root: string): Promise<Recording> {
    const [session] = await worker.list();
    const id = session?.session_id.replace(/[^A-Za-z0-9._-]/g, "_");
    return new Recording(app.client, inSandbox, `${root}/recordings/${id}`);
  }

  test("a session leaves a video and a timeline of its calls in its workspace", async () => {
    await workspaces.create("film");
    const desktop = newDesktop();
    const begin = performance.now();
    await desktop.start(RECORDED, { workspace_id: "film" });
    const reader = await workspaces.sandbox("film", image);
    const recording = await recordingOf(desktop, reader, "/workspace");
    await desktop.do("wait", { seconds: 1 });
    const { x, y } = await openRed(desktop);
    await desktop.do("click", { x, y });
    await desktop.do("type", { text: "größer" });
    expect(await desktop.ask("launch", { command: ["no-such-program"] })).toMatchObject({ code: 4001 });
    await failureOf(desktop.ask("click", { x: 5_000 }));
    const timeout = { timeout: { nanos: 200_000_000 } };
    expect(await desktop.worker.execute("vm:wait", { seconds: 30 }, timeout)).toMatchObject({ code: 5006 });
    await desktop.do("wait", { seconds: 1 });
    await desktop.do("done");
    const last = (await recording.timeline()).at(-1)?.seconds ?? Number.NaN;
    await recording.reaches("video.webm", last - 1);
    await desktop.worker.destroy("vm");
    const seconds = (performance.now() - begin) / 1000;

    const lines = await recording.timeline();
    const shape = lines
      .filter(({ tool }) => !["windows", "screenshot"].includes(tool))
      .map(({ tool, code }) => [tool, code]);
    expect(shape).toEqual([
      ["wait", 0],
      ["launch", 0],
      ["click", 0],
      ["type", 0],
      ["launch", 4001],
      ["click", null],
      ["wait", 5006],
      ["wait", 0],
      ["done", 0],
    ]);
    const typed = lines.find(({ tool }) => tool === "type");
    expect(typed).toMatchObject({
      video: "video.webm",
      params: { text: "größer", interval: 0 },
      message: "success",
      session_restarted: false,
    });
    expect(lines.find(({ code }) => code === null)?.message).toMatch(/params\.x: must be below 801/);
    expect(lines.map(({ seconds }) => seconds)).toEqual(
      lines.map(({ seconds }) => seconds).toSorted((a, b) => a - b),
    );
    const pictures = new Set(lines.map(({ screenshot }) => screenshot ?? "none"));
    for (const picture of pictures) expect(await recording.picture(picture)).toBe("801x601");
    expect(await recording.files()).toEqual([...pictures, "timeline.jsonl", "video.webm"].toSorted());
    const [owner, reads] = (await recording.owner("video.webm")).split("\n");
    expect(owner).toBe(reads);

    const video = await recording.video("video.webm");
    expect(video).toMatchObject({ size: "801x601", codec: "vp8" });
    expect(video.duration).toBeGreaterThan(last - 1);
    expect(video.duration).toBeLessThan(seconds);
    expect(video.frames).toBeGreaterThan(5);
    // A line's time is its position in the video.
    const launch = lines.find(({ tool }) => tool === "launch")?.seconds ?? Number.NaN;
    expect(isNear(await recording.pixel("video.webm", launch - 0.3, x, y), RED)).toBe(false);
    const waited = lines.findLast(({ tool }) => tool === "wait")?.seconds ?? Number.NaN;
    expect(await recording.pixel("video.webm", waited + 0.5, x, y)).toSatisfy((pixel: number[]) =>
      isNear(pixel, RED),
    );
  });

  it("without a place that outlives it, it is INVALID_ARGUMENT, and the session before stays", async () => {
    const desktop = newDesktop();
    const { failure } = await desktop.worker.create("vm", { record: true });
    expect(failure).toMatchObject({
      detail: { reason: "ERROR_REASON_INVALID_ARGUMENT" },
      message: expect.stringMatching(/config\.record: needs a place that outlives the session.*workspace_id/),
    });
    await desktop.worker.create("bash");
    await desktop.start({ screen_size: [640, 480] });
    const before = await desktop.worker.list();
    const refused = await failureOf(desktop.worker.reinitialize("vm", { record: true }));
    expect(refused).toMatchObject({
      reason: "INVALID_ARGUMENT",
      message: expect.stringMatching(/config\.record/),
    });
    expect((await desktop.worker.list()).map(({ session_id: id }) => id)).toEqual(
      before.map(({ session_id: id }) => id),
    );
    expect(await desktop.do("move", { x: 1, y: 1 })).toMatchObject({ session_restarted: false });
    await desktop.worker.destroy();
  });

  it("a sandbox without ffmpeg is refused by name, and so is one whose directory is a file", async () => {
    await app.client.output(
      sandboxId,
      "mkdir /tmp/bin /tmp/full && ln -s /usr/bin/* /tmp/bin && rm /tmp/bin/ffmpeg && touch /tmp/full/recordings",
    );
    const desktop = newDesktop();
    const lacking = await desktop.worker.create("vm", { ...RECORDED, env: { PATH: "/tmp/bin" } }, here());
    expect(lacking.failure).toMatchObject({
      detail: { reason: "ERROR_REASON_SESSION_START_FAILED" },
      message: expect.stringMatching(/has no ffmpeg.*berth\/desktop.*config\.record/),
    });
    const unwritable = await desktop.worker.create("vm", { ...RECORDED, cwd: "/tmp/full" }, here());
    expect(unwritable.failure).toMatchObject({
      detail: { reason: "ERROR_REASON_SESSION_START_FAILED" },
      message: expect.stringMatching(/recording cannot be written into \/tmp\/full\/recordings/),
    });
    expect(await desktop.worker.list()).toEqual([]);
  });

  it("a session continues if its recorder ends, and says so; if its screen ends, in a further video", async () => {
    const desktop = newDesktop();
    await desktop.start(RECORDED, here());
    const recording = await recordingOf(desktop, sandboxId, "/workspace");
    await desktop.do("move", { x: 10, y: 10 });
    await app.client.output(sandboxId, "pkill -KILL -x ffmpeg");
    const told = await eventually(async () => {
      const data = await desktop.do("move", { x: 20, y: 20 });
      return data.recording !== undefined && data;
    }, PATIENCE);
    expect(told).toMatchObject({
      recording: "stopped",
      recording_error: "ffmpeg ended by signal 9",
      session_restarted: false,
    });
    await app.client.output(sandboxId, "pkill -KILL -x Xvfb");
    await eventually(
      () =>
        desktop.do("move").then(
          ({ session_restarted }) => session_restarted === true,
          () => false,
        ),
      PATIENCE,
    );
    expect(await desktop.do("move", { x: 30, y: 30 })).not.toHaveProperty("recording");
    await desktop.do("wait", { seconds: 1 });
    await recording.reaches("video-2.webm", 0.5);
    await desktop.worker.destroy("vm");
    const lines = await recording.timeline();
    expect(lines.filter(({ reason }) => reason !== undefined)).toEqual([
      expect.objectContaining({ recording: "stopped", reason: "ffmpeg ended by signal 9" }),
    ]);
    expect(lines.find(({ session_restarted }) => session_restarted)).toMatchObject({
      video: "video-2.webm",
    });
    expect(lines.at(-1)).toMatchObject({ tool: "wait", video: "video-2.webm" });
    expect((await recording.video("video-2.webm")).duration).toBeGreaterThan(0.5);
    expect((await recording.files()).filter((file) => file.endsWith("webm"))).toEqual([
      "video-2.webm",
      "video.webm",
    ]);
  });

  it("another size or the session's end completes it, and leaves no process", async () => {
    const desktop = newDesktop();
    await desktop.start({ ...RECORDED, cwd: "/tmp" }, here());
    const first = await recordingOf(desktop, sandboxId, "/tmp");
    await desktop.do("wait", { seconds: 0.5 });
    await desktop.worker.reinitialize("vm", { ...RECORDED, screen_size: [1280, 720], cwd: "/tmp" });
    const second = await recordingOf(desktop, sandboxId, "/tmp");
    await desktop.do("wait", { seconds: 0.5 });
    await desktop.worker.destroy("vm");
    expect(await first.video("video.webm")).toMatchObject({ size: "801x601", codec: "vp8" });
    expect((await first.video("video.webm")).duration).toBeGreaterThan(0);
    expect(await second.video("video.webm")).toMatchObject({ size: "1280x720" });
    expect((await second.video("video.webm")).duration).toBeGreaterThan(0);
    expect(await app.client.output(sandboxId, "pgrep -l 'ffmpeg|Xvfb' || true")).toBe("");
  });

  it("a recorder that ends only later completes its video", async () => {
    const desktop = newDesktop();
    await desktop.start({ ...RECORDED, cwd: "/tmp" }, here());
    const recording = await recordingOf(desktop, sandboxId, "/tmp");
    await recording.reaches("video.webm", 0.5);
    await app.client.output(
      sandboxId,
      "pkill -STOP -x ffmpeg; (sleep 4; pkill -CONT -x ffmpeg) >/dev/null 2>&1 &",
    );
    await desktop.worker.destroy("vm");
    expect((await recording.video("video.webm")).duration).toBeGreaterThan(0.5);
  });

  it("a click of a recorded session takes little longer", async () => {
    const [recorded, plain] = [newDesktop(), newDesktop()];
    await recorded.start({ record: true }, here());
    await plain.start({}, here());
    const share = async (): Promise<number> => {
      const times = { recorded: [] as number[], plain: [] as number[] };
      for (let round = 0; round < CALLS; round++) {
        for (const [kind, desktop] of [
          ["recorded", recorded],
          ["plain", plain],
        ] as const) {
          const start = performance.now();
          await desktop.do("click", { x: 10 + round, y: 10 });
          times[kind].push(performance.now() - start);
        }
      }
      const median = (all: number[]) => all.toSorted((a, b) => a - b)[CALLS / 2] ?? Number.NaN;
      const [slow, fast] = [median(times.recorded), median(times.plain)];
      console.log(`${name}: a click takes ${slow.toFixed(1)} ms recorded, ${fast.toFixed(1)} ms otherwise`);
      return (slow - fast) / Math.max(150, fast);
    };
    // Of 150 ms, or of a click on a busy machine, where either may also be slow by chance.
    await expect.poll(share, { timeout: 120_000 }).toBeLessThan(1);
    await Promise.all([recorded.worker.destroy("vm"), plain.worker.destroy("vm")]);
  });
});

// A small disk that nothing else uses. With bubblewrap, /dev/shm is not separate.
describe("on docker, with a full disk", () => {
  const app = useApp({ engine: "docker" });

  test("a session continues without its recording, and says so", async () => {
    const sandboxId = await desktopSandbox(app.client, "docker");
    const desktop = new TestDesktop(new Worker(app.client, "user"));
    await desktop.start({ ...RECORDED, cwd: "/dev/shm" }, { sandbox_id: sandboxId });
    await desktop.do("move", { x: 1, y: 1 });
    const filled = await app.client.run(sandboxId, "cat /dev/zero > /dev/shm/zeros");
    expect(filled.stderr.toString()).toMatch(/No space left/);
    const told = await eventually(async () => {
      await openRed(desktop);
      const data = await desktop.do("move", { x: 2, y: 2 });
      return data.recording !== undefined && data;
    }, PATIENCE);
    expect(told).toMatchObject({
      recording: "stopped",
      recording_error: expect.stringMatching(/No space left/),
      session_restarted: false,
    });
    expect((await desktop.screenshot()).picture.width).toBe(801);
    await desktop.worker.destroy("vm");
    await app.client.deleteSandbox(sandboxId);
  });
});

describe.each(DESKTOP_ENGINES)("on $name, when the service stops", ({ name, settings }) => {
  test("the video is complete", async () => {
    const image = name === "docker" ? { image: DESKTOP_IMAGE } : {};
    const recordingIn = async (client: Client, sessionId = ""): Promise<Recording> => {
      const reader = await new WorkspaceClient(() => client).sandbox("film", image);
      return new Recording(client, reader, `/workspace/recordings/${sessionId}`);
    };
    const dataDir = await mkdtemp(path.join(tmpdir(), "berth-recordings-"));
    try {
      const first = await startTestApp({ ...settings, dataDir });
      await new WorkspaceClient(() => first.client).create("film");
      const desktop = new TestDesktop(new Worker(first.client, "user"));
      await desktop.start(RECORDED, { workspace_id: "film" });
      const [session] = await desktop.worker.list();
      await desktop.do("wait", { seconds: 1 });
      await (await recordingIn(first.client, session?.session_id)).reaches("video.webm", 0.8);
      const cut = failureOf(desktop.ask("wait", { seconds: 60 }));
      await eventually(async () => (await desktop.worker.list())[0]?.active_calls === 1);
      await first.app.stop();
      await cut;
      first.client.close();

      const second = await startTestApp({ ...settings, dataDir, instance: first.instance });
      try {
        const recording = await recordingIn(second.client, session?.session_id);
        // An incomplete video has no duration.
        expect((await recording.video("video.webm")).duration).toBeGreaterThan(0.8);
        expect((await recording.timeline()).map(({ tool, code }) => [tool, code])).toEqual([
          ["wait", 0],
          ["wait", null],
        ]);
      } finally {
        await second.stop();
      }
    } finally {
      await rm(dataDir, { recursive: true, force: true });
    }
  });
});

describe.each(DESKTOP_ENGINES)("on $name, when the service is killed", ({ name, settings }) => {
  const service = useLastingApp({
    BERTH_ENGINE: name,
    BERTH_DESKTOP_IMAGE: DESKTOP_IMAGE,
    ...(settings.rootfs !== undefined && { BERTH_ROOTFS: settings.rootfs }),
  });
  const image = name === "docker" ? { image: DESKTOP_IMAGE } : {};

  test("the video can be played; a session whose sandbox stays continues in a further one", async () => {
    const workspaces = new WorkspaceClient(() => service.client);
    await workspaces.create("film");
    const worker = new Worker(service.client, "user");
    const desktop = new TestDesktop(worker);
    await desktop.start(RECORDED, { workspace_id: "film" });
    const [session] = await worker.list();
    await desktop.do("wait", { seconds: 3 });
    await desktop.do("move", { x: 1, y: 1 });
    await service.kill();
    await service.begin();
    const reader = await workspaces.sandbox("film", image);
    const recording = new Recording(service.client, reader, `/workspace/recordings/${session?.session_id}`);
    const { size, frames } = await recording.video("video.webm");
    expect(size).toBe("801x601");
    expect(frames).toBeGreaterThan(2);
    expect((await recording.timeline())[0]).toMatchObject({ tool: "wait", video: "video.webm" });
    // Sandboxes of bubblewrap end with the service.
    if (name === "bubblewrap") return;
    await eventually(async () => (await recording.video("video.webm")).duration > 2, PATIENCE);
    const again = new TestDesktop(new Worker(service.client, "user"));
    expect(await again.do("move", { x: 2, y: 2 })).toMatchObject({ session_restarted: true });
    await again.do("wait", { seconds: 1 });
    await recording.reaches("video-2.webm", 0.5);
    await again.worker.destroy("vm");
    expect((await recording.video("video-2.webm")).duration).toBeGreaterThan(0.5);
    expect((await recording.timeline()).map(({ tool, video }) => [tool, video])).toEqual([
      ["wait", "video.webm"],
      ["move", "video.webm"],
      ["move", "video-2.webm"],
      ["wait", "video-2.webm"],
    ]);
  });
});
