import type { Defect } from "./defect.ts";

const DOMAINS = "test/integration/egress/domains.test.ts";
const CREDENTIALS = "test/integration/egress/credentials.test.ts";

/** Those of egress by domain. */
export const EGRESS_DEFECTS: readonly Defect[] = [
  {
    name: "one tenant's connections take all of the egress proxy's",
    changes: [
      {
        file: "src/egress/proxy.ts",
        from: "!this.#connections.hasRoomFor(owner)",
        to: "this.#connections.free <= 0",
      },
    ],
    test: {
      file: "test/unit/egress/proxy.test.ts",
      title: "one tenant's connections leave room for another's",
    },
  },
  {
    name: "egress: a refusal at the limit closes the connection while its request arrives",
    changes: [{ file: "src/egress/proxy.ts", from: "      socket.resume();\n", to: "" }],
    test: {
      file: "test/unit/egress/proxy.test.ts",
      title: "a client beyond the limit reads why it is refused after all of a large request",
    },
  },
  {
    name: "the egress proxy waits for a slow header for ever",
    changes: [{ file: "src/egress/proxy.ts", from: '    this.#server.emit("listening");\n', to: "" }],
    test: {
      file: "test/unit/egress/proxy.test.ts",
      title: "a header that comes too slowly ends its connection",
    },
  },
  {
    name: "egress: every domain is allowed",
    changes: [
      { file: "src/egress/target.ts", from: "if (!allows(rules, host, port)) {", to: "if (!host) {" },
    ],
    test: { file: DOMAINS, title: "another domain is refused with a clear message" },
  },
  {
    name: "egress: every port of a domain is allowed",
    changes: [
      { file: "src/egress/domains.ts", from: "ports.includes(port) && (", to: "port > 0 && ports && (" },
    ],
    test: { file: DOMAINS, title: "another port is refused" },
  },
  {
    name: "egress: the addresses of an allowed name are not checked",
    changes: [{ file: "src/egress/target.ts", from: "found.filter(isPublicAddress)", to: "[...found]" }],
    test: {
      file: DOMAINS,
      title: "an allowed name with an address that is not public is refused: %s.example",
      row: "private",
    },
  },
  {
    name: "egress: a name is resolved once more to connect",
    changes: [
      { file: "src/egress/proxy.ts", from: "connect({ host, port, lookup,", to: "connect({ host, port," },
    ],
    test: {
      file: DOMAINS,
      title: "the connection goes to the checked address, not to the name's next one",
    },
  },
  {
    name: "egress: a request keeps the Host that the client wrote",
    changes: [
      { file: "src/egress/proxy.ts", from: '      ...["Host", url.host],\n', to: "" },
      {
        file: "src/egress/proxy.ts",
        from: 'passedOn(request.rawHeaders, "host", ',
        to: "passedOn(request.rawHeaders, ",
      },
    ],
    test: { file: DOMAINS, title: "a request's Host is the checked name" },
  },
  {
    name: "egress: the body of a GET in chunks becomes a request of its own",
    changes: [{ file: "src/egress/proxy.ts", from: "      ...framingOf(request),\n", to: "" }],
    test: {
      file: DOMAINS,
      title: "a body of %s in chunks arrives as a body, and not as a request of its own",
      row: "GET",
    },
  },
  {
    name: "egress: a server that changes the protocol unasked leaves its client waiting",
    changes: [{ file: "src/egress/proxy.ts", from: 'outgoing.once("close"', to: 'outgoing.once("closed"' }],
    test: { file: DOMAINS, title: "a server that changes the protocol unasked is reported at once" },
  },
  {
    name: "egress: an answer closes the connection while its request arrives",
    changes: [
      {
        file: "src/egress/proxy.ts",
        from: "await dropRest(response.req.unpipe(), LINGER_MS);",
        to: "void dropRest(response.req.unpipe(), LINGER_MS);",
      },
    ],
    test: {
      file: DOMAINS,
      title: "an answer before the end of the request is read after it: %s",
      row: "of a server",
    },
  },
  {
    name: "egress: the head of an answer waits for its body",
    changes: [{ file: "src/egress/proxy.ts", from: "      response.flushHeaders();\n", to: "" }],
    test: { file: DOMAINS, title: "the head of an answer does not wait for its body" },
  },
  {
    name: "egress: a sandbox may have any number of connections",
    changes: [
      {
        file: "src/egress/manager.ts",
        from: "const MAX_CONNECTIONS = 64;",
        to: "const MAX_CONNECTIONS = 640;",
      },
    ],
    test: {
      file: DOMAINS,
      title: "a sandbox has at most 64 connections, and does not use up those of others",
    },
  },
  {
    name: "egress: each request of a connection opens one to the outside, answered or not",
    changes: [
      {
        file: "src/egress/proxy.ts",
        from: "if (this.#used.has(socket)) return false;",
        to: "",
      },
    ],
    test: {
      file: DOMAINS,
      title: "one connection opens one to the outside, and it ends with it: %s",
      row: "requests of HTTP/1.0",
    },
  },
  {
    name: "egress: a credential goes to every owner",
    changes: [
      {
        file: "src/egress/credentials.ts",
        from: "includes(owner) === false",
        to: "includes(owner) === undefined",
      },
    ],
    test: { file: CREDENTIALS, title: "other hosts, subdomains and other owners' hosts get none" },
  },
  {
    name: "egress: a client's own header stands before the credential",
    changes: [{ file: "src/egress/proxy.ts", from: ", ...(added ? [added.name] : []))", to: ")" }],
    test: { file: CREDENTIALS, title: "it takes the place of what the client sent" },
  },
  {
    name: "egress: a credential goes to whoever answers for the host",
    changes: [
      {
        file: "src/egress/proxy.ts",
        from: "connectTls({ socket,",
        to: "connectTls({ rejectUnauthorized: false, socket,",
      },
    ],
    test: { file: CREDENTIALS, title: "a server without a certificate for its name gets none" },
  },
  {
    name: "egress: a server may repeat the credential to a TRACE",
    changes: [
      { file: "src/egress/proxy.ts", from: 'request.method === "TRACE"', to: 'request.method === ""' },
    ],
    test: { file: CREDENTIALS, title: "TRACE, which a server answers with the request it got, is refused" },
  },
  {
    name: "egress: Docker's bridge keeps the IPv6 that somebody turned on",
    changes: [
      {
        file: "src/engine/docker/egress.ts",
        from: "    await disableIPv6();\n",
        to: "    void disableIPv6;\n",
      },
    ],
    test: {
      file: "test/integration/engine/docker/egress.test.ts",
      title: "IPv6 that was turned on for the bridge is turned off before the next sandbox",
    },
  },
  {
    name: "credentials of the egress proxy have errors in the words of a parser",
    changes: [
      {
        file: "src/egress/credentials.ts",
        from: "safeParse(content, IN_PLAIN_WORDS)",
        to: "safeParse(content)",
      },
    ],
    test: {
      file: "test/unit/egress/named-secrets.test.ts",
      title: "%s is refused in plain words",
    },
  },
];
