import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { tlsFiles } from "../../../src/config/tls-files.ts";
import { makeCertificate } from "../../support/certificate.ts";

let directory: string;
let own: { readonly cert: string; readonly key: string };
let other: { readonly cert: string; readonly key: string };

beforeAll(async () => {
  directory = mkdtempSync(path.join(tmpdir(), "berth-tls-"));
  own = await makeCertificate(directory, "own");
  other = await makeCertificate(directory, "other");
});

afterAll(() => rmSync(directory, { recursive: true, force: true }));

/** Writes a file of the directory. Returns its path. */
function file(name: string, content: string | Buffer): string {
  const written = path.join(directory, name);
  writeFileSync(written, content);
  return written;
}

function problemOf(cert: string, key: string, clientCa?: string): string {
  try {
    tlsFiles({ tlsCert: cert, tlsKey: key, tlsClientCa: clientCa })?.read();
    return "none";
  } catch (error) {
    return (error as Error).message;
  }
}

test("a certificate with its chain, its key and authorities are read", () => {
  const chain = file("chain.pem", readFileSync(own.cert, "latin1") + readFileSync(other.cert, "latin1"));
  expect(problemOf(chain, own.key, chain)).toBe("none");
});

test.each([
  ["empty", () => ""],
  ["a key", () => readFileSync(own.key)],
  ["cut off", () => readFileSync(own.cert).subarray(0, 200)],
  [
    "followed by half of another",
    () => `${readFileSync(own.cert)}${readFileSync(other.cert, "latin1").slice(0, 200)}`,
  ],
])("a certificate that is %s is named", (_, content) => {
  const cert = file("broken.crt", content());
  expect(problemOf(cert, own.key)).toMatch(
    new RegExp(`^--tls-cert: ${cert} holds no usable certificate \\([a-z ]+\\)\\. It must be PEM: `),
  );
});

test("a key that is too short for TLS is named as that", () => {
  const [cert, key] = [path.join(directory, "weak.crt"), path.join(directory, "weak.key")];
  const files = ["-keyout", key, "-out", cert];
  execFileSync("openssl", ["req", "-x509", "-newkey", "rsa:1024", "-nodes", "-subj", "/CN=weak", ...files], {
    stdio: "pipe",
  });
  expect(problemOf(cert, key)).toContain("(its key is too short; an RSA key needs 2048 bits)");
});

test.each([
  ["empty", () => ""],
  ["a certificate", () => readFileSync(own.cert)],
  ["cut off", () => readFileSync(own.key).subarray(0, 100)],
  [
    "encrypted",
    () => execFileSync("openssl", ["pkey", "-in", own.key, "-aes256", "-passout", "pass:secret"]),
  ],
])("a key that is %s is named", (_, content) => {
  const key = file("broken.key", content());
  expect(problemOf(own.cert, key)).toMatch(
    new RegExp(
      `^--tls-key: ${key} holds no usable key \\([a-z ]+\\)\\. It must be PEM: .*, without a passphrase\\.$`,
    ),
  );
});

test("a key of another certificate is named, with that certificate", () => {
  expect(problemOf(own.cert, other.key)).toBe(
    `--tls-key: ${other.key} does not belong to the certificate in --tls-cert: ${own.cert}. Replace whichever is out of date.`,
  );
});

test("a broken authority of clients is named", () => {
  const both = file(
    "both.pem",
    `${readFileSync(own.cert)}${readFileSync(other.cert, "latin1").slice(0, 200)}`,
  );
  expect(problemOf(own.cert, own.key, both)).toBe(
    `--tls-client-ca: ${both}: its certificate 2 cannot be read. Replace or remove it.`,
  );
});

test("a file that is missing or no file is named", () => {
  const [missing, needs] = [
    path.join(directory, "no.pem"),
    "Name a file in PEM that the service's user may read.",
  ];
  expect(problemOf(missing, own.key)).toBe(`--tls-cert: ${missing}: there is no such file. ${needs}`);
  expect(problemOf(own.cert, directory)).toBe(`--tls-key: ${directory}: it is not a file. ${needs}`);
});
