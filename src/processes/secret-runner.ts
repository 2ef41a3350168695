import type { LeasedSandbox } from "../sandboxes/lease.ts";
import { Redaction } from "./redaction.ts";
import type { Job, JobOutput, JobRequest, JobRunner } from "./shell/job.ts";

/** Knows the secrets that tenants may use. */
interface Secrets {
  /**
   * The values of secrets, in the order of their names.
   * @throws `SECRET_NOT_FOUND` for one that does not exist or is not granted to the owner; the error is the same
   */
  resolve(owner: string, names: readonly string[]): Promise<string[]>;
}

/**
 * Starts jobs with their secrets: puts the values into the environment, and redacts them in the output if requested. No
 * code above this runner ever sees a value.
 */
export class SecretRunner implements JobRunner {
  readonly #runner: JobRunner;
  readonly #secrets: Secrets;

  constructor(runner: JobRunner, secrets: Secrets) {
    this.#runner = runner;
    this.#secrets = secrets;
  }

  async start(
    sandbox: LeasedSandbox,
    request: JobRequest,
    output: JobOutput,
    signal: AbortSignal,
  ): Promise<Job> {
    const { secretEnv = {}, redactSecrets = false, onSecrets, ...plain } = request;
    const references = Object.entries(secretEnv);
    if (references.length === 0) return this.#runner.start(sandbox, plain, output, signal);
    const names = references.map(([, name]) => name);
    const values = await this.#secrets.resolve(sandbox.owner, names);
    const resolved = Object.fromEntries(references.map(([variable], at) => [variable, values[at] ?? ""]));
    const whole = { ...plain, env: { ...plain.env, ...resolved } };
    if (!redactSecrets && onSecrets === undefined) return this.#runner.start(sandbox, whole, output, signal);
    const redaction = await Redaction.of(values);
    onSecrets?.(redaction);
    if (!redactSecrets) return this.#runner.start(sandbox, whole, output, signal);
    const redacted = redaction.output(output);
    const job = await this.#runner.start(sandbox, whole, redacted.data, signal);
    return new RedactedJob(job, redacted.end);
  }
}

/** A job whose output is redacted. It ends after the bytes that were held back are passed on. */
class RedactedJob implements Job {
  readonly pid: number;
  readonly startTime: string;
  readonly unsure: boolean;
  /** Undefined, because a later run of the service would not have these secrets, and could not redact them. */
  readonly trace = undefined;
  readonly end: Job["end"];
  readonly #job: Job;

  constructor(job: Job, flush: () => void) {
    this.#job = job;
    this.pid = job.pid;
    this.startTime = job.startTime;
    this.unsure = job.unsure;
    this.end = job.end.then((end) => {
      flush();
      return end;
    });
  }

  pause(): void {
    this.#job.pause();
  }

  resume(): void {
    this.#job.resume();
  }

  trickle(): void {
    this.#job.trickle();
  }

  writeStdin(data: Uint8Array): Promise<void> {
    return this.#job.writeStdin(data);
  }

  closeStdin(): void {
    this.#job.closeStdin();
  }

  resize(size: Parameters<Job["resize"]>[0]): Promise<void> {
    return this.#job.resize(size);
  }

  hold(): (() => void) | undefined {
    return this.#job.hold();
  }

  close(): void {
    this.#job.close();
  }
}
