/** A test, or all rows of one. */
export interface TestName {
  /** Below `test/`. */
  readonly file: string;
  /** As it stands in the file. */
  readonly title: string;
  /** What stands in the row of `test.each` that proves it. */
  readonly row?: string;
}

/** Something that an attacker may try, and what proves that it comes to nothing. */
export interface SecurityCase {
  readonly about: string;
  /** The first alone would do; others prove it elsewhere. */
  readonly tests: readonly TestName[];
  /**
   * Names of defects: the defence removed, with which one of its tests was seen to fail. Empty where there is a
   * {@link reason}.
   */
  readonly defects: readonly string[];
  /** Why no small change brings the case back: which defences stand behind one another. */
  readonly reason?: string;
}

function hostile(about: string, tests: readonly TestName[], ...defects: string[]): SecurityCase {
  return { about, tests, defects };
}

/** A case that no small change brings back. @param reason why not */
function layered(about: string, tests: readonly TestName[], reason: string): SecurityCase {
  return { about, tests, defects: [], reason };
}

const at = (file: string, title: string, row?: string): TestName => ({ file, title, ...(row && { row }) });

const HARDENING = "contract/engine/hardening-suite.ts";
const ESCAPE = "integration/engine/bubblewrap/escape.test.ts";
const DOCKER = "integration/engine/docker/hardening.test.ts";
const EGRESS = "integration/engine/docker/egress.test.ts";
const RULES = "unit/engine/docker/egress-rules.test.ts";
const DOMAINS = "integration/egress/domains.test.ts";
const CLUSTER = "integration/kubernetes/network.kubernetes.ts";
const POLICIES = "unit/engine/kubernetes/network-policies.test.ts";
const EXEC = "integration/processes/exec-cases.test.ts";
const GIVEN_UP = "integration/processes/exec/stdin-given-up.test.ts";
const GLOB = "unit/sessions/types/files/glob.test.ts";
const TREE = "unit/sessions/types/browser/tree.test.ts";
const PLACES = "unit/sessions/places.test.ts";
const BASH = "integration/sessions/bash-hostile.test.ts";
const ARCHIVE = "integration/files/archive.test.ts";
const KINDS = "integration/files/kinds.test.ts";
const FILES = "integration/rpc/file-service.test.ts";
const ACCESS = "integration/tenants/access.test.ts";
const ATTACKS = "integration/server/attacks.alone.test.ts";
const BAD_INPUT = "unit/server/bad-input.test.ts";
const RESTART = "integration/restart/restart.test.ts";
const CRASHES = "integration/restart/crash-points.test.ts";
const DELETE = "integration/sandboxes/delete.test.ts";
const REFERENCES = "integration/workspaces/references.test.ts";
const WORKSPACES = "integration/workspaces/hostile.test.ts";

const CAPABILITIES =
  "every process has only a few capabilities, no way to gain more, and a filter of system calls";
const SERVED = "%s: other clients are served, memory stays bounded, and everything recovers";
const EVERY_METHOD = "%s: every method ends in the right code, before a body is read";

