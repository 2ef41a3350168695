import type { Change, Defect } from "./defect.ts";

const BUBBLEWRAP = "test/contract/engine/bubblewrap.test.ts";
const DOCKER = "test/contract/engine/docker.test.ts";
const CONTAINER = "src/engine/docker/container-config.ts";
const ARGUMENTS = "src/engine/bubblewrap/arguments.ts";

const CAPABILITIES =
  "every process has only a few capabilities, no way to gain more, and a filter of system calls";
const SYSTEM_CALLS = "system calls that reach deep into the kernel are refused";
const LIMITS = "core dumps are off and open files limited, and that cannot be changed";

function defect(name: string, file: string, title: string, ...changes: Change[]): Defect {
  return { name, changes, test: { file, title } };
}

/** Of what sandboxes are closed to. */
export const HARDENING_DEFECTS: readonly Defect[] = [
  defect(
    "a container without a network does not know localhost",
    DOCKER,
    "a server on loopback is found as localhost",
    { file: "src/engine/docker/setup.ts", from: "[ ! -s /etc/hosts ]", to: "false" },
  ),
  defect(
    "Docker connects a container that gets no network, which doubles the time of a create",
    "test/integration/engine/docker/hardening.test.ts",
    "there is no network but loopback",
    { file: CONTAINER, from: "facts.network === undefined &&", to: "false &&" },
  ),
  {
    name: "a service whose log nobody reads stops answering",
    changes: [
      {
        file: "src/cli/service-log.ts",
        from: "this.#waiting = this.#waiting.subarray(writeSync(this.#fd, this.#waiting));",
        to: "try { this.#waiting = this.#waiting.subarray(writeSync(this.#fd, this.#waiting)); } catch {}",
      },
    ],
    test: {
      file: "test/integration/cli/service-log.test.ts",
      title: "the program continues, and ends",
      suite: "if nobody reads a log of JSON",
    },
  },
  {
    name: "a log that was full loses lines that its reader would take",
    changes: [{ file: "src/cli/service-log.ts", from: "if (isDue) this.flush();", to: "" }],
    test: {
      file: "test/integration/cli/service-log.test.ts",
      title: "lines beyond the limit are written if the reader has made space since",
    },
  },
  {
    name: "a command does not wait for a slow reader of its message",
    changes: [{ file: "src/main.ts", from: "stream.writableLength === 0", to: "true" }],
    test: {
      file: "test/integration/cli/slow-reader.test.ts",
      title: "why a command fails is written to a stderr that is read late",
    },
  },
  {
    name: "a service whose log is on a full disk ends",
    changes: [{ file: "src/cli/service-log.ts", from: "return codeOf(error);", to: "throw error;" }],
    test: {
      file: "test/integration/cli/service-log.test.ts",
      title: "none makes it fail if the disk is full",
    },
  },
  defect("containers keep Docker's capabilities", DOCKER, CAPABILITIES, {
    file: CONTAINER,
    from: '      CapDrop: ["ALL"],\n',
    to: "",
  }),
  defect("containers may gain privileges", DOCKER, CAPABILITIES, {
    file: CONTAINER,
    from: '["no-new-privileges:true"]',
    to: "[]",
  }),
  defect("containers run without Docker's filter", DOCKER, SYSTEM_CALLS, {
    file: CONTAINER,
    from: '["no-new-privileges:true"]',
    to: '["no-new-privileges:true", "seccomp=unconfined"]',
  }),
  defect("containers may dump core", DOCKER, LIMITS, {
    file: CONTAINER,
    from: '        { Name: "core", Soft: 0, Hard: 0 },\n',
    to: "",
  }),
  defect("containers get a device of the host", DOCKER, "there are no devices but the harmless ones", {
    file: CONTAINER,
    from: "Privileged: false",
    to: 'Privileged: false, Devices: [{ PathOnHost: "/dev/kmsg", PathInContainer: "/dev/kmsg", CgroupPermissions: "r" }]',
  }),
  defect("commands of bubblewrap enter without the filter", BUBBLEWRAP, SYSTEM_CALLS, {
    file: "src/engine/bubblewrap/job-script.ts",
    from: "entryFile === undefined ?",
    to: "entryFile !== undefined ?",
  }),
  defect("process 1 of bubblewrap has no filter", BUBBLEWRAP, CAPABILITIES, {
    file: "src/engine/bubblewrap/keeper.ts",
    from: '["--seccomp", String(filter)]',
    to: "[]",
  }),
  defect("commands of bubblewrap keep their bounding set", BUBBLEWRAP, CAPABILITIES, {
    file: "src/engine/bubblewrap/filter.ts",
    from: "bf18000000 89de",
    to: "bf17000000 89de",
  }),
  defect(
    "the kernel's settings in bubblewrap can be written",
    BUBBLEWRAP,
    "nothing of the kernel can be written",
    {
      file: ARGUMENTS,
      from: ' "--ro-bind", "/proc/sys", "/proc/sys",',
      to: "",
    },
  ),
  {
    name: "a file is read from outside that the process may only write",
    changes: [
      {
        file: "src/engine/outside/open-file.ts",
        from: "return (flags & O_PATH) === 0 && (flags & ACCESS_MODE) !== constants.O_WRONLY;",
        to: "return (flags & O_PATH) === 0;",
      },
    ],
    test: { file: DOCKER, title: "is not opened where %s", row: "the process may only write it" },
  },
  {
    name: "a file is read from outside that the process only names",
    changes: [
      {
        file: "src/engine/outside/open-file.ts",
        from: "return (flags & O_PATH) === 0 && (flags & ACCESS_MODE) !== constants.O_WRONLY;",
        to: "return (flags & ACCESS_MODE) !== constants.O_WRONLY;",
      },
    ],
    test: { file: DOCKER, title: "is not opened where %s", row: "the process has its name alone" },
  },
  {
    name: "a file of the kernel is read from outside, with root's eyes",
    changes: [
      {
        file: "src/engine/outside/open-file.ts",
        from: "  if (!EVEN.includes(typeOf(mountinfo, before.mount))) return undefined;\n",
        to: "",
      },
    ],
    test: { file: DOCKER, title: "is not opened where %s", row: "it is the kernel's" },
  },
];
