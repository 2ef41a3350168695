import type { Defect } from "./defect.ts";

const API = "src/engine/kubernetes/api.ts";
const API_TEST = "test/unit/engine/kubernetes/api.test.ts";
const DIAGNOSE = "src/engine/kubernetes/diagnose.ts";
const PROCESS = "src/engine/kubernetes/process.ts";
const ENGINE_TEST = "test/unit/engine/kubernetes/engine.test.ts";
const PROCESS_TEST = "test/unit/engine/kubernetes/process.test.ts";
const SCRIPTS = "src/engine/kubernetes/scripts.ts";
const SCRIPTS_TEST = "test/unit/engine/kubernetes/scripts.test.ts";
const VOLUMES = "src/engine/kubernetes/volumes.ts";
const VOLUMES_TEST = "test/unit/engine/kubernetes/volumes.test.ts";
const TRUTH = "test/integration/kubernetes/truth.kubernetes.ts";
const FAULTS = "test/integration/kubernetes/faults.kubernetes.ts";
const DISRUPTION = "test/unit/engine/kubernetes/disruption.test.ts";
const NETWORK = "test/integration/kubernetes/network.kubernetes.ts";
const POLICIES = "test/unit/engine/kubernetes/network-policies.test.ts";
const RANGES = "src/engine/kubernetes/network/policies.ts";

