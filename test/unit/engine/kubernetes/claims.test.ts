import type { V1DeleteOptions, V1PersistentVolumeClaim, V1Pod } from "@kubernetes/client-node";
import { expect, onTestFinished, test, vi } from "vitest";
import type { Api } from "../../../../src/engine/kubernetes/api.ts";
import { Claims } from "../../../../src/engine/kubernetes/claims.ts";
import { ApiError, NoAnswerError, translateError } from "../../../../src/engine/kubernetes/errors.ts";
import { claimLabel } from "../../../../src/engine/kubernetes/volumes.ts";

type Answer = (method: string, doing: string, body: unknown) => Promise<unknown>;

/** Claims whose API server answers like this, and which have no time to ask what became of a lost answer. */
function claimsOf(answer: Answer, parts: object = {}): Claims {
  const api = {
    namespace: "berth",
    path: (rest: string) => rest,
    call: (method: string, _path: string, doing: string, { body }: { body?: unknown } = {}) =>
      answer(method, doing, body),
  } as unknown as Api;
  vi.spyOn(AbortSignal, "timeout").mockReturnValue(AbortSignal.abort());
  onTestFinished(() => void vi.restoreAllMocks());
  return new Claims({
    ...{ api, assertHeld() {}, facts: { instance: "one" } },
    options: { accessMode: "ReadWriteMany" },
    ...parts,
  } as unknown as ConstructorParameters<typeof Claims>[0]);
}

test("a shared directory that one call uses is not removed because another one lost the answer", async () => {
  let claim: V1PersistentVolumeClaim | undefined;
  const answered = Promise.withResolvers<void>();
  const claims = claimsOf(async (method, doing, body) => {
    if (method === "POST") {
      const isTaken = claim !== undefined;
      claim ??= body as V1PersistentVolumeClaim;
      if (!isTaken) throw translateError(new NoAnswerError(), doing);
      await answered.promise;
      throw translateError(new ApiError(409, "AlreadyExists", "taken"), doing);
    }
    const found = claim;
    if (method === "DELETE") claim = undefined;
    if (found === undefined) throw translateError(new ApiError(404, "NotFound", "none"), doing);
    return found;
  });
  const shared = { name: "berth-shared", owner: "acme", workspaceId: "" };
  const [lost, other] = [claims.make(shared), claims.make(shared)];
  await expect(lost).rejects.toMatchObject({ reason: "ENGINE_UNAVAILABLE" });
  answered.resolve();
  expect(await other).toBe(false);
  expect(await claims.find(shared.name)).toMatchObject({ owner: "acme", problem: undefined });
  await claims.removeLeft();
  expect(claim).toBeDefined();
});

test("a claim that a failed call has created does not count, because it is removed", async () => {
  let claim: unknown;
  const claims = claimsOf(async (method, doing, body) => {
    if (method !== "POST") return claim;
    claim = body;
    throw translateError(new NoAnswerError(), doing);
  });
  const volume = { name: "berth-one", owner: "acme", workspaceId: "one" };
  await expect(claims.make(volume)).rejects.toMatchObject({ reason: "ENGINE_UNAVAILABLE" });
  expect(claim).toBeDefined();
  expect(await claims.find(volume.name)).toBeUndefined();
});

test("a removal that the API server carries out late removes no later claim of the same name", async () => {
  let claim: V1PersistentVolumeClaim | undefined;
  let uids = 0;
  const removals: (() => void)[] = [];
  const claims = claimsOf(async (method, doing, body) => {
    if (method === "POST") {
      const made = body as V1PersistentVolumeClaim;
      claim = { ...made, metadata: { ...made.metadata, uid: `uid-${++uids}` } };
    } else if (method === "DELETE") {
      const { uid } = (body as V1DeleteOptions | undefined)?.preconditions ?? {};
      removals.push(() => {
        if (uid === undefined || uid === claim?.metadata?.uid) claim = undefined;
      });
      if (removals.length === 1) throw translateError(new NoAnswerError(), doing);
      removals.at(-1)?.();
    } else if (claim === undefined) throw translateError(new ApiError(404, "NotFound", "none"), doing);
    return claim;
  });
  const volume = { name: "berth-one", owner: "acme", workspaceId: "one" };
  await claims.make(volume);
  await expect(claims.remove(volume.name)).rejects.toMatchObject({ reason: "ENGINE_UNAVAILABLE" });
  await claims.remove(volume.name);
  expect(claim).toBeUndefined();
  await claims.make(volume);
  removals[0]?.();
  expect(claim).toBeDefined();
});

test("a claim for a single pod is refused while a sandbox or a call has it, but not while a pod of Berth's own goes", async () => {
  const calls: ((error: Error) => void)[] = [];
  const create: Answer = () => new Promise((_, reject) => calls.push(reject));
  const podOf = (role: string): V1Pod => ({
    metadata: { labels: { "berth.dev/role": role, [claimLabel("berth-one")]: "" } },
  });
  const all = [podOf("sandbox")];
  let pods = 0;
  const claims = claimsOf(create, {
    ...{ options: { accessMode: "ReadWriteOncePod", image: "image" }, pods: { all, follow() {} } },
    ...{ newName: () => `pod-${pods++}`, remove: async () => {} },
  });
  const open = () => claims.open("berth-one");
  await expect(open()).rejects.toMatchObject({
    reason: "WORKSPACE_IN_USE",
    message: expect.stringContaining("a sandbox"),
  });
  all[0] = podOf("volume");
  const first = expect(open()).rejects.toThrow("not created");
  await expect(open()).rejects.toMatchObject({
    reason: "WORKSPACE_IN_USE",
    message: expect.stringContaining("another call"),
  });
  calls[0]?.(new Error("not created"));
  await first;
  const second = expect(open()).rejects.toThrow("not created either");
  await vi.waitFor(() => expect(calls).toHaveLength(2));
  calls[1]?.(new Error("not created either"));
  await second;
});
