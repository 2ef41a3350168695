import type { Defect } from "./defect.ts";

const TLS = "test/integration/cli/tls.test.ts";

/** Of the program `berth`, as a client and as it starts a service. */
export const PROGRAM_DEFECTS: readonly Defect[] = [
  {
    name: "the program sends its token in clear to a service with TLS, and only then says so",
    changes: [
      {
        file: "src/cli/host.ts",
        from: "if (address.overNetwork && !hasTls(address) && access.token() !== undefined) {",
        to: "if (address.overNetwork && hasTls(address) && access.token() !== undefined) {",
      },
    ],
    test: {
      file: TLS,
      title: "no token goes in clear to a service with TLS that is called by %sHOST:PORT",
      row: "",
    },
  },
  {
    name: "the program ignores --tls-ca if the address has no https://",
    changes: [
      {
        file: "src/cli/host.ts",
        from: "  if (!isVariable || address.overNetwork) requireTls(source, address);\n",
        to: "  if (isVariable && !address.overNetwork) requireTls(source, address);\n",
      },
    ],
    test: {
      file: TLS,
      title: "authorities for a service that is called without TLS are refused, and not ignored",
    },
  },
  {
    name: "berth session rm succeeds if there is no such session",
    changes: [
      {
        file: "src/cli/commands/session.ts",
        from: "results.some((result) => result.failure || isMissing(result))",
        to: "results.some((result) => result.failure)",
      },
    ],
    test: {
      file: "test/integration/cli/sessions.test.ts",
      title: "a session from create to destroy, and its tools",
    },
  },
  {
    name: "nohup does not keep a service running",
    changes: [
      {
        file: "bin/berth",
        from: "case $mask in *[13579bdf])",
        to: "case $mask in *[g])",
      },
    ],
    test: {
      file: "test/integration/cli/bin.test.ts",
      title: "does not end a service that was started by nohup",
    },
  },
  {
    name: "stdin that is a device is lost",
    changes: [
      {
        file: "src/cli/stream-process.ts",
        from: 'stats.rdev !== statSync("/dev/null").rdev',
        to: "statSync(0) === stats",
      },
    ],
    test: {
      file: "test/integration/cli/exec.test.ts",
      title: "from a device is passed on: %s",
      row: "/dev/zero",
    },
  },
  {
    name: "a wait goes over to another sandbox with the same id",
    changes: [
      {
        file: "src/cli/commands/wait.ts",
        from: "  const { generation, termination } = await read();",
        to: "  let { generation, termination } = await read();",
      },
      {
        file: "src/cli/commands/wait.ts",
        from: "    return now.generation === generation ? now.termination : undefined;",
        to: "    generation = now.generation;\n    return now.termination;",
      },
    ],
    test: {
      file: "test/integration/cli/verbs.test.ts",
      title: "reports the end of its sandbox if another one has the id once the connection is back",
    },
  },
  {
    name: "doctor finds nothing wrong with a data directory that another service holds",
    changes: [
      {
        file: "src/app.ts",
        from: "...(runs ? [] : diagnoseLock(settings.dataDir)),",
        to: "...(runs ? diagnoseLock(settings.dataDir) : []),",
      },
    ],
    test: {
      file: "test/integration/cli/doctor.test.ts",
      title: "its data directory is a problem for another service, and not for itself",
    },
  },
  {
    name: "an interrupt does not end a list that nobody reads",
    changes: [
      {
        file: "src/cli/list/list.ts",
        from: "write(stdout, textOf(items), signal)",
        to: "write(stdout, textOf(items))",
      },
    ],
    test: {
      file: "test/integration/cli/slow-reader.test.ts",
      title: "an interrupt ends a command whose output nobody reads",
    },
  },
  {
    name: "a page that a tool returns is saved without its extension",
    changes: [
      {
        file: "src/cli/attachments/save.ts",
        from: 'const [type = ""] = mediaType.split(";", 1);',
        to: 'const [type = ""] = mediaType.split("\\0", 1);',
      },
    ],
    test: {
      file: "test/unit/cli/attachments/save.test.ts",
      title: "several go into a directory, with different names that stay in it",
    },
  },
  {
    name: "the file of --secrets is not completed",
    changes: [
      {
        file: "src/cli/completion/complete.ts",
        from: "DIR|PATH|FILE\\|DIR)",
        to: "DIR|PATH)",
      },
    ],
    test: {
      file: "test/unit/cli/complete.test.ts",
      title: "files are completed where the program reads or writes them",
    },
  },
  {
    name: "no token can be created on Node 20",
    changes: [
      {
        file: "src/tenants/edit-tokens.ts",
        from: "  const server = net.createServer();\n",
        to: "  const server = net.createServer();\n  Promise.withResolvers();\n",
      },
    ],
    test: { file: "test/integration/cli/token.test.ts", title: "works on Node 20" },
  },
  {
    name: "who asks for the screen of a shell is sent to doctor",
    changes: [
      {
        file: "src/cli/failure.ts",
        from: "return metadata.capability === undefined ? undefined : MISSING;",
        to: 'return metadata.capability === "" ? undefined : MISSING;',
      },
    ],
    test: {
      file: "test/integration/cli/sessions.test.ts",
      title: "who asks for what no installation brings is not sent to doctor",
    },
  },
  {
    name: "a service that starts while Docker hangs does not stop at a signal",
    changes: [
      {
        file: "src/cli/commands/serve.ts",
        from: "service.start(config, logger, signal)",
        to: "service.start(config, logger, new AbortController().signal)",
      },
    ],
    test: {
      file: "test/integration/cli/serve.test.ts",
      title:
        "a start with the engine %s does not wait for a Docker that does not answer once it gets a signal",
      row: "auto",
    },
  },
  {
    name: "an error that quotes a sandbox acts on the terminal",
    changes: [
      {
        file: "src/cli/colour.ts",
        from: '"bad")} ${visibleLines(lines)}\\n`',
        to: '"bad")} ${lines}\\n`',
      },
    ],
    test: {
      file: "test/unit/cli/colour.test.ts",
      title: "nothing that an error or a remark quotes acts on the terminal, and its lines stay lines",
    },
  },
  {
    name: "an argument that is not UTF-8 becomes another one",
    changes: [
      {
        file: "src/cli/program.ts",
        from: 'arg.includes("\\ufffd")',
        to: 'arg.includes("\\0")',
      },
    ],
    test: {
      file: "test/integration/cli/start.test.ts",
      title: "an argument that is not UTF-8 is refused, and not changed",
    },
  },
  {
    name: "a command about thousands of things uses up the service's connections",
    changes: [
      { file: "src/cli/each.ts", from: "const MAX_AT_ONCE = 200;", to: "const MAX_AT_ONCE = 100_000;" },
    ],
    test: {
      file: "test/unit/cli/each.test.ts",
      title:
        "a command about thousands of things takes turns, and does not use up the connections of a service",
    },
  },
  {
    name: "a long list ends the program",
    changes: [
      {
        file: "src/cli/format.ts",
        from: 'lines.reduce((most, cells) => Math.max(most, columnsOf(cells[column] ?? "")), 0)',
        to: 'Math.max(...lines.map((cells) => columnsOf(cells[column] ?? "")))',
      },
    ],
    test: { file: "test/unit/cli/format.test.ts", title: "a table may have hundreds of thousands of lines" },
  },
  {
    name: "Ctrl-C does not end a command about several things whose output nobody reads",
    changes: [
      {
        file: "src/cli/each.ts",
        from: "if (flags.json) await writeJson(io.stdout, result, signal);",
        to: "if (flags.json) await writeJson(io.stdout, result);",
      },
    ],
    test: {
      file: "test/integration/cli/slow-reader.test.ts",
      title: "an interrupt ends a command whose output nobody reads",
    },
  },
  {
    name: "berth doctor waits for a Docker that hangs, whatever signal it gets",
    changes: [
      {
        file: "src/cli/commands/doctor.ts",
        from: 'config.engine === "kubernetes" ? diagnosis',
        to: 'config.engine !== "bubblewrap" ? diagnosis',
      },
    ],
    test: {
      file: "test/integration/cli/doctor.test.ts",
      title: "Ctrl-C ends the wait for a daemon that does not answer",
    },
  },
  {
    name: "a watch of a run does not end after the clock was set back",
    changes: [
      {
        file: "src/cli/commands/runs.ts",
        from: "isNewest ||= time !== undefined",
        to: "isNewest = time !== undefined",
      },
    ],
    test: {
      file: "test/unit/cli/runs.test.ts",
      title: "a run is followed to its newest end, also if the service's clock was set back before it",
    },
  },
  {
    name: "the sessions of an empty worker are those of every worker",
    changes: [
      {
        file: "src/cli/commands/session.ts",
        from: 'workerId: idValue("--worker", flags.worker), resourceTypes',
        to: 'workerId: flags.worker ?? "", resourceTypes',
      },
    ],
    test: {
      file: "test/unit/cli/command-lines.test.ts",
      title: "an empty worker, as of a variable that is not set, does not mean every worker",
    },
  },
  {
    name: "a screenshot is written between the lines of JSON",
    changes: [
      {
        file: "src/cli/commands/tool.ts",
        from: 'if (flags.json && flags.output === "-") {',
        to: 'if (flags.json && flags.output === "") {',
      },
    ],
    test: {
      file: "test/unit/cli/command-lines.test.ts",
      title: "binary data does not get between the lines of JSON",
    },
  },
  {
    name: "the program does not say how to make a workspace that it did not find",
    changes: [{ file: "src/cli/failure.ts", from: ". To create one: berth workspace create ID", to: "" }],
    test: {
      file: "test/integration/cli/lists.test.ts",
      title: "a workspace that does not exist is refused with how to make one",
    },
  },
  {
    name: "what callers chose acts on the terminal on which the log is read",
    changes: [
      {
        file: "src/cli/service-log.ts",
        from: "escapeActive(format === undefined ? line : format(line))",
        to: "(format === undefined ? escapeActive(line) : format(line))",
      },
    ],
    test: {
      file: "test/integration/cli/service-log.test.ts",
      title: "a field that a caller chose does not act on the terminal on which a log of %s is read",
      row: "text",
    },
  },
  {
    name: "Tab waits for a service in the network as long as the program looks for TLS",
    changes: [
      {
        file: "src/cli/commands/completion.ts",
        from: "await untilAborted(asked, signal);",
        to: "await untilAborted(asked, undefined);",
      },
    ],
    test: {
      file: "test/integration/cli/completion.test.ts",
      title: "a service%s that does not answer holds the shell for a second",
      row: " in the network",
    },
  },
  {
    name: "Tab in bash finds nothing behind a name with a space",
    changes: [
      { file: "src/cli/completion/scripts.ts", from: '  words=("\\${words[@]//\\\\\\\\/}")\n', to: "" },
    ],
    test: {
      file: "test/integration/cli/completion.test.ts",
      suite: "with bash",
      title: "a shell at a terminal completes %s",
      row: "berth cp box-1:deep/a\\ f",
    },
  },
  {
    name: "Tab in fish finds nothing behind a name with a space",
    changes: [
      {
        file: "src/cli/completion/scripts.ts",
        from: "(string unescape -- (commandline -ct)$quote)",
        to: "(commandline -ct)",
      },
    ],
    test: {
      file: "test/integration/cli/completion.test.ts",
      title: "fish completes %s",
      row: "berth cp box-1:deep/a\\ f",
    },
  },
  {
    name: "every user of the machine can read the address of a shown desktop in the browser's arguments",
    changes: [
      {
        file: "src/cli/commands/session-view.ts",
        from: "openBrowser(io, server.ownUrl)",
        to: "openBrowser(io, server.url)",
      },
    ],
    test: {
      file: "test/integration/cli/session-view.test.ts",
      title: "--open gives the browser an address with which other users of the machine get nothing",
    },
  },
  {
    name: "every user of the machine may follow the address that --open gives to the browser",
    changes: [
      {
        file: "src/cli/view/server.ts",
        from: "user === undefined || user !== process.geteuid?.()",
        to: "user === undefined",
      },
    ],
    test: {
      file: "test/integration/cli/session-view.test.ts",
      title: "--open gives the browser an address with which other users of the machine get nothing",
    },
  },
  {
    name: "the progress of a pull or copy leaves a row at each step in a narrow terminal",
    changes: [
      {
        file: "src/cli/progress-line.ts",
        from: "`\\r\\x1b[K${(shown + end).slice(0, columns)}`",
        to: "`\\r\\x1b[K${text}${end}`",
      },
    ],
    test: {
      file: "test/unit/cli/progress-line.test.ts",
      title: "in %s columns, a progress line fits",
      row: "45",
    },
  },
  {
    name: "the progress of a pull or copy writes escape codes to a terminal that knows none",
    changes: [{ file: "src/cli/progress-line.ts", from: ' && env.TERM !== "dumb"', to: "" }],
    test: {
      file: "test/unit/cli/progress-line.test.ts",
      title: "a terminal that cannot go back in a line gets none",
    },
  },
  {
    name: "the columns of a table are not aligned with wide characters in them",
    changes: [
      {
        file: "src/cli/format.ts",
        from: "columns += WIDE.test(character) ? 2 : 1",
        to: "columns++",
      },
    ],
    test: {
      file: "test/unit/cli/format.test.ts",
      title: "columns are aligned with characters of any width in them",
    },
  },
  {
    name: "a directory as stdin is read as an empty file, and replaces what was there",
    changes: [
      { file: "src/main.ts", from: "fstatSync(0).isDirectory()", to: "fstatSync(0).isBlockDevice()" },
    ],
    test: {
      file: "test/integration/cli/start.test.ts",
      title: "a directory as stdin is refused, and not read as an empty file",
    },
  },
  {
    name: "berth logs -f and berth wait do not survive a restart of the service",
    changes: [
      {
        file: "src/cli/retry.ts",
        from: "reasonOf(error) === ErrorReason.SHUTTING_DOWN || isConnectionFailure(error, address)",
        to: "reasonOf(error) !== ErrorReason.SHUTTING_DOWN && isConnectionFailure(error, address)",
      },
    ],
    test: {
      file: "test/integration/cli/logs.test.ts",
      title: "a restart of the service breaks it too, for berth wait as well",
    },
  },
  {
    name: "berth session rm of all sessions fails while another one ends them",
    changes: [
      {
        file: "src/cli/commands/session.ts",
        from: "const named = resourceTypes.length > 0 && !flags.force;",
        to: "const named = !flags.force;",
      },
    ],
    test: {
      file: "test/integration/cli/sessions.test.ts",
      title: "to end all sessions is no failure while others end them",
    },
  },
];