/** Those of the Kubernetes engine. */
export const KUBERNETES_DEFECTS: readonly Defect[] = [
  {
    name: "in a pod, variables that a shell would change need a PATH with env in it",
    changes: [{ file: "src/engine/kubernetes/scripts.ts", from: "[ ! -x /usr/bin/env ] ||", to: "true ||" }],
    test: {
      file: "test/integration/engine/kubernetes/spawn-script.test.ts",
      title: "in %s, variables that a shell would change reach a process whose PATH has no programs",
      row: "dash",
    },
  },
  {
    name: "berth doctor removes the network policies of a service whose instance begins like a doctor's",
    changes: [
      {
        file: "src/engine/kubernetes/diagnose.ts",
        from: "/^doctor-[0-9a-f]{8}$/",
        to: "/^doctor-/",
      },
    ],
    test: {
      file: "test/unit/engine/kubernetes/diagnose.test.ts",
      title: "what a killed doctor left behind is removed, and nothing of a service that is called like one",
    },
  },
  {
    name: "an API server whose name cannot be looked up ends the service in the words of the system",
    changes: [
      {
        file: "src/engine/kubernetes/network/keeper.ts",
        from: 'throw translateError(error, "looking up the API server");',
        to: "void translateError;\n    throw error;",
      },
    ],
    test: {
      file: "test/unit/engine/kubernetes/network-keeper.test.ts",
      title: "an API server whose name cannot be looked up is reported as such",
    },
  },
  {
    name: "kubernetes: renewed certificates are used only after a restart",
    changes: [{ file: API, from: "{ keepAlive: true, ca, cert, key }", to: "{ keepAlive: true }" }],
    test: {
      file: API_TEST,
      title: "renewed certificates are used, those of the service and those that it trusts",
    },
  },
  {
    name: "kubernetes: calls do not use the proxy of the kubeconfig",
    changes: [
      {
        file: API,
        from: "import { type AgentOptions, request as httpsRequest,",
        to: "import { Agent as HttpsAgent, type AgentOptions, request as httpsRequest,",
      },
      {
        file: API,
        from: "if (options.agent instanceof Agent) renew(options.agent, options);",
        to: "if (options.agent instanceof HttpsAgent) options.agent = new HttpsAgent(options.agent.options);",
      },
    ],
    test: { file: API_TEST, title: "calls and processes use the proxy of the kubeconfig" },
  },
  {
    name: "kubernetes: a request has newlines within characters, which bash takes for a part of them",
    changes: [
      {
        file: SCRIPTS,
        from: "    while (((bytes[end] ?? 0) & 0xc0) === 0x80) end--;\n",
        to: "",
      },
    ],
    test: {
      file: SCRIPTS_TEST,
      title: "a long request reaches bash unchanged where the locale is UTF-8",
    },
  },
  {
    name: "kubernetes: a watch that is not answered counts as canceled",
    changes: [
      {
        file: API,
        from: "translateError(!isOpen && late.aborted ? new NoAnswerError() : error, doing, signal)",
        to: "translateError(error, doing, signal)",
      },
    ],
    test: { file: API_TEST, title: "a watch that is not answered in time fails, and its request ends" },
  },
  {
    name: "kubernetes: a watch that is not answered keeps its connection",
    changes: [
      {
        file: API,
        from: "      answer?.destroy();\n      over.abort();\n",
        to: "      answer?.destroy();\n",
      },
    ],
    test: { file: API_TEST, title: "a watch that is not answered in time fails, and its request ends" },
  },
  {
    name: "kubernetes: the user of an image lacks the groups that the image gives it",
    changes: [{ file: SCRIPTS, from: 'U "$u" && [ "$BERTHZ_GID" = "$g" ] || u=$u:$g', to: "u=$u:$g" }],
    test: {
      file: SCRIPTS_TEST,
      title: "an image's user %s",
      row: "with its own group keeps all that the image gives it",
    },
  },
  {
    name: "kubernetes: the HOME of an image is replaced by that of /etc/passwd",
    changes: [{ file: SCRIPTS, from: " || [ -e ${SETS_HOME} ]", to: "" }],
    test: {
      file: "test/integration/engine/kubernetes/spawn-script.test.ts",
      title: "in %s, the HOME of an image applies to all users, as on Docker",
      row: "dash",
    },
  },
  {
    name: "kubernetes: output that arrives with the acceptance of an exec is lost",
    changes: [
      {
        file: API,
        from: 'socket.once("open", () => socket.pause());',
        to: "",
      },
    ],
    test: {
      file: API_TEST,
      title: "output that arrives together with the acceptance of an exec is not lost",
    },
  },
  {
    name: "kubernetes: new limits of a pod count before its kubelet has applied them",
    changes: [
      {
        file: "src/engine/kubernetes/engine.ts",
        from: "    await untilResized(this.#pods, ref, resources, () => void this.#running(ref), signal);\n",
        to: "",
      },
    ],
    test: {
      file: "test/integration/kubernetes/resize.kubernetes.ts",
      title: "has the limits of its claim from its first command on",
    },
  },
  {
    name: "kubernetes: limits of a warm sandbox that cannot be changed fail the create",
    changes: [
      {
        file: "src/engine/kubernetes/engine.ts",
        from: "throw resizeRefused(error);",
        to: "throw error;",
      },
    ],
    test: {
      file: "test/unit/engine/kubernetes/engine.test.ts",
      title: "a change of limits that the API server refuses is UNSUPPORTED: %s",
      row: "smaller memory",
    },
  },
  {
    name: "kubernetes: berth doctor does not say why its probe pod did not start, and leaves it",
    changes: [
      {
        file: DIAGNOSE,
        from: "engine.ensureImage(image, {})",
        to: "engine.ensureImage(image, { signal: AbortSignal.timeout(900) })",
      },
    ],
    test: {
      file: "test/unit/engine/kubernetes/diagnose.test.ts",
      title: "a probe pod that does not start in time is reported with the cause, and removed",
    },
  },
  {
    name: "kubernetes: berth doctor does not say that the API server does not answer",
    changes: [
      {
        file: DIAGNOSE,
        from: "engine.info()",
        to: "engine.info(AbortSignal.timeout(CALL_TIMEOUT_MS))",
      },
    ],
    test: {
      file: "test/unit/engine/kubernetes/diagnose.test.ts",
      title: "an API server that does not answer is reported as that",
    },
  },
  {
    name: "kubernetes: a shared directory that a sandbox uses is removed, because a call lost the answer",
    changes: [
      {
        file: "src/engine/kubernetes/claims.ts",
        from: 'if (volume.workspaceId !== "")',
        to: "if (volume.name)",
      },
    ],
    test: {
      file: "test/unit/engine/kubernetes/claims.test.ts",
      title: "a shared directory that one call uses is not removed because another one lost the answer",
    },
  },
  {
    name: "kubernetes: a claim that a failed call created late keeps its workspace from being created",
    changes: [
      {
        file: "src/engine/kubernetes/claims.ts",
        from: "isOurs && !isLeft ?",
        to: "(isOurs || isLeft) ?",
      },
    ],
    test: {
      file: "test/unit/engine/kubernetes/claims.test.ts",
      title: "a claim that a failed call has created does not count, because it is removed",
    },
  },
  {
    name: "kubernetes: a sandbox with several workspaces is scheduled away from the node that has one of them",
    changes: [
      {
        file: VOLUMES,
        from: "operators.length + claims.length > 1 ? nodeOf(claims, others) : undefined",
        to: "undefined as string | undefined",
      },
    ],
    test: {
      file: VOLUMES_TEST,
      title: "a pod with several claims is scheduled on the node of a pod that has one of them",
    },
  },
  {
    name: "kubernetes: an operator's affinity to pods leaves no node to sandboxes with a workspace",
    changes: [
      {
        file: VOLUMES,
        from: `...(operators.length === 0 && {
      podAffinity: { ...podAffinity, requiredDuringSchedulingIgnoredDuringExecution: terms },
    }),`,
        to: `podAffinity: {
      ...podAffinity,
      requiredDuringSchedulingIgnoredDuringExecution: [...operators, ...terms],
    },`,
      },
    ],
    test: {
      file: VOLUMES_TEST,
      title: "the operator's terms stay alone, since the scheduler wants one pod that matches all terms",
    },
  },
  {
    name: "kubernetes: the service has rights that nothing uses",
    changes: [
      {
        file: "deploy/kubernetes/rbac.yaml",
        from: "resources: [pods/exec]",
        to: "resources: [pods/exec, pods/portforward]",
      },
    ],
    test: {
      file: "test/integration/kubernetes/rights.kubernetes.ts",
      title: "permit nothing else beyond what every account has",
    },
  },
  {
    name: "kubernetes: a template with empty containers is accepted, and fails each create",
    changes: [
      {
        file: "src/engine/kubernetes/template.ts",
        from: "!Array.isArray(containers) ||",
        to: "Array.isArray(containers) &&",
      },
    ],
    test: {
      file: "test/unit/engine/kubernetes/template.test.ts",
      title: "a template with %s is refused",
      row: "empty containers",
    },
  },
  {
    name: "kubernetes: variables of a sandbox that are named like the kubelet's are dropped",
    changes: [{ file: SCRIPTS, from: " && !CLUSTER_VARIABLES.includes(name)", to: "" }],
    test: {
      file: "test/unit/engine/kubernetes/engine.test.ts",
      title: "a process is given the variables of its sandbox that the script of pods drops",
    },
  },
  {
    name: "a start that waits for another service's lease cannot be stopped",
    changes: [
      {
        file: "src/engine/choose.ts",
        from: "{ ...options, holder: await holderOf(settings.dataDir) }, signal);",
        to: "{ ...options, holder: await holderOf(settings.dataDir) });",
      },
    ],
    test: {
      file: "test/unit/engine/choose.test.ts",
      title: "a start that waits for another service to leave its instance on Kubernetes can be stopped",
    },
  },
  {
    name: "a claim for a single pod is refused for a moment after each call, as if a sandbox had it",
    changes: [{ file: "src/engine/kubernetes/claims.ts", from: "labels[ROLE_LABEL] !== WORK && ", to: "" }],
    test: {
      file: "test/unit/engine/kubernetes/claims.test.ts",
      title:
        "a claim for a single pod is refused while a sandbox or a call has it, but not while a pod of Berth's own goes",
    },
  },
  {
    name: "a process whose shell in the pod ends without reporting its end never ends",
    changes: [
      {
        file: PROCESS,
        from: "const isReported = this.#hasEnded && code === SPAWN_EXIT;",
        to: "const isReported = code === SPAWN_EXIT;",
      },
    ],
    test: {
      file: PROCESS_TEST,
      title: "a process whose shell in the pod ends without reporting its end is lost",
    },
  },
  {
    name: "a Success of Kubernetes without a mark counts as 0",
    changes: [
      {
        file: "src/engine/kubernetes/process.ts",
        from: "if (!this.#terminal) return isReported ? undefined : this.#start.whyLost(status);",
        to: `if (status?.status === "Success") this.#code.resolve(0);
    if (!this.#terminal) return isReported ? undefined : this.#start.whyLost(status);`,
      },
    ],
    test: {
      file: TRUTH,
      title: "a Success of Kubernetes without Berth's mark is not an exit code",
    },
  },
  {
    name: "pods are not listed again where the API server forgot what changed",
    changes: [
      {
        file: "src/engine/kubernetes/pods.ts",
        from: "          version = undefined;\n",
        to: "          await sleep(MAX_RETRY_MS);\n",
      },
    ],
    test: {
      file: TRUTH,
      title: "events that the API server has forgotten are noticed all the same",
    },
  },
  {
    name: "the pod of a create that failed stays",
    changes: [
      {
        file: "src/engine/kubernetes/engine.ts",
        from: "await within(this.#removeNamed(name), isAway ? 0 : CLEAN_UP_MS);",
        to: "await Promise.resolve();",
      },
    ],
    test: { file: TRUTH, title: "a create that fails leaves no pod" },
  },
  {
    name: "a lost node gives no cause",
    changes: [
      {
        file: "src/engine/kubernetes/disruption.ts",
        from: 'if (reason === "DeletionByPodGC") return true;',
        to: "",
      },
    ],
    test: { file: DISRUPTION, title: "a node that Kubernetes has given up is lost: %s", row: "collected" },
  },
  {
    name: "a node with a taint counts as lost though it answers",
    changes: [
      {
        file: "src/engine/kubernetes/disruption.ts",
        from: 'reason === "DeletionByTaintManager" && isNodeSilent(pod)',
        to: 'reason === "DeletionByTaintManager"',
      },
    ],
    test: { file: DISRUPTION, title: "an end on a node that answers is not a lost node: %s", row: "tainted" },
  },
  {
    name: "the lease on the instance is not checked",
    changes: [{ file: "src/engine/kubernetes/lease.ts", from: "      if (isFree) {\n", to: "      {\n" }],
    test: {
      file: "test/integration/kubernetes/lease.kubernetes.ts",
      title: "is refused to the second, with the first one's name, until that one is gone",
    },
  },
  {
    name: "kubernetes: EGRESS reaches private addresses",
    changes: [{ file: RANGES, from: "without: NOT_PUBLIC_IPV4.map(cidr)", to: "without: []" }],
    test: { file: POLICIES, title: "not %s, which is not", row: "10.0.0.1" },
  },
  {
    name: "kubernetes: EGRESS reaches private addresses of IPv6",
    changes: [
      { file: RANGES, from: "range: cidr(GLOBAL_IPV6), without", to: 'range: cidr("::/0"), without' },
      { file: RANGES, from: "GLOBAL_IPV6, ", to: "" },
    ],
    test: { file: POLICIES, title: "not %s, which is not", row: "fd00::1" },
  },
  {
    name: "kubernetes: an operator opens the metadata address by a wide range",
    changes: [{ file: RANGES, from: '"169.254.0.0/16", ', to: "" }],
    test: { file: POLICIES, title: "a wide range does not open metadata addresses or loopback" },
  },
  {
    name: "kubernetes: whoever is in the cluster connects to a sandbox",
    changes: [
      { file: "src/engine/kubernetes/network/policies.ts", from: "ingress: [],", to: "ingress: [{}]," },
    ],
    test: { file: POLICIES, title: "select only its pods, and let nothing in" },
  },
  {
    name: "kubernetes: a policy of others that opens all pods is not seen",
    changes: [
      {
        file: "src/engine/kubernetes/network/policies.ts",
        from: "return (spec.ingress ?? []).length > 0 || (spec.egress ?? []).length > 0;",
        to: "return false;",
      },
    ],
    test: { file: POLICIES, title: "others' that select %s are seen for what they open", row: "all pods" },
  },
  {
    name: "kubernetes: the operator's word counts, whatever the test reached",
    changes: [
      {
        file: "src/engine/kubernetes/engine.ts",
        from: "    await this.#guard?.require(spec.network, signal);\n",
        to: "",
      },
    ],
    test: {
      file: NETWORK,
      title: "the operator's setting does not count: sandboxes are refused with what a test reached",
    },
  },
  {
    name: "kubernetes: pods have the token of a service account",
    changes: [
      {
        file: "src/engine/kubernetes/pod.ts",
        from: "automountServiceAccountToken: false",
        to: "automountServiceAccountToken: true",
      },
    ],
    test: {
      file: "test/unit/engine/kubernetes/pod.test.ts",
      title: "has no token, no link to services, no privilege, and the default filter of system calls",
    },
  },
  {
    name: "kubernetes: a service whose instance was taken works on",
    changes: [
      {
        file: "src/engine/kubernetes/lease.ts",
        from: "  assertHeld(): void {\n",
        to: "  assertHeld(): void {\n    return;\n",
      },
    ],
    test: {
      file: "test/integration/kubernetes/lease.kubernetes.ts",
      title: "lost by a running service makes it say so, and create and remove nothing more",
    },
  },
  {
    name: "kubernetes: a network policy that somebody changed stays so",
    changes: [
      {
        file: "src/engine/kubernetes/network/keeper.ts",
        from: "if (found !== undefined && isSame(found, wanted)) return;",
        to: "if (found !== undefined) return;",
      },
    ],
    test: { file: NETWORK, title: "a policy that was deleted or changed is restored" },
  },
  {
    name: "kubernetes: another pod of a sandbox's name is removed in its place",
    changes: [
      {
        file: "src/engine/kubernetes/engine.ts",
        from: "const body = { gracePeriodSeconds, ...(uid !== undefined && { preconditions: { uid } }) };",
        to: "const body = { gracePeriodSeconds };",
      },
    ],
    test: {
      file: "test/integration/kubernetes/refusals.kubernetes.ts",
      title: "of the same name belongs to others and is left alone",
    },
  },
  {
    name: "kubernetes: a claim of another instance counts as one's own",
    changes: [
      {
        file: "src/engine/kubernetes/claims.ts",
        from: "return isOurs && !isLeft ?",
        to: "void isOurs;\n    return !isLeft ?",
      },
    ],
    test: {
      file: "test/integration/kubernetes/workspaces.kubernetes.ts",
      title: "a claim of another instance is neither found nor removed",
    },
  },
  {
    name: "kubernetes: a create waits for an API server that answers nothing",
    changes: [{ file: API, from: "if (!isAnswered) return silent.abort();", to: "" }],
    test: {
      file: FAULTS,
      title:
        "an API server that stops answering fails a create in seconds; what it created all the same is removed later",
    },
  },
  {
    name: "kubernetes: a claim that was created although nobody said so keeps its workspace's id",
    changes: [
      {
        file: "src/engine/kubernetes/claims.ts",
        from: "    await this.#removeUnsure(volume.name);\n",
        to: "",
      },
    ],
    test: {
      file: FAULTS,
      title: "that an API server created before it went away does not keep its workspace's id",
    },
  },
  {
    name: "kubernetes: a create returns a sandbox that is about to end",
    changes: [
      {
        file: "src/engine/kubernetes/start.ts",
        from: "  await throwIfEnding(parts, pod, 0);\n",
        to: "",
      },
    ],
    test: {
      file: "test/integration/kubernetes/deletions.kubernetes.ts",
      title: "%s before its set-up fails with that",
      row: "an operator evicts",
    },
  },
  {
    name: "kubernetes: an outage of the watch is reported at each retry",
    changes: [
      {
        file: "src/engine/kubernetes/pods.ts",
        from: "        for await (const event of",
        to: "        this.#broken = undefined;\n        for await (const event of",
      },
    ],
    test: {
      file: "test/unit/engine/kubernetes/pods.test.ts",
      title: "an outage of the watch is reported once, until the watch is open again",
    },
  },
  {
    name: "kubernetes: a node that joins looks as if somebody had changed a network policy",
    changes: [
      {
        file: "src/engine/kubernetes/network/keeper.ts",
        from: "if (made !== undefined && (found === undefined || !isSame(found, made)))",
        to: "if (made !== undefined)",
      },
    ],
    test: {
      file: "test/unit/engine/kubernetes/network-keeper.test.ts",
      title: "policies that follow the cluster's nodes were changed by nobody else",
    },
  },
  {
    name: "kubernetes: what a pod writes before a process starts takes any amount of memory",
    changes: [
      { file: PROCESS, from: "if (this.#earlyBytesLeft < 0 && !this.#isSlow) this.trickle();", to: "" },
    ],
    test: {
      file: PROCESS_TEST,
      title:
        "what a pod writes before a process starts is read slowly beyond a bound, and arrives once it has started",
    },
  },
  {
    name: "kubernetes: what a command of Berth's own prints is read without end",
    changes: [
      {
        file: PROCESS,
        from: "if (bytes > MAX_PLAIN_BYTES) resolve(undefined);\n        else text",
        to: "text",
      },
    ],
    test: { file: PROCESS_TEST, title: "one of Berth's own commands is given up when it prints without end" },
  },
  {
    name: "kubernetes: what a command of Berth's own prints byte by byte is put together up to a million times",
    changes: [
      {
        file: PROCESS,
        from: "        bytes += chunk.length + BYTES_PER_CHUNK;",
        to: "        bytes += chunk.length;",
      },
    ],
    test: {
      file: PROCESS_TEST,
      title: "of one of Berth's own commands only some thousands of tiny pieces are taken",
    },
  },
  {
    name: "kubernetes: a list of pods with many variables fails, however often it is repeated",
    changes: [{ file: API, from: "if (limit > 1 && isTooLarge(error)) return undefined;", to: "" }],
    test: { file: API_TEST, title: "large objects are listed in smaller pages" },
  },
  {
    name: "kubernetes: each chunk of a large object of a watch is searched together with all before it",
    changes: [
      { file: API, from: 'chunk.split("\\n");', to: '`${line}${chunk}`.split("\\n");' },
      { file: API, from: "        line += first;", to: "        line = first;" },
    ],
    test: {
      file: API_TEST,
      title: "the chunks of a large object of a watch are each searched for its end once",
    },
  },
  {
    name: "kubernetes: a sandbox whose init container fails is blamed on its /bin/sh",
    changes: [
      {
        file: "src/engine/kubernetes/start.ts",
        from: "if (terminated === undefined) throwIfInitFailed(pod);",
        to: "void throwIfInitFailed;",
      },
    ],
    test: { file: ENGINE_TEST, title: "a create whose init container %s says so", row: "fails" },
  },
  {
    name: "kubernetes: a create whose init container has no image fails after two minutes, without the cause",
    changes: [
      {
        file: "src/engine/kubernetes/start.ts",
        from: "const waiting = waitingStatus(pod);",
        to: "const waiting = containerStatus(pod);",
      },
    ],
    test: {
      file: ENGINE_TEST,
      title: "a create whose init container %s says so",
      row: "has an image that cannot be pulled",
    },
  },
  {
    name: "kubernetes: right after a start, a sandbox whose use is asked for is gone",
    changes: [
      {
        file: "src/engine/kubernetes/engine.ts",
        from: "await this.#pods.follow(signal);\n    this.#running(ref);",
        to: "this.#running(ref);",
      },
    ],
    test: { file: ENGINE_TEST, title: "what a sandbox uses can be asked for before the pods are listed" },
  },
  {
    name: "kubernetes: newlines of a process's arguments hold up the service",
    changes: [
      {
        file: SCRIPTS,
        from: 'quote(word).split("\\n").join(`\'"$BERTHZ_NL"\'`)',
        to: 'quote(word).replaceAll("\\n", `\'"$BERTHZ_NL"\'`)',
      },
    ],
    test: { file: SCRIPTS_TEST, title: "newlines take about as long as the text that they become" },
  },
  {
    name: "kubernetes: an object that is too large is the engine's failure",
    changes: [
      {
        file: "src/engine/kubernetes/errors.ts",
        from: "status === 422 || TOO_LARGE.test(message)",
        to: "status === 422",
      },
      { file: "src/engine/kubernetes/errors.ts", from: "const TOO_LARGE", to: "export const TOO_LARGE" },
    ],
    test: {
      file: "test/unit/engine/kubernetes/errors.test.ts",
      title: "because it is too large is the caller's mistake, not the engine's",
    },
  },
  {
    name: "kubernetes: a create does not say why Kubernetes could not run its set-up",
    changes: [
      {
        file: "src/engine/kubernetes/start.ts",
        from: "throw startError(status) ?? new",
        to: "void startError;\n    throw new",
      },
    ],
    test: { file: ENGINE_TEST, title: "a create whose set-up Kubernetes cannot run says why" },
  },
  {
    name: "kubernetes: a quota that demands a limit which sandboxes lack looks like one that is used up",
    changes: [
      {
        file: "src/engine/kubernetes/errors.ts",
        from: "if (/failed quota/i.test(message)) {",
        to: "if (false) {",
      },
      {
        file: "src/engine/kubernetes/errors.ts",
        from: "if (/exceeded quota/i.test(message)) {",
        to: "if (/(exceeded|failed) quota/i.test(message)) {",
      },
    ],
    test: {
      file: "test/unit/engine/kubernetes/errors.test.ts",
      title: "because a quota demands a limit that sandboxes lack is nothing to wait for",
    },
  },
  {
    name: "waits for a process of a pod that are given up take memory until it ends",
    changes: [
      {
        file: "src/engine/kubernetes/process.ts",
        from: "await this.#exit.wait(signal)",
        to: "await untilAborted(this.#exit.wait(), signal)",
      },
    ],
    test: {
      file: "test/unit/engine/kubernetes/process.test.ts",
      title: "a wait for a process's end that is given up takes no memory",
    },
  },
  {
    name: "kubernetes: no network policy selects the pod that runs an image before its first sandbox",
    changes: [
      {
        file: "src/engine/kubernetes/pod.ts",
        from: "  return isolate(pod, sandbox, facts);",
        to: "  void sandbox;\n  return pod;",
      },
    ],
    test: {
      file: "test/unit/engine/kubernetes/pod.test.ts",
      title: "is isolated, and so is the probe of its image: %s",
      row: "the network NONE",
    },
  },
  {
    name: "kubernetes: an image runs even if its sandbox is refused, because nothing isolates it",
    changes: [
      {
        file: "src/engine/kubernetes/engine.ts",
        from: "    if (sandbox !== undefined) await this.#admit(sandbox, signal);\n",
        to: "",
      },
    ],
    test: {
      file: ENGINE_TEST,
      title: "an image whose sandbox is refused for its %s does not run",
      row: "network",
    },
  },
  {
    name: "kubernetes: the user of an image is known from a run with another runtime",
    changes: [
      {
        file: "src/engine/kubernetes/images.ts",
        from: "JSON.stringify([image, sandbox.runtime])",
        to: "image",
      },
    ],
    test: {
      file: ENGINE_TEST,
      title:
        "an image runs with the runtime of the sandbox that needs it, whatever is known from another one",
    },
  },
  {
    name: "kubernetes: a policy of others that opens only the pods which look at images is not seen",
    changes: [
      {
        file: "src/engine/kubernetes/pod.ts",
        from: '["sandbox", "probe"].map(',
        to: '["sandbox"].map(',
      },
    ],
    test: {
      file: "test/unit/engine/kubernetes/network-keeper.test.ts",
      title: "a policy of others that opens only the pods which look at images is found",
    },
  },
  {
    name: "a create does not tell the engine for which sandbox it needs the image",
    changes: [
      {
        file: "src/sandboxes/create.ts",
        from: "      sandbox: wanted,\n",
        to: "",
      },
    ],
    test: {
      file: "test/unit/sandboxes/manager.test.ts",
      title: "says to the engine for which sandbox it needs the image",
    },
  },
  {
    name: "kubernetes: a program of the sandbox's image may write to a volume that is mounted read-only",
    changes: [{ file: VOLUMES, from: "      image,\n", to: "      image: main.image ?? image,\n" }],
    test: {
      file: VOLUMES_TEST,
      title:
        "a read-only directory is created before the container starts, by no program of the sandbox's image",
    },
  },
  {
    name: "kubernetes: a claim that a removal waits for is deleted by its name alone",
    changes: [
      {
        file: "src/engine/kubernetes/claims.ts",
        from: "body: { preconditions: { uid } }, ",
        to: "",
      },
    ],
    test: {
      file: "test/unit/engine/kubernetes/claims.test.ts",
      title: "a removal that the API server carries out late removes no later claim of the same name",
    },
  },
  {
    name: "kubernetes: programs of an image run for good if the service ends while it looks at the image",
    changes: [
      {
        file: "src/engine/kubernetes/pod.ts",
        from: "  (pod as Required<V1Pod>).spec.activeDeadlineSeconds = Math.ceil(timeoutMs / 1000);\n",
        to: "  void timeoutMs;\n",
      },
    ],
    test: {
      file: "test/unit/engine/kubernetes/pod.test.ts",
      title: "of a probe ends even if the service never comes back, unlike a sandbox's",
    },
  },
];
