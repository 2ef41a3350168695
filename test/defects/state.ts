import type { Defect } from "./defect.ts";

const EVENT_LOG = "src/state/event-log.ts";

/** State that is stored, published and listed. */
export const STATE_DEFECTS: readonly Defect[] = [
  {
    name: "all events that wait for a full disk are stored in one transaction",
    changes: [
      {
        file: EVENT_LOG,
        from: "const STORED_AT_ONCE = 500;",
        to: "const STORED_AT_ONCE = Number.POSITIVE_INFINITY;",
      },
    ],
    test: {
      file: "test/unit/sandboxes/journal.test.ts",
      title: "thousands of events that wait for a full disk are stored in parts, in order",
    },
  },
  {
    name: "an event wakes thousands of watchers in one turn of the event loop",
    changes: [
      {
        file: EVENT_LOG,
        from: "    void turns.wakeEach(watchers);\n",
        to: "    for (const wake of watchers) wake();\n",
      },
    ],
    test: {
      file: "test/unit/state/event-log.test.ts",
      title: "that waits is woken in turns of the event loop, because thousands may wait",
    },
  },
  {
    name: "an event that cannot wait is published before thousands that wait",
    changes: [
      {
        file: EVENT_LOG,
        from: "    if (event !== undefined && this.#waiting.length > STORED_AT_ONCE) throw behindOthers();\n",
        to: "",
      },
    ],
    test: {
      file: "test/unit/state/event-log.test.ts",
      title: "among thousands is stored with a part of them, and nothing is stored before them",
    },
  },
  {
    name: "a service on bubblewrap does not say that the containers of an earlier one on Docker run on",
    changes: [
      {
        file: "src/engine/choose.ts",
        from: "    if (containers() > 0)\n",
        to: "    if (containers() < 0)\n",
      },
    ],
    test: {
      file: "test/integration/cli/serve.test.ts",
      title:
        "a service that is to run on bubblewrap says which containers an earlier one left, and that they run on",
    },
  },
  {
    name: "a deletion that is repeated after a crash ends a later sandbox with the same id",
    changes: [
      {
        file: "src/sandboxes/manager.ts",
        from: "    if (subject !== String(record.place)) return;\n",
        to: "",
      },
    ],
    test: {
      file: "test/unit/sandboxes/manager.test.ts",
      title: "repeated, because its answer was lost, does not end a later sandbox with the same id",
      suite: "delete",
    },
  },
  {
    name: "a canceled request that succeeds late replaces the answer of its retry",
    changes: [
      {
        file: "src/state/request-log.ts",
        from: "        if (this.#entries.get(name) !== entry) return;\n        const unstoredBytes",
        to: "        const unstoredBytes",
      },
    ],
    test: {
      file: "test/unit/state/request-log.test.ts",
      title: "and whose canceled work succeeds all the same does not change the answer of the retry",
      suite: "a caller that goes away",
    },
  },
  {
    name: "a retry of an upload fails because the caller that it waited for has left",
    changes: [
      {
        file: "src/state/request-log.ts",
        from: 'if (needs !== "input" || entry.state !== "failed" || wasStopped) throw error;',
        to: 'if (needs !== "input" || entry.state !== "answered" || wasStopped) throw error;',
      },
    ],
    test: {
      file: "test/unit/state/request-log.test.ts",
      title: "amid its input leaves a retry that waits to send its own",
      suite: "a caller that goes away",
    },
  },
  {
    name: "the oldest requests beyond the limit are removed at once, with hundreds of megabytes of answers",
    changes: [{ file: "src/state/request-store.ts", from: "    left.bytes -= bytes;\n", to: "" }],
    test: {
      file: "test/unit/state/request-log.test.ts",
      title: "large answers of requests beyond the limits are removed a part at a time",
    },
  },
  {
    name: "answers take more disk than they may, because those that make room are small",
    changes: [
      {
        file: "src/state/request-store.ts",
        from: "if (dropped < over) return dropped > 0;",
        to: "if (dropped < over) return false;",
      },
    ],
    test: {
      file: "test/unit/state/request-log.test.ts",
      title: "are dropped though they are small and many, for one that is large",
      suite: "answers beyond the limit",
    },
  },
  {
    name: "answers beyond the limit are dropped at once, however large they are",
    changes: [
      {
        file: "src/state/request-store.ts",
        from: "Math.min(over, MAX_REMOVED_BYTES)",
        to: "over",
      },
    ],
    test: {
      file: "test/unit/state/request-log.test.ts",
      title: "are dropped a part at a time if they are large",
      suite: "answers beyond the limit",
    },
  },
  {
    name: "an answer of megabytes is read to learn its size",
    changes: [
      {
        file: "src/state/schema.ts",
        from: "    answer_bytes INTEGER NOT NULL,\n    expires_at REAL NOT NULL,\n    answer BLOB,\n",
        to: "    answer BLOB,\n    answer_bytes INTEGER NOT NULL,\n    expires_at REAL NOT NULL,\n",
      },
      {
        file: "src/state/schema.ts",
        from: "subject, answer_bytes, expires_at, answer FROM requests",
        to: "subject, answer, answer_bytes, expires_at FROM requests",
      },
    ],
    test: {
      file: "test/unit/state/request-log.test.ts",
      title: "answers of a database from before they were its last column are kept, and counted as before",
    },
  },
  {
    name: "a commit waits for the disk until a long log is in the file",
    changes: [
      {
        file: "src/state/database.ts",
        from: "PRAGMA wal_autocheckpoint = ${MAX_LOG_PAGES}",
        to: "PRAGMA wal_autocheckpoint",
      },
    ],
    test: {
      file: "test/integration/state/store.test.ts",
      title: "no commit waits until a long log is in the file: a thread copies it",
    },
  },
  {
    name: "ended sandboxes keep megabytes of variables in memory",
    changes: [{ file: "src/sandboxes/record.ts", from: "    this.#spec = read;\n", to: "    void read;\n" }],
    test: {
      file: "test/unit/sandboxes/manager.test.ts",
      title: "with a large environment does not keep it in memory, and still shows it",
      suite: "an ended sandbox",
    },
  },
  {
    name: "everything that waits to be stored is written in one turn of the event loop",
    changes: [
      {
        file: "src/state/write-behind.ts",
        from: "const SLICE_MS = 20;",
        to: "const SLICE_MS = Number.POSITIVE_INFINITY;",
      },
    ],
    test: {
      file: "test/unit/state/write-behind.test.ts",
      title: "many long writes leave turns of the event loop between them",
    },
  },
  {
    name: "of a sandbox's spec only the variables count, so a page of a list has 700 MB and blocks all other calls",
    changes: [
      {
        file: "src/sandboxes/record.ts",
        from: "  return JSON.stringify(spec).length;",
        to: "  return JSON.stringify(spec.env).length;",
      },
    ],
    test: {
      file: "test/unit/sandboxes/manager.test.ts",
      title: "with large %s fills a page as one with large variables does",
      row: "names of secrets",
    },
  },
  {
    name: "a late write of an ended life overwrites the next life of its id",
    changes: [
      {
        file: "src/sandboxes/store.ts",
        from: "  ON CONFLICT (owner, sandbox_id) DO NOTHING`;",
        to: `  ON CONFLICT (owner, sandbox_id) DO UPDATE SET
    generation = excluded.generation, state = excluded.state, phase = excluded.phase\`;`,
      },
    ],
    test: {
      file: "test/unit/sandboxes/store.test.ts",
      title: "a late write of an earlier sandbox never changes a later one with the same id",
    },
  },
  {
    name: "the version of a database is only read from its header",
    changes: [
      {
        file: "src/state/data-dir.ts",
        from: '    assertKnownVersion(file, Number(database.prepare("PRAGMA user_version").get()?.user_version));\n',
        to: "",
      },
    ],
    test: {
      file: "test/integration/state/store.test.ts",
      title: "a newer version's database, whose service was killed before SQLite wrote its log back",
      suite: "is refused with its reason, and stays as it was,",
    },
  },
  {
    name: "a copy of a data directory runs next to the original",
    changes: [
      {
        file: "src/app.ts",
        from: 'if (engine.name === "docker") releaseInstance',
        to: "if (false) releaseInstance",
      },
    ],
    test: {
      file: "test/integration/cli/serve-data-dir.test.ts",
      title:
        "a copy of the data directory of a running service is refused where it would remove that one's containers",
    },
  },
  {
    name: "a Docker that is late loses the sandboxes that are left in it",
    changes: [
      { file: "src/engine/choose.ts", from: "if (containers() > 0) {", to: "if (containers() < 0) {" },
    ],
    test: {
      file: "test/integration/cli/serve.test.ts",
      title: "where containers are left, bubblewrap does not take the place of a Docker that does not answer",
    },
  },
  {
    name: "a key is made for a database that has lost its own",
    changes: [
      { file: "src/state/data-dir.ts", from: "!hasKey(key) && isSealed(this.database)", to: "false" },
    ],
    test: {
      file: "test/integration/cli/serve-data-dir.test.ts",
      title: "a database without its key is refused, and no other key is made",
    },
  },
  {
    name: "a service that may open no more files ends",
    changes: [
      {
        file: "src/base/memory.ts",
        from: "used_heap_size: heap, external_memory: external } = getHeapStatistics();",
        to: "heapUsed: heap, external } = process.memoryUsage();",
      },
    ],
    test: { file: "test/unit/base/memory.test.ts", title: "a process that may open no more files lives on" },
  },
  {
    name: "a service starts with a database that it cannot read",
    changes: [
      {
        file: "src/state/seal.ts",
        from: "if (text.startsWith(SEALED_PREFIX) && text !== this.#textHead) throw",
        to: 'if (text === "" && text !== this.#textHead) throw',
      },
    ],
    test: {
      file: "test/integration/state/store.test.ts",
      title: "sandboxes and processes that ended under another key are refused when they are listed",
    },
  },
  {
    name: "a page token names an element, which may go",
    changes: [
      {
        file: "src/base/ordered-index.ts",
        from: "after === undefined ? list.length : this.#countBefore(list, after);",
        to: `after === undefined ? list.length : list.findIndex((item) => {
      const { at, id } = this.#positionOf(item);
      return at === after.at && id === after.id;
    });`,
      },
    ],
    test: {
      file: "test/unit/base/ordered-index.test.ts",
      title: "a part continues from a position whose element is gone",
    },
  },
  {
    name: "an event is published before it is stored",
    changes: [
      {
        file: EVENT_LOG,
        from: "    if (!this.#overflow) this.#waiting.push(event);\n",
        to: `    this.#last++;
    this.#add({ ...event, sequence: this.#last });
`,
      },
    ],
    test: {
      file: "test/unit/state/event-log.test.ts",
      title: "is published once it is stored, in the order in which things happened",
    },
  },
  {
    name: "after a loss of power, numbers of events are used again",
    changes: [{ file: EVENT_LOG, from: "openedIn !== clock.bootId", to: "openedIn === undefined" }],
    test: {
      file: "test/unit/state/event-log.test.ts",
      title: "of a machine that lost its power, no number that may have been published is used again",
    },
  },
  {
    name: "an owner's many ended sandboxes push another owner's out of the records",
    changes: [
      {
        file: "src/base/fair-share.ts",
        from: "(next[1].sum > most[1].sum ? next : most)",
        to: "(next[1].sum > Number.POSITIVE_INFINITY ? next : most)",
      },
    ],
    test: {
      file: "test/unit/sandboxes/registry.test.ts",
      title: "an owner's flood of ended sandboxes does not push out another's",
    },
  },
  {
    name: "creating a run reads all runs of its owner",
    changes: [
      {
        file: "src/runs/store.ts",
        from: "(SELECT settled FROM run_counts WHERE owner = ?1)",
        to: "(SELECT count(*) FROM runs WHERE owner = ?1 AND +unsettled = 0)",
      },
    ],
    test: {
      file: "test/unit/runs/store.test.ts",
      title: "with 10,000 runs a create and a list, filtered or not, take as long as with 100",
    },
  },
  {
    name: "a list of live sandboxes looks at every ended one",
    changes: [
      {
        file: "src/sandboxes/registry.ts",
        from: "(ended ? this.#readableByOwner : this.#liveByOwner)",
        to: "this.#readableByOwner",
      },
    ],
    test: {
      file: "test/unit/sandboxes/registry.test.ts",
      title: "a list of live sandboxes reads no ended ones, and no more than its page",
    },
  },
  {
    name: "the service shows no figures of its process",
    changes: [
      { file: "src/app.ts", from: "new ProcessMetrics(metrics)", to: "new ProcessMetrics(new Registry())" },
    ],
    test: {
      file: "test/integration/service/metrics.test.ts",
      title:
        "two services of one process report its memory, descriptors and event loop, and the second continues without the first",
    },
  },
  {
    name: "the lag of the event loop is that of the scrape before",
    changes: [
      {
        file: "src/server/process-metrics.ts",
        from: "p99.set(seconds(lag.percentile(99)));",
        to: "setImmediate((late: number) => p99.set(late), seconds(lag.percentile(99)));",
      },
    ],
    test: {
      file: "test/unit/server/process-metrics.test.ts",
      title: "all figures about the lag of the event loop are of the time since the last scrape",
    },
  },
  {
    name: "the end of a sandbox that is being created is dropped",
    changes: [
      {
        file: "src/sandboxes/recover.ts",
        from: "      if (isEnd) earlyEnds.onEvent(event);\n",
        to: "",
      },
    ],
    test: {
      file: "test/unit/sandboxes/manager.test.ts",
      title: "a warm sandbox that ends while its limits are changed is replaced by a new one",
    },
  },
  {
    name: "a report that a sandbox was resumed is dropped while an earlier one is checked",
    changes: [
      {
        file: "src/sandboxes/recover.ts",
        from: "    const adopted = locks.run(",
        to: "    if (isLive(record.phase) && record.phase.state === state) return;\n    const adopted = locks.run(",
      },
    ],
    test: {
      file: "test/unit/sandboxes/manager.test.ts",
      title:
        "a sandbox that is %s, and is changed and changed back while Berth asks for its state, is so again",
      row: "RUNNING",
    },
  },
  {
    name: "what was removed counts as lost where its event comes late",
    changes: [
      {
        file: "src/sandboxes/recover.ts",
        from: "      if (unseen) this",
        to: "      if (ref || unseen) this",
      },
    ],
    test: {
      file: "test/integration/restart/engine-trouble.test.ts",
      title: "a container that is removed while its event is in transit counts as removed, and not as lost",
    },
  },
  {
    name: "the warm pool starts nothing more for sessions once the engine has less memory than it had",
    changes: [
      {
        file: "src/sandboxes/warm-pool.ts",
        from: "const asked = (): RequestedSpec => fitSpec(spec, this.#parts.monitor.info);",
        to: "const fitted = fitSpec(spec, this.#parts.monitor.info);\n    const asked = (): RequestedSpec => fitted;",
      },
    ],
    test: {
      file: "test/unit/sandboxes/prepared-pool.test.ts",
      title: "gives out what is ready, with less memory, and prepares more",
    },
  },
  {
    name: "the oldest requests are forgotten, whoever sent more",
    changes: [
      {
        file: "src/state/request-store.ts",
        from: "WHERE owner = ? AND answer_bytes <> 0 ORDER BY place LIMIT ?",
        to: "WHERE ? <> '' AND answer_bytes <> 0 ORDER BY place LIMIT ?",
      },
    ],
    test: {
      file: "test/unit/state/request-log.test.ts",
      title: "an owner that sends many requests does not make those of others run twice",
    },
  },
  {
    name: "requests in progress are forgotten for newer ones",
    changes: [
      {
        file: "src/state/request-store.ts",
        from: "WHERE owner = ? AND answer_bytes <> 0 ORDER BY place LIMIT ?",
        to: "WHERE owner = ? ORDER BY place LIMIT ?",
      },
    ],
    test: {
      file: "test/unit/state/request-log.test.ts",
      title: "an owner that sends many requests does not make those of others run twice",
    },
  },
  {
    name: "requests that an older version stored are not counted",
    changes: [
      {
        file: "src/state/schema.ts",
        from: "owner = answer_totals.owner AND answer_bytes <> 0);",
        to: "owner = answer_totals.owner AND answer_bytes > 0);",
      },
    ],
    test: {
      file: "test/unit/state/request-log.test.ts",
      title: "requests of a database from before the counters are counted",
    },
  },
  {
    name: "on a full disk, one owner's answers push out those of others",
    changes: [
      {
        file: "src/state/request-log.ts",
        from: "    this.#unstored.set(owner, name);\n",
        to: '    this.#unstored.set("", name);\n',
      },
    ],
    test: {
      file: "test/unit/state/request-log.test.ts",
      title: "that cannot be stored are those of the owner with most",
    },
  },
  {
    name: "a key that a full disk left empty keeps the service from starting",
    changes: [{ file: "src/state/seal.ts", from: "    if (key.length === 0) return undefined;\n", to: "" }],
    test: {
      file: "test/unit/state/seal.test.ts",
      title: "an empty file, as a full disk or a crash leaves it, is a missing key",
    },
  },
  {
    name: "an empty key in the place of a lost one is replaced",
    changes: [
      {
        file: "src/state/data-dir.ts",
        from: "if (!hasKey(key) && isSealed(this.database))",
        to: "if (!existsSync(key) && isSealed(this.database))",
      },
    ],
    test: {
      file: "test/integration/cli/serve-data-dir.test.ts",
      title: "a database without its key is refused, and no other key is made",
    },
  },
  {
    name: "a first start on a nearly full disk shows an error of the database",
    changes: [
      {
        file: "src/state/data-dir.ts",
        from: "const translated = translateError(error);",
        to: "const translated = error;",
      },
    ],
    test: {
      file: "test/integration/restart/first-start.test.ts",
      title: "a first start on a disk with %s free blocks says what to do, and a later one works",
      row: "4",
    },
  },
  {
    name: "requests that expired together are all removed in one turn of the event loop",
    changes: [
      {
        file: "src/state/request-store.ts",
        from: "      .iterate(now, MAX_EXPIRED);",
        to: "      .iterate(now, 1e9);",
      },
    ],
    test: {
      file: "test/unit/state/request-log.test.ts",
      title: "many requests that expired together are removed a part at a time",
    },
  },
  {
    name: "the comparison of all sandboxes with the engine's takes the square of their number",
    changes: [
      {
        file: "src/sandboxes/recover.ts",
        from: "const record = records.get(ref);",
        to: "const record = registry.byRef(ref);\n        void records;",
      },
    ],
    test: {
      file: "test/unit/sandboxes/reconciler.test.ts",
      title:
        "thousands of sandboxes are compared with the engine's in much less time than looking up each takes",
    },
  },
  {
    name: "a retry that fails before its work looks forgets what the request had started",
    changes: [
      {
        file: "src/state/request-log.ts",
        from: "if (stored !== subject) this.#forget(key);",
        to: "if (stored !== undefined) this.#forget(key);",
      },
    ],
    test: {
      file: "test/unit/state/request-log.test.ts",
      title:
        "what an interrupted request had started is known to the next retry if one fails before it looks",
    },
  },
  {
    name: "a repeated create gets a later sandbox of the same id",
    changes: [
      {
        file: "src/sandboxes/create.ts",
        from: "if (record?.place !== place) return undefined;",
        to: "if (record === undefined) return undefined;",
      },
    ],
    test: {
      file: "test/unit/sandboxes/manager.test.ts",
      title: "repeated, because its answer was lost, does not get a later sandbox with the same id",
    },
  },
];