/** Every case that has to hold against an attacker, by what it is about. */
export const SECURITY_CASES: Readonly<Record<string, readonly SecurityCase[]>> = {
  escape: [
    hostile(
      "capabilities, NoNewPrivs and Seccomp",
      [at(HARDENING, CAPABILITIES)],
      "containers keep Docker's capabilities",
      "containers may gain privileges",
      "commands of bubblewrap keep their bounding set",
    ),
    hostile(
      "mount, unshare, setns, mknod",
      [at(HARDENING, "system calls that reach deep into the kernel are refused")],
      "containers run without Docker's filter",
      "commands of bubblewrap enter without the filter",
    ),
    hostile(
      "writes to /sys and sysrq",
      [at(HARDENING, "nothing of the kernel can be written")],
      "the kernel's settings in bubblewrap can be written",
    ),
    hostile(
      "devices",
      [at(HARDENING, "there are no devices but the harmless ones")],
      "containers get a device of the host",
    ),
    hostile(
      "a container engine's socket",
      [at(HARDENING, "no socket of a container engine is visible")],
      "containers get the engine's socket",
    ),
    hostile(
      "a mount of /",
      [at(HARDENING, "%s as a mount", "the whole machine")],
      "the whole machine may be mounted",
    ),
    hostile(
      "a mount by ..",
      [at(HARDENING, "%s as a mount", "a way up")],
      "a mount may lead up to the whole machine",
    ),
    layered(
      "a mount of the Docker socket",
      [at(HARDENING, "%s as a mount", "a container engine's socket")],
      "Four checks stand behind one another: the allowed roots, the hidden sockets, directories alone, and the descriptor that is opened of a directory and mounted.",
    ),
    hostile(
      "a mount of a symbolic link out of the allowed root",
      [at(HARDENING, "%s as a mount", "a link out of what is allowed")],
      "any directory may be mounted",
    ),
    layered(
      "the working directory /proc/self/fd/8",
      [at(HARDENING, "the working directory %s leads nowhere", "/proc/self/fd/8")],
      "Docker never gets a caller's directory: a shell in the container enters it, whose /proc shows its own descriptors alone. Commands are refused it before, and what starts containers has closed its own.",
    ),
    hostile(
      "environment and descriptors of the service",
      [
        at(HARDENING, "environments and descriptors show nothing of the service"),
        at(ESCAPE, "the files that hold the service's data, environment and descriptors are not visible"),
      ],
      "containers have a variable of the service",
    ),
    hostile(
      "a set-user-id file in a mounted directory",
      [at(HARDENING, "a set-user-id file planted in a mounted directory has no effect")],
      "containers may gain privileges",
    ),
    hostile(
      "the metadata address and private ranges",
      [at(EGRESS, "does not reach %s, and fails at once"), at(RULES, "if there are none")],
      "egress: the metadata address is not rejected",
    ),
    hostile(
      "the host, its gateway address and the service's port",
      [at(EGRESS, "does not reach the machine, at any of its addresses"), at(RULES, "if there are none")],
      "egress: the machine itself is in reach",
    ),
    layered(
      "sibling sandboxes",
      [
        at(EGRESS, "does not reach a sibling"),
        at(ESCAPE, "no process of the host or of another sandbox can be seen or signaled"),
      ],
      "Docker keeps its bridge's containers apart, and the rejected private ranges hold the bridge's own addresses.",
    ),
    hostile(
      "IPv6",
      [at(EGRESS, "has no IPv6, and cannot get it")],
      "egress: Docker's bridge keeps the IPv6 that somebody turned on",
    ),
    hostile(
      "DNS that is bound to another address later",
      [at(DOMAINS, "the connection goes to the checked address, not to the name's next one")],
      "egress: a name is resolved once more to connect",
    ),
    hostile(
      "on Kubernetes: the metadata address, private ranges, IPv6 too, pods, nodes and the API server",
      [
        at(POLICIES, "not %s, which is not", "169.254.169.254"),
        at(POLICIES, "a wide range does not open metadata addresses or loopback"),
        at(CLUSTER, "NONE reaches nothing, and EGRESS only what is allowed"),
      ],
      "kubernetes: EGRESS reaches private addresses",
      "kubernetes: EGRESS reaches private addresses of IPv6",
      "kubernetes: an operator opens the metadata address by a wide range",
    ),
    hostile(
      "on Kubernetes: sibling sandboxes, and pods that connect to one",
      [
        at(POLICIES, "select only its pods, and let nothing in"),
        at(CLUSTER, "NONE reaches nothing, and EGRESS only what is allowed"),
      ],
      "kubernetes: whoever is in the cluster connects to a sandbox",
    ),
    hostile(
      "on Kubernetes: a cluster that enforces no policy",
      [at(CLUSTER, "the operator's setting does not count: sandboxes are refused with what a test reached")],
      "kubernetes: the operator's word counts, whatever the test reached",
    ),
    hostile(
      "on Kubernetes: an image's own programs before its sandbox exists",
      [
        at(
          "unit/engine/kubernetes/pod.test.ts",
          "is isolated, and so is the probe of its image: %s",
          "the network NONE",
        ),
        at(
          "unit/engine/kubernetes/engine.test.ts",
          "an image whose sandbox is refused for its %s does not run",
          "network",
        ),
        at(CLUSTER, "an image whose own shell looks around before its first sandbox reaches nothing"),
      ],
      "kubernetes: no network policy selects the pod that runs an image before its first sandbox",
      "kubernetes: an image runs even if its sandbox is refused, because nothing isolates it",
    ),
    hostile(
      "on Kubernetes: a policy of others that opens what Berth's closes",
      [
        at(POLICIES, "others' that select %s are seen for what they open", "all pods"),
        at(CLUSTER, "a foreign policy that opens NONE is found, and NONE is refused until it is gone"),
        at(CLUSTER, "a policy that was deleted or changed is restored"),
      ],
      "kubernetes: a policy of others that opens all pods is not seen",
    ),
    hostile(
      "on Kubernetes: the token of a service account",
      [
        at(
          "unit/engine/kubernetes/pod.test.ts",
          "has no token, no link to services, no privilege, and the default filter of system calls",
        ),
      ],
      "kubernetes: pods have the token of a service account",
    ),
  ],
  exhaustion: [
    hostile(
      "a fork bomb",
      [
        at(DOCKER, "a fork bomb ends at the process limit, and takes nothing else down"),
        at(ESCAPE, "a fork bomb, a full disk and a flood of output do not affect the neighbour"),
      ],
      "containers may have any number of processes",
    ),
    hostile(
      "a memory hog: OUT_OF_MEMORY from the control group's events",
      [
        at(
          "integration/sessions/out-of-memory.test.ts",
          "a %s that the kernel kills when memory runs out is lost with that cause",
        ),
        at(DOCKER, "a process that takes too much memory is ended, but not the sandbox"),
      ],
      "a shell that is killed counts as out of memory because a program of it was",
      "an earlier kill for want of memory is blamed on what is found after a restart",
    ),
    hostile(
      "requests to the egress proxy that do not wait for answers",
      [
        at(
          DOMAINS,
          "one connection opens one to the outside, and it ends with it: %s",
          "requests of HTTP/1.0",
        ),
      ],
      "egress: each request of a connection opens one to the outside, answered or not",
    ),
    hostile(
      "leases on the files through which processes start",
      [
        at(
          "integration/engine/docker/pipes.test.ts",
          "share their directory with no file of another container, which root could lease or watch",
        ),
      ],
      "containers share files that root in one of them can lease and watch",
    ),
    hostile(
      "a flood of answers that look like those of Berth's own shell in the sandbox",
      [at("unit/engine/docker/zygote.test.ts", "answers %s are not read as fast as they are written")],
      "what root in a container writes to the answers of its zygote is read as fast as it comes",
    ),
    layered(
      "a disk that is full",
      [at(ESCAPE, "a fork bomb, a full disk and a flood of output do not affect the neighbour")],
      "The file system in memory has a size, and what is in it counts as memory, which control groups bound.",
    ),
    layered(
      "five sandboxes of one tenant at their bounds",
      [
        at(
          "integration/tenants/noisy-neighbours.alone.test.ts",
          "five sandboxes of one tenant at their limits do not affect another tenant's commands",
        ),
      ],
      "Without one of its bounds the others and the kernel's scheduler still leave a neighbour its time.",
    ),
    hostile(
      "a flood of output",
      [
        at(
          "integration/processes/output-volume.test.ts",
          "makes its process wait, in little memory, while its reader takes 1 MB/s",
        ),
        at(
          "unit/processes/transcript-budget.test.ts",
          "of running processes the largest loses output, but keeps its head and its newest output",
        ),
      ],
      "what transcripts hold together is not bounded",
    ),
    hostile(
      "an image or a registry that makes Docker's answers long",
      [
        at("integration/engine/docker/images.test.ts", "is refused before one exists: %s"),
        at("unit/engine/docker/answers.test.ts", "%s is not read any further than its limit"),
      ],
      "every answer about a container may be as long as an image makes it",
      "an image may have any number of volumes",
      "answers of Docker are read at any length",
    ),
    hostile(
      "a shell of an image that prints without end, a byte at a time, while its sandbox starts",
      [
        at(
          "unit/engine/docker/setup.test.ts",
          "a shell that prints single bytes costs little more than to take them out of their frames",
        ),
        at("unit/engine/docker/setup.test.ts", "a shell that prints without end is not waited for"),
      ],
      "what a container prints before it is ready is searched for every frame",
      "a container may print without end before it is ready",
    ),
    hostile(
      "a flood of measurements of what sandboxes use",
      [
        at(
          "unit/sandboxes/usage.test.ts",
          "many callers share one measurement of a sandbox, which one of them cannot cancel",
        ),
        at(
          "unit/engine/bubblewrap/tree-usage.test.ts",
          "the usage of many processes is added up with turns of the event loop between them",
        ),
      ],
      "each of many calls measures the sandbox",
      "the processes of a sandbox are added up without turns of the event loop",
    ),
    hostile(
      "tools of the sandbox that write megabytes of what takes long to parse",
      [
        at(
          "unit/files/list.test.ts",
          "a list in which the sandbox's stat writes a flood of %s is refused at once",
        ),
        at(
          "integration/files/hostile-tools.test.ts",
          "a flood of %s is refused, and does not block the event loop",
        ),
      ],
      "a list takes more from the sandbox's stat than the attributes that it asked for",
      "a list splits whatever the sandbox's tools write",
      "the names for the rest of a tar are compared in one turn of the event loop",
    ),
    hostile(
      "thousands of descriptors in a process, which every kill in its sandbox must search",
      [
        at(
          "unit/engine/outside/control.test.ts",
          "a process with thousands of descriptors is searched for the pipes of a tree with turns of the event loop in between",
        ),
      ],
      "all descriptors of a process are searched in one turn of the event loop",
    ),
    hostile(
      "thousands of children of a process that reads a file for a caller",
      [
        at(
          "unit/engine/outside/control.test.ts",
          "of a process's many children, only a few are searched for an open file",
        ),
      ],
      "all children of a process are searched for an open file",
    ),
    hostile(
      "descriptors",
      [at(HARDENING, "core dumps are off and open files limited, and that cannot be changed")],
      "containers may dump core",
    ),
    hostile("zombies", [at(DOCKER, "orphans are reaped")], "containers have no process that reaps"),
    hostile(
      "a spinning processor",
      [
        at(
          "integration/processes/hostile-processes.test.ts",
          "calls end in time next to a command that %s, and their sessions still work",
        ),
      ],
      "a command that finds every place for a process taken says that the engine failed",
    ),
    hostile(
      "a glob with large sets, and a long name for it",
      [
        at(GLOB, "lets others use the event loop while it looks at one long name"),
        at(GLOB, "is refused if its sets are long together, before they are read"),
        at(GLOB, "is refused if it takes too much work for the number of files: %s", "sets"),
        at(GLOB, "holds the states that names lead to, which others can drop, until it is disposed of"),
      ],
      "a glob looks at a long name in one go",
      "a glob may hold a thousand long sets",
      "a set of a glob costs as much as a letter",
      "what globs remember takes memory without a limit together",
    ),
    hostile(
      "a script for a browser that nearly holds a function's code often",
      [
        at(
          "unit/sessions/types/browser/evaluate.test.ts",
          "a script that nearly holds a function's code often takes little time",
        ),
      ],
      "browser:evaluate looks for a function's code in quadratic time",
    ),
    hostile(
      "a program that plays bash or Python and writes in short parts",
      [
        at(
          "unit/sessions/types/execution.test.ts",
          "a payload in short parts does not keep what was read with them in memory",
        ),
        at(
          "unit/rpc/tool-stream.test.ts",
          "output that waits for its reader counts with the memory that it keeps",
        ),
      ],
      "each short part of an interpreter's payload keeps what was read with it",
      "a tool's output that waits for its reader counts without its memory",
    ),
    hostile(
      "a program that plays the browser",
      [
        at("unit/sessions/types/browser/tabs.test.ts", "a browser whose ids are long is refused"),
        at(TREE, "a long name is compared once, however often its node is listed"),
        at(TREE, "of a page with huge frames, some are left out"),
        at(
          TREE,
          "references share memory, beyond which those of the owner with most are forgotten, oldest first",
        ),
        at(
          "unit/sessions/types/browser/devtools.test.ts",
          "a message without an end takes little memory, unless a large answer is wanted",
        ),
      ],
      "a long id of the browser is kept",
      "a long name in a tree is compared again and again",
      "all frames of a page are read, however large they are",
      "references of browsers take memory without a limit together",
      "a browser's unfinished message takes as much memory as the largest answer",
    ),
    hostile(
      "a program that plays the driver of a desktop",
      [
        at(
          "integration/sessions/vm-failures.test.ts",
          "an answer to %s that is larger than one can be is not taken",
        ),
        at("unit/sessions/vm-frames.test.ts", "in tiny chunks take no more memory than their bytes"),
        at(
          "unit/sessions/vm-desktop.test.ts",
          "a desktop that keeps back the end of an answer is ended when there is no room for other answers",
        ),
      ],
      "whatever a program that stands in for a desktop's driver answers is taken",
      "each tiny chunk of a desktop's answer takes memory until all of it is there",
      "unfinished answers of desktops take memory without a limit",
    ),
    hostile(
      "many archives with long names, and files and directories that are read very slowly",
      [
        at(
          "unit/files/memory.test.ts",
          "uploads of archives gather no more names together than there is memory for, and give it back",
        ),
        at(
          "unit/files/memory.test.ts",
          "%s gather no more together than there is memory for, and give it back",
        ),
        at(
          "unit/files/memory.test.ts",
          "what downloads have read ahead of their callers is bounded together",
        ),
        at(
          "integration/workspaces/imports.test.ts",
          "imports gather no more names together than there is memory for, and give it back",
        ),
      ],
      "the names of archives that arrive have no limit together",
      "reads of files have no limit together",
      "the names that lists have read have no limit together",
      "what downloads have read ahead has no limit together",
      "the names of imports that arrive have no limit together",
    ),
    hostile(
      "a workspace of thousands of nested directories with long names, for the host's tar",
      [
        at(
          "integration/workspaces/host/tools.test.ts",
          "a tool gets 512 MiB of memory, and a tree for which that is too little is refused",
        ),
      ],
      "a deep tree of a sandbox makes tar take gigabytes of the host's memory",
    ),
    hostile(
      "a shared directory and workspaces whose size is asked for over and over",
      [
        at(
          "unit/workspaces/quota.test.ts",
          "callers who keep asking for the size of %s cause few measurements",
        ),
      ],
      "each call that asks for the size of a workspace measures it",
      "each call that asks for the size of a shared directory measures it",
    ),
    hostile(
      "a batch of calls with large results",
      [at("unit/sessions/calls.test.ts", "has room for 32 MiB of results (in parallel: %s)")],
      "a batch gathers results of any size",
    ),
    hostile(
      "sessions without end",
      [
        at(
          PLACES,
          "a sandbox has a limited number of sessions, also if they are created at once; another fits when one has ended",
        ),
        at(
          PLACES,
          "of the sessions whose sandboxes have ended, the oldest of the owner with the most give way",
        ),
        at(
          "unit/sessions/lifetime.test.ts",
          "ends the backends of its idle sessions at once: only their next calls are waited for",
        ),
      ],
      "a sandbox has sessions without end",
      "sessions whose sandboxes have ended are kept without end",
      "a session whose sandbox has ended keeps its backend",
    ),
    hostile(
      "calls that are canceled while they wait for a session",
      [
        at(
          "unit/sessions/calls.test.ts",
          "whose callers left the queue take no memory until their turn would have come",
        ),
        at(
          "unit/sessions/manager.test.ts",
          "waits for a running call, but a call that arrives meanwhile ends with its caller",
        ),
        at("unit/sessions/manager.test.ts", "makes a limited number of calls wait"),
      ],
      "calls whose callers left stay in the queue of their session",
      "calls wait until a session has ended, although their callers have left",
      "any number of calls wait until a session has ended",
    ),
  ],
  files: [
    hostile(
      "paths with .., NUL, or empty",
      [at(FILES, "%s is refused everywhere"), at("unit/files/path.test.ts", "%s is refused")],
      "a path may lead out of the working directory",
    ),
    hostile(
      "links that leave",
      [
        at(
          "integration/files/directories.test.ts",
          "a directory that is not empty is removed only recursively, without following links",
        ),
        at(
          WORKSPACES,
          "planted links, FIFOs, set-user-id files, many files and deep trees: nothing outside is touched",
        ),
        at(
          "integration/workspaces/diff.test.ts",
          "a directory that a sandbox swaps for a link never leads out of the workspace",
        ),
      ],
      "an archive is unpacked through links that it made",
    ),
    layered(
      "a FIFO, a device or a directory where a file is due",
      [at(KINDS, "instead of a file, %s is refused at once")],
      "A script looks at what is there before it opens it, Berth at the kind that the open file has, and a write goes to a temporary file, which takes the place of a regular file alone.",
    ),
    hostile(
      "a tar with .. or absolute names",
      [
        at(ARCHIVE, "with %s is refused as a whole", ".. in a long name"),
        at("unit/files/archive-check.test.ts", "%s (case %#)"),
      ],
      "names in an archive may lead out",
    ),
    hostile(
      "a tar with a link, then a file through it",
      [at(ARCHIVE, "with %s is refused as a whole"), at("unit/files/archive-check.test.ts", "%s (case %#)")],
      "an archive is unpacked through links that it made",
    ),
    hostile(
      "a tar with a hard link to outside",
      [at(ARCHIVE, "with %s is refused as a whole", "a hard link to a file outside")],
      "names in an archive may lead out",
    ),
    hostile(
      "a tar with a device or FIFO",
      [at(ARCHIVE, "with %s is refused as a whole", "a device")],
      "archives may hold devices",
    ),
    hostile(
      "a sandbox's tar, for a client, with links to a device or FIFO",
      [
        at(
          "integration/clients/python.test.ts",
          "passes its tests with the newest grpcio and protobuf that it accepts",
        ),
      ],
      "links in a sandbox's archive make devices and pipes on the machine of a Python client",
    ),
    hostile(
      "a tar with set-user-id files",
      [
        at(
          "unit/files/archive-check.test.ts",
          "permissions without set-id bits, without owners, and with a time in range",
        ),
      ],
      "files of an archive keep the bits that give rights",
    ),
    hostile(
      "a tar of a million entries",
      [
        at(ARCHIVE, "is refused at its first bad entry, or at the limit of entries, and leaves nothing"),
        at("unit/files/archive-check.test.ts", "more than 500,000 entries"),
      ],
      "an archive may have any number of entries",
    ),
    hostile(
      "names that are not UTF-8, of 255 bytes, with newlines or dashes",
      [
        at(
          "integration/files/names.test.ts",
          "every name is written, listed, read, moved and removed unchanged",
        ),
      ],
      "a name ends at a newline",
    ),
    hostile(
      "a client that dies amid an upload",
      [at(FILES, "during an upload leaves the old content and nothing else")],
      "an upload that breaks off takes the place of the old content",
    ),
    layered(
      "two writers of one path",
      [at("integration/files/transfer.test.ts", "of concurrent writers, one file is there whole")],
      "Each writer has a file of its own, a mark at the end of what it wrote, and one rename. Writers that shared a file would find the other's mark, fail, and leave the old content.",
    ),
  ],
  "exec and sessions": [
    hostile(
      "output that imitates a marker",
      [
        at(EXEC, "output that imitates markers is output"),
        at(BASH, "output that imitates the shell's own reports is plain data"),
        at("unit/fuzz/parsers.test.ts", "what a lane writes"),
      ],
      "part of a nonce passes for a marker",
    ),
    hostile(
      "a nonce that a command finds out",
      [at(EXEC, "the nonce is nowhere a command can read it")],
      "a command has most of its shell's nonce in its environment",
    ),
    hostile(
      "a shell of Berth's that root in a pod has replaced, and that never reports how its process ended",
      [
        at(
          "unit/engine/kubernetes/process.test.ts",
          "a process whose shell in the pod ends without reporting its end is lost",
        ),
      ],
      "a process whose shell in the pod ends without reporting its end never ends",
    ),
    layered(
      "closed stdout",
      [at(BASH, "%s", "closed stdout and stderr"), at(EXEC, "%s ends with code %i")],
      "A call's redirections end with it, and the marks of its end go to descriptors that it does not have: either alone would do.",
    ),
    hostile(
      "an unterminated quote or here document",
      [
        at(BASH, "%s", "an unterminated quote"),
        at(EXEC, "%s is the command's own error", "an unterminated here document"),
      ],
      "a session's shell reads commands as its own input",
    ),
    hostile(
      "exit 3, set -e; false, a function named like a builtin",
      [
        at(EXEC, "%s ends with code %i"),
        at(BASH, "%s", "set -e; false"),
        at(BASH, "a function named %s", "printf"),
      ],
      "a function replaces the printf that reports a command's end",
    ),
    hostile(
      "kill -9 $$",
      [at(EXEC, "%s is reported as signal %i", "kill -9 $$"), at(BASH, "%s", "kill -9 $$")],
      "a shell that killed itself is given the next command",
    ),
    layered(
      "exec sleep",
      [
        at(EXEC, "exec sleep: a program that replaces the shell ends as the command"),
        at(BASH, "%s", "exec sleep"),
      ],
      "A command is a child of its lane's shell, and a session's shell is known to have ended by its process, whatever took the shell's place: nothing has to notice it.",
    ),
    hostile(
      "cat and read at the end of stdin",
      [
        at(EXEC, "stdin is empty: cat and read see its end"),
        at(BASH, "%s", "cat and read at the end of stdin"),
      ],
      "readers that reopen a closed stdin are given up at the first error",
    ),
    hostile(
      "sleep 60 &, and a daemonised child",
      [
        at(EXEC, "sleep & returns at once; a daemon ends with its sandbox"),
        at(BASH, "%s", "a background job"),
      ],
      "an end that waits behind what nobody wants is not waited for",
    ),
    hostile(
      "a child that ignores SIGTERM",
      [
        at("unit/processes/ends.test.ts", "kills a process that ignores SIGTERM"),
        at(
          "integration/processes/command-timeout.test.ts",
          "a command that ignores SIGTERM is killed after a grace period",
        ),
      ],
      "what ignores SIGTERM is not killed",
    ),
    hostile(
      "a client that disconnects",
      [
        at(
          "integration/processes/lost-callers.test.ts",
          "a command without a request id ends with its caller",
        ),
        at(EXEC, "the whole tree ends with its caller"),
      ],
      "a start runs although its caller has gone before it reached the engine",
    ),
    hostile(
      "binary, ANSI, split UTF-8",
      [at(EXEC, "binary, terminal sequences and split UTF-8 arrive byte for byte, as they were written")],
      "output passes as text",
    ),
    layered(
      "a line of 100 MiB",
      [at(EXEC, "a line of ${longLine} MiB arrives whole")],
      "Nothing on the way of output looks for lines, so that there is no bound of them to take away.",
    ),
    hostile(
      "late output of one command in the next",
      [
        at("integration/sessions/bash.test.ts", "late output of one command never appears in the next"),
        at(
          "integration/processes/shell/lane-attack.test.ts",
          "after a command that %s the next ones are clean",
        ),
      ],
      "a lane is used again as soon as its job says that it left nothing",
    ),
  ],
  network: [
    hostile(
      "every method and page without a token, or with a bad one",
      [at(ACCESS, EVERY_METHOD), at(ACCESS, "%s: every page")],
      "a token is known by its id alone",
      "whoever opens a stream of requests reaches its handler",
      "the metrics are open",
    ),
    hostile(
      "every method with an expired or revoked token",
      [
        at(ACCESS, EVERY_METHOD),
        at("integration/tenants/reload.test.ts", "when their token is revoked, and its process is killed"),
      ],
      "an expired token is let in",
      "a call goes on after its token was revoked",
    ),
    hostile(
      "every method that changes, with a read-only token",
      [at(ACCESS, EVERY_METHOD)],
      "a read-only token may change things",
    ),
    hostile(
      "every method with another tenant's ids",
      [
        at(
          "integration/tenants/isolation.test.ts",
          "every method that takes an id: another tenant's is not found",
        ),
      ],
      "a process of another tenant is found",
      "everybody may act in another tenant",
    ),
    hostile(
      "malformed protobuf, and any other bytes",
      [
        at(BAD_INPUT, "malformed protobuf is INVALID_ARGUMENT: %s"),
        at("unit/fuzz/requests.test.ts", "%s takes any bytes"),
      ],
      "bytes that are no message are the service's own failure",
    ),
    hostile(
      "messages that are too large, or hold too much",
      [
        at(BAD_INPUT, "an announced size that is too large is refused before the data arrives"),
        at("integration/rpc/hostile-input.test.ts", "in gRPC and in JSON, of any method"),
      ],
      "a message may hold any number of values",
    ),
    hostile(
      "gzip bombs",
      [at(ATTACKS, SERVED, "gzip that becomes a thousand times as much, in every codec")],
      "what was decompressed lies about until V8 collects it",
    ),
    hostile(
      "an upload in tiny frames that nobody reads",
      [
        at(
          "integration/server/streams.test.ts",
          "what is not read of a request takes little more memory than its bytes: %s",
        ),
      ],
      "each small frame of a request that is not read takes memory of its own, or that of all that came with it",
    ),
    hostile(
      "input that no process reads: long messages with one new byte, and short pieces without end",
      [
        at(GIVEN_UP, "a message of which only the last byte is new is not kept with that byte"),
        at("unit/engine/pipe-streams.test.ts", "a write of one byte waits until the pipe has room for it"),
        at(
          "unit/engine/kubernetes/exec-socket.test.ts",
          "a writer of short pieces waits long before they make up the bytes that may be buffered",
        ),
      ],
      "one new byte on its way keeps all of its message",
      "many short writes wait in the service although their calls have ended",
      "many short writes to a pod wait in the service although their calls have ended",
    ),
    hostile(
      "detached commands that never read what their requests carry",
      [
        at(
          "unit/processes/input.test.ts",
          "that came with the request counts until the job has it, also when the caller has left",
        ),
      ],
      "stdin that a command has not read is not counted once its caller has left",
    ),
    hostile(
      "a stream that is read to its end only when its command was dropped for newer ones",
      [
        at(
          "unit/processes/manager.test.ts",
          "does not store again a process that it has forgotten while its caller still read",
        ),
      ],
      "a process that was forgotten is stored again when its caller has read it to the end",
    ),
    hostile(
      "a foreign Host",
      [at("unit/server/origin-guard.test.ts", "is refused everywhere, also for health and metrics")],
      "any host name is answered to",
    ),
    hostile(
      "a foreign Origin",
      [
        at("integration/rpc/bad-input/port.test.ts", "a foreign Host and a foreign Origin"),
        at("unit/server/origin-guard.test.ts", "%s is foreign"),
      ],
      "pages of any origin may call",
    ),
    layered(
      "a form that a page posts",
      [at("integration/rpc/bad-input/port.test.ts", "a form that a web page could post")],
      "Berth refuses the type of its content, and so do the codecs of the library behind it; the Origin is checked before both.",
    ),
    hostile(
      "more streams than the limit",
      [
        at(
          "integration/server/listener.test.ts",
          "a client learns how many calls it may make at once, and queues more",
        ),
      ],
      "a connection has any number of calls at once",
    ),
    hostile(
      "more requests of HTTP/1 than the limit, which wait for no answer",
      [
        at(
          "integration/server/listener.test.ts",
          "may ask again before it is answered, but not any number of times",
        ),
      ],
      "a connection of HTTP/1 has any number of calls at once",
    ),
    hostile(
      "more connections than the limit, and idle ones",
      [
        at("integration/server/listener.test.ts", "connections beyond the limit are refused, and logged"),
        at(ATTACKS, SERVED, "1,000 idle connections"),
      ],
      "connections are few",
    ),
    hostile(
      "headers that come slowly, or do not end",
      [
        at(ATTACKS, SERVED, "600 connections whose headers come slowly"),
        at(ATTACKS, SERVED, "headers that do not end"),
        at("integration/server/listener.test.ts", "headers that do not end close the connection"),
      ],
      "nothing looks for headers that come slowly",
    ),
    layered(
      "headers that point at a long one thousands of times",
      [at(ATTACKS, SERVED, "headers that point at a long one thousands of times")],
      "Node keeps no more of a call's headers than 32 KiB and 128 fields, each a setting of its own, and ends the call without a word to Berth.",
    ),
    layered(
      "pings, settings and empty data without end",
      [at(ATTACKS, SERVED, "pings, settings and empty data without end")],
      "Node and its library of HTTP/2 end a connection that is owed 1,000 answers or sent 1,000 empty frames, unless configured otherwise, which Berth does not do.",
    ),
    hostile(
      "a reader that stops",
      [
        at(ATTACKS, SERVED, "output that is not read"),
        at(
          "unit/server/keepalive.test.ts",
          "a reader that stops does not wait for a stream that does not end",
        ),
      ],
      "whoever stops reading waits for the stream",
    ),
    hostile(
      "thousands of readers that stop",
      [
        at(
          "integration/server/streams.test.ts",
          "what many streams have unsent has a limit, and another that is read continues",
        ),
        at(
          "integration/server/streams.test.ts",
          "small messages that are not read are few, and keep nothing besides",
        ),
        at("integration/server/streams.test.ts", "answers in %s that are not read have a limit together"),
      ],
      "answers that are not read have no limit together",
      "answers in gRPC-Web that are not read have no limit together",
      "what streams have unsent is bounded for each of them only",
      "small messages that are not read count only by their bytes",
      "each small message that is not read keeps what Node put next to it",
    ),
    hostile(
      "thousands of cancels",
      [
        at(
          "integration/server/streams.test.ts",
          "a flood of cancels leaves no handler, no call and no stream",
        ),
        at(ATTACKS, SERVED, "10,000 calls that are canceled as they come"),
      ],
      "a connection may cancel any number of calls",
    ),
  ],
  lifecycle: [
    hostile(
      "SIGKILL at every failpoint, then a restart",
      [
        at(CRASHES, "at %s"),
        at(CRASHES, "every failpoint is in a scenario"),
        at(
          "integration/restart/run-crash-points.test.ts",
          "a service killed at %s: the run is as if nothing had happened",
        ),
      ],
      "a command that a crash cut short is run again by its retry",
    ),
    layered(
      "a start that fails after the create",
      [at("integration/sandboxes/create-leaves-nothing.test.ts", "a user that the image does not have")],
      "The engine removes the container by its name where any step fails, and each minute the reconciler removes what belongs to nothing.",
    ),
    hostile(
      "a removal that fails",
      [
        at(
          "unit/sandboxes/expiry-sweeper.test.ts",
          "a failed removal is retried with growing pauses, each logged, and the sandbox keeps its place until it is gone",
        ),
      ],
      "a removal that failed waits for somebody to ask again",
    ),
    layered(
      "dockerd restarts",
      [
        at(
          "integration/restart/docker-restart.test.ts",
          "a Docker that is killed under load and $keeps: the service stays up and reports what became of each sandbox",
        ),
      ],
      "Calls, the stream of events and the comparison after a lost connection each find what became of a sandbox.",
    ),
    hostile(
      "docker rm -f from outside",
      [
        at(
          "integration/restart/engine-trouble.test.ts",
          "a container that is removed while its event is in transit counts as removed, and not as lost",
        ),
      ],
      "what was removed counts as lost where its event comes late",
    ),
    layered(
      "a missing image",
      [at("integration/sandboxes/create-leaves-nothing.test.ts", "an unavailable image")],
      "Nothing is made before the image is there, and one catch, for whatever failed, gives back what was reserved.",
    ),
    hostile(
      "a full disk under the state",
      [
        at(
          "integration/restart/disk-full.test.ts",
          "a full disk refuses creates with what to do; reads, commands and deletes work; nothing is broken after",
        ),
      ],
      "a full disk under the state is reported as Berth's own failure",
    ),
    hostile(
      "more creates than the limit",
      [
        at(
          "integration/sandboxes/capacity.test.ts",
          "of creates beyond the limit exactly as many succeed as there are places, time and again",
        ),
        at(
          "unit/sandboxes/capacity.test.ts",
          "as many creates wait as places are being released, in order, and the limit is never exceeded",
        ),
      ],
      "there are places for any number of sandboxes",
    ),
    hostile(
      "delete during exec",
      [at(DELETE, "a delete ends commands that exceed the grace period, and they report it")],
      "operations do not report that their sandbox was deleted",
    ),
    layered(
      "double delete",
      [at(DELETE, "concurrent deletes of one sandbox all return when it is removed")],
      "A delete joins the one under way; one that did not would wait for its lock, and find the sandbox gone.",
    ),
    layered(
      "SIGTERM during create",
      [at("integration/service/shutdown.test.ts", "SIGTERM during creates leaves no container")],
      "The stop aborts creates, each of which removes what it made; then it deletes every sandbox that is not gone, which aborts creates too.",
    ),
    layered(
      "two services on one daemon",
      [at(RESTART, "two services on one daemon do not touch each other's sandboxes")],
      "One filter, by the instance's label, keeps them apart. Without it the probe itself would remove the sandboxes of every other service on the daemon.",
    ),
    hostile(
      "request ids across a restart",
      [at(RESTART, "answers a request id as before, and creates nothing twice")],
      "the retry of a request whose answer was dropped carries it out again",
    ),
  ],
  workspaces: [
    hostile(
      "on Kubernetes: an image's own programs at a volume that is mounted read-only",
      [
        at(
          "unit/engine/kubernetes/volumes.test.ts",
          "a read-only directory is created before the container starts, by no program of the sandbox's image",
        ),
        at(
          "integration/kubernetes/workspaces.kubernetes.ts",
          "that no sandbox has mounted yet can be read, exported and measured: they are empty",
        ),
      ],
      "kubernetes: a program of the sandbox's image may write to a volume that is mounted read-only",
    ),
    hostile(
      "100 reference changes at once",
      [
        at(
          "integration/workspaces/crashes.test.ts",
          "100 concurrent reference changes on 20 workspaces, with three kills in between, leave exact references",
        ),
      ],
      "references are kept in memory, and on the disk a while later",
    ),
    hostile(
      "ids with /, .., unicode and case variants",
      [at(REFERENCES, "are names, never paths: each has a directory of its own in the root")],
      "a workspace's directory is named by its id alone",
    ),
    hostile(
      "a forced cleanup while in use",
      [
        at(
          "integration/workspaces/docker.test.ts",
          "a forced cleanup deletes nothing under a container that may be running, and can be retried",
        ),
      ],
      "force deletes the directory under a live container",
    ),
    hostile(
      "a crash between two writes",
      [
        at(
          "integration/workspaces/crashes.test.ts",
          "a forced cleanup interrupted by a kill is finished at the next start, and its retry is answered once",
        ),
      ],
      "references are kept in memory, and on the disk a while later",
    ),
    hostile(
      "a link planted where a directory was",
      [at(REFERENCES, "in place of a workspace's directory breaks only that workspace, and is not followed")],
      "a link in the place of a workspace's directory is followed",
    ),
  ],
};
