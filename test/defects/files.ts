import type { Defect } from "./defect.ts";

const BUSY_TREE = "test/integration/workspaces/busy-tree.test.ts";

const TAR_CHUNKS = "test/unit/files/tar/chunks.test.ts";

const FILE_MEMORY = "test/unit/files/memory.test.ts";

const UNDER_WAY = {
  file: "test/integration/files/under-way.test.ts",
  title: "the temporary file of a write is not visible",
};

/** Those of files: archives, listings, what a lost service leaves behind. */
const FLOODED_LIST = {
  file: "test/unit/files/list.test.ts",
  title: "a list in which the sandbox's stat writes a flood of %s is refused at once",
};

export const FILE_DEFECTS: readonly Defect[] = [
  {
    name: "a watch keeps the whole text of its last look in memory",
    changes: [
      { file: "src/files/watch.ts", from: "  return fromBytes(toBytes(part));", to: "  return part;" },
    ],
    test: {
      file: "test/unit/files/watch.test.ts",
      title: "between two looks only names and marks stay in memory, as much as is counted",
    },
  },
  {
    name: "a watch takes a look that was cut short for a whole one",
    changes: [
      {
        file: "src/files/watch.ts",
        from: "if (found.endsWith(LAST_RECORD)) return found;",
        to: 'if (found !== "") return found;',
      },
    ],
    test: {
      file: "test/integration/files/hostile-tools.test.ts",
      title: "a watch reports nothing as removed because %s was killed halfway",
      row: "stat",
    },
  },
  {
    name: "an export remembers the names of millions of FIFOs that it omits",
    changes: [
      {
        file: "src/files/tar/restate.ts",
        from: "specialBytes += name.length + NAME_BYTES;",
        to: "specialBytes += name.length;",
      },
    ],
    test: {
      file: "test/unit/files/tar/restate.test.ts",
      title: "of any number of FIFOs that it omits, an export remembers the names of some thousand",
    },
  },
  {
    name: "what watches know of their directories has no limit together",
    changes: [
      {
        file: "src/files/watch.ts",
        from: "(memory.take(bytes) ? undefined : noMemory())",
        to: "(memory.take(bytes) ? undefined : undefined)",
      },
      {
        file: "src/files/watch.ts",
        from: "if (!memory.take(snapshot.bytes)) throw noMemory();",
        to: "memory.take(snapshot.bytes);",
      },
    ],
    test: {
      file: "test/integration/files/watch.test.ts",
      title: "a watch takes memory for what it knows until its end, and is refused if there is none",
    },
  },
  {
    name: "reads of files have no limit together",
    changes: [
      {
        file: "src/files/operation.ts",
        from: "(!counts || this.memory.take(bytes) ? undefined : noMemory())",
        to: "(!counts || this.memory.take(bytes) ? undefined : undefined)",
      },
    ],
    test: {
      file: FILE_MEMORY,
      title: "%s gather no more together than there is memory for, and give it back",
      row: "reads",
    },
  },
  {
    name: "the names that lists have read have no limit together",
    changes: [
      {
        file: "src/files/list.ts",
        from: "    if (more > 0 && !op.memory.take(more)) throw noMemory();\n",
        to: "",
      },
    ],
    test: {
      file: FILE_MEMORY,
      title: "%s gather no more together than there is memory for, and give it back",
      row: "lists",
    },
  },
  {
    name: "the names of archives that arrive have no limit together",
    changes: [
      {
        file: "src/files/archive-check.ts",
        from: "    if (!this.#take(name.length + ENTRY_BYTES)) throw noMemory();\n",
        to: "",
      },
    ],
    test: {
      file: FILE_MEMORY,
      title: "uploads of archives gather no more names together than there is memory for, and give it back",
    },
  },
  {
    name: "what downloads have read ahead has no limit together",
    changes: [
      {
        file: "src/files/running-script.ts",
        from: "    if (this.#memory?.take(chunk.length) === false) this.#uncounted += chunk.length;\n",
        to: "",
      },
    ],
    test: {
      file: FILE_MEMORY,
      title: "what downloads have read ahead of their callers is bounded together",
    },
  },
  {
    name: "the modes of an archive's directories are written in one turn of the event loop",
    changes: [
      {
        file: "src/files/upload-archive.ts",
        from: "    if (turn) await turn;\n    text += line;",
        to: "    void turn;\n    text += line;",
      },
    ],
    test: {
      file: "test/unit/files/upload-archive.test.ts",
      title: "the modes of many directories do not block the event loop",
    },
  },
  {
    name: "an archive may have any number of sparse files without data",
    changes: [
      {
        file: "src/files/upload-archive.ts",
        from: "Math.max(map.segments.length, 1)",
        to: "map.segments.length",
      },
    ],
    test: {
      file: "test/unit/files/upload-archive.test.ts",
      title: "a sparse file without data counts as a part",
    },
  },
  {
    name: "the holes of a file are filled in one turn of the event loop",
    changes: [
      {
        file: "src/files/tar/tar-writer.ts",
        from: "    if (turn) await turn;\n",
        to: "    void turn;\n",
      },
    ],
    test: {
      file: "test/unit/files/tar/chunks.test.ts",
      title: "a file with many small holes does not block the event loop",
    },
  },
  {
    name: "memory comes back before its bytes are sent",
    changes: [
      {
        file: "src/server/direct-response.ts",
        from: "      stream.write(piece, (error) => {",
        to: "      queueMicrotask(() => giveBack(piece));\n      stream.write(piece, (error) => {",
      },
    ],
    test: {
      file: "test/unit/server/lent-bytes.test.ts",
      title: "lent bytes come back only when they are sent, over %s",
      row: "HTTP/1.1",
    },
  },
  {
    name: "a large file is read into new memory each time",
    changes: [
      {
        file: "src/engine/outside/open-file.ts",
        from: "lend(bytes, () => this.#free.push(buffer));",
        to: "lend(bytes, () => {});",
      },
    ],
    test: {
      file: "test/unit/engine/outside/open-file.test.ts",
      title: "memory that was given back is read into again, and no other",
    },
  },
  {
    name: "an archive ends with an empty chunk",
    changes: [
      {
        file: "src/files/tar/tar-writer.ts",
        from: "  yield* cut(Buffer.concat(held, bytes));\n}",
        to: "  yield Buffer.concat(held, bytes);\n}",
      },
    ],
    test: {
      file: TAR_CHUNKS,
      title: "the tar of %s has chunks of 1 byte to 1 MiB",
      row: "a file that fills whole chunks",
    },
  },
  {
    name: "a chunk of an archive is larger than 1 MiB",
    changes: [
      {
        file: "src/files/tar/tar-writer.ts",
        from: "    yield* cut(held.length === 1 ? part : Buffer.concat(held, bytes));",
        to: "    yield held.length === 1 ? part : Buffer.concat(held, bytes);",
      },
    ],
    test: {
      file: TAR_CHUNKS,
      title: "the tar of %s has chunks of 1 byte to 1 MiB",
      row: "a hole that is filled",
    },
  },
  {
    name: "a watch begins with a keepalive, which callers take for its start",
    changes: [
      {
        file: "src/rpc/file-service.ts",
        from: "if (item === undefined && started) yield",
        to: "if (item === undefined) yield",
      },
    ],
    test: {
      file: "test/unit/rpc/watch-directory.test.ts",
      title: "the first message of a watch is that it has started, however long the first scan takes",
    },
  },
  {
    name: "the entries of a tar that has come whole are read in one turn",
    changes: [
      {
        file: "src/files/tar/byte-source.ts",
        from: "    const turn = turns.enter();\n    if (turn) await turn;\n    if (this.#held.length < count)",
        to: "    if (this.#held.length < count)",
      },
    ],
    test: {
      file: "test/integration/files/tar/tar-reader.test.ts",
      title: "a tar that is already all there yields to the event loop",
    },
  },
  {
    name: "an archive of a tree in use fails at a file that vanishes",
    changes: [
      {
        file: "src/files/tar/restate.ts",
        from: "|Exiting with failure status/i;",
        to: "|Exiting with failure status/;",
      },
    ],
    test: {
      file: BUSY_TREE,
      title: "a workspace that keeps changing is still exported, downloaded and measured",
    },
  },
  {
    name: "a small tar's archive breaks off at a file that shrinks",
    changes: [
      {
        file: "src/files/download-archive.ts",
        from: "if (!running.over || !isShort(await running.ended)) throw error;",
        to: "if (error || isShort(await running.ended)) throw error;",
      },
    ],
    test: {
      file: "test/integration/files/busy-tree.test.ts",
      title: "a tree that changes is still downloaded",
    },
  },
  {
    name: "every page of a listing reads the whole directory",
    changes: [
      {
        file: "src/files/list.ts",
        from: "if (more) listings.keep({ scope, path, after: last }, rest);",
        to: "",
      },
    ],
    test: {
      file: "test/integration/files/list.test.ts",
      title: "pages of one listing read the directory once",
    },
  },
  {
    name: "grep takes Perl's syntax for an extended regular expression",
    changes: [
      {
        file: "src/sessions/types/files/search.ts",
        from: 'perl === undefined ? "-rnIHEZ" : "-rnIHPZ"',
        to: '"-rnIHEZ"',
      },
    ],
    test: {
      file: "test/integration/sessions/files.test.ts",
      title: "grep supports Perl's syntax, or says that it does not",
    },
  },
  {
    name: "grep fails where its image has busybox's",
    changes: [
      {
        file: "src/sessions/types/files/search.ts",
        from: "return portableGrep(path, pattern);",
        to: "return undefined;",
      },
    ],
    test: {
      file: "test/integration/sessions/files.test.ts",
      title: "grep finds lines of text files, whatever their names",
    },
  },
  {
    name: "grep takes the first line of a name for the end of another",
    changes: [
      {
        file: "src/sessions/types/files/search.ts",
        from: "          file = part.toString();",
        to: '          file = part.toString().split("\\n").at(-1) ?? "";',
      },
    ],
    test: { file: "test/integration/sessions/files.test.ts", title: "grep distinguishes names from lines" },
  },
  {
    name: "a temporary file of a service that was killed stays",
    changes: [{ file: "src/workspaces/manager.ts", from: "    sweep.start();\n", to: "" }],
    test: {
      file: "test/integration/workspaces/left-behind.test.ts",
      title: "the leftovers of a write are removed at the next start, and nothing else",
    },
  },
  {
    name: "a listing shows what a write has under way",
    changes: [{ file: "src/files/listings.ts", from: "      if (this.#isHidden(name)) continue;\n", to: "" }],
    test: UNDER_WAY,
  },
  {
    name: "an archive holds what a write has under way",
    changes: [{ file: "src/files/tar/restate.ts", from: "if (!isLeftOut) yield item;", to: "yield item;" }],
    test: UNDER_WAY,
  },
  {
    name: "a pipe is read at full speed while its file is opened from outside",
    changes: [{ file: "src/files/running-script.ts", from: "    this.#output.hold();\n", to: "" }],
    test: {
      file: "test/unit/files/running-script.test.ts",
      title: "nothing is read from its pipes while its file is opened",
    },
  },
  {
    name: "a list takes more from the sandbox's stat than the attributes that it asked for",
    changes: [
      {
        file: "src/files/list.ts",
        from: '    if (files.length === names.length) throw strangeAnswer("stat");\n',
        to: "",
      },
    ],
    test: { file: FLOODED_LIST.file, title: FLOODED_LIST.title, row: "records" },
  },
  {
    name: "a list splits whatever the sandbox's tools write",
    changes: [
      {
        file: "src/files/list.ts",
        from: 'answer.split("\\0", 1 + maxLinks + 1)',
        to: 'answer.split("\\0")',
      },
    ],
    test: { file: FLOODED_LIST.file, title: FLOODED_LIST.title, row: "targets of links" },
  },
  {
    name: "the names for the rest of a tar are compared in one turn of the event loop",
    changes: [
      {
        file: "src/files/download-archive.ts",
        from: "      if (turn) await turn;\n",
        to: "      void turn;\n",
      },
    ],
    test: {
      file: "test/integration/files/hostile-tools.test.ts",
      title: "a flood of %s is refused, and does not block the event loop",
      row: "names",
    },
  },
  {
    name: "a tool that ignores signals outlives its download",
    changes: [
      {
        file: "src/engine/outside/open-file.ts",
        from: "killWithDescendants(scope, child, budget)",
        to: "void child",
      },
    ],
    test: {
      file: "test/integration/files/transfer.test.ts",
      title: "little of a large file passes through a pipe",
    },
  },
  {
    name: "whoever reads a large file past its script kills the script's shell too",
    changes: [
      {
        file: "src/engine/outside/open-file.ts",
        from: "  return signalProcess(scope, one, SIGKILL);",
        to: "  return process.kill(-(readProcess(one.pid)?.group ?? one.pid), SIGKILL);",
      },
    ],
    test: {
      file: "test/integration/files/transfer.test.ts",
      title: "the shell that opened a large file serves the next operation",
    },
  },
  {
    name: "the working directory is removed as .",
    changes: [
      {
        file: "src/files/manager.ts",
        from: "removeFile(op, op.entry(request.path)",
        to: "removeFile(op, op.path(request.path)",
      },
    ],
    test: {
      file: "test/integration/clients/typescript.test.ts",
      title: "does not remove or move the directory in which commands start",
    },
  },
  {
    name: "half of an upload of a known size counts as the whole",
    changes: [
      {
        file: "src/files/write.ts",
        from: "[ $2 = $n ] || give_up cat ${EXIT.incomplete}; ",
        to: "",
      },
    ],
    test: {
      file: "test/integration/files/transfer.test.ts",
      title: "when the source breaks",
      suite: "an upload that fails leaves",
    },
  },
  {
    name: "what follows the last announced byte of an upload comes too late",
    changes: [
      {
        file: "src/files/write.ts",
        from: "while ((await this.#receive()) !== undefined);",
        to: ";",
      },
    ],
    test: {
      file: "test/integration/files/transfer.test.ts",
      title: "with %s bytes, nothing is written",
      row: "300,001 instead of 300,000",
    },
  },
  {
    name: "an upload of which nothing is read any more never waits",
    changes: [{ file: "src/files/running-script.ts", from: "      await this.endedInOrder;\n", to: "" }],
    test: {
      file: "test/unit/files/running-script.test.ts",
      title:
        "what is written to a script that reads nothing any more waits for its end, and no longer than for stop",
    },
  },
  {
    name: "of a directory that is too large to be read at once, only the start is listed",
    changes: [
      {
        file: "src/files/list.ts",
        from: "  if (!answer.endsWith(end)) return undefined;\n",
        to: "",
      },
    ],
    test: {
      file: "test/integration/files/list.test.ts",
      title: "a directory that is too large to be read at once is listed whole",
      suite: "busybox",
    },
  },
  {
    name: "of a directory that an import has twice, the first mode counts",
    changes: [
      {
        file: "src/files/unpack-entries.ts",
        from: "directories.set(entry.name, entry);",
        to: "if (!directories.has(entry.name)) directories.set(entry.name, entry);",
      },
    ],
    test: {
      file: "test/integration/files/unpack-entries.test.ts",
      title: "of a directory that a tar has twice, or after its content, the last mode and time count",
    },
  },
  {
    name: "a tar's global headers make what belongs to an entry count as nothing",
    changes: [
      {
        file: "src/files/tar/tar-reader.ts",
        from: "extension.bytes -= header.size + BLOCK_BYTES;",
        to: "extension.bytes = 0;",
      },
    ],
    test: {
      file: "test/integration/files/tar/tar-reader.test.ts",
      title: "%s",
      row: "much before an entry, also with global headers between",
    },
  },
  {
    name: "a file that a tar has again as a link to itself is lost",
    changes: [
      {
        file: "src/files/unpack-entries.ts",
        from: 'if (entry.kind === "hard-link" && entry.linkName === entry.name) continue;',
        to: "",
      },
    ],
    test: {
      file: "test/integration/files/unpack-entries.test.ts",
      title: "a file that a tar has again as a link to itself stays as it is",
    },
  },
  {
    name: "names of a listing that were taken stay in memory, and count nowhere",
    changes: [
      {
        file: "src/files/listings.ts",
        from: "      run.names.splice(0, run.taken);\n      run.taken = 0;\n",
        to: "",
      },
    ],
    test: { file: "test/unit/files/listings.test.ts", title: "names that were taken are not kept" },
  },
];
