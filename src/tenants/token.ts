import { createHash, randomBytes } from "node:crypto";
import { randomBase32 } from "../base/ids.ts";

const BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const SECRET_BYTES = 32;
/** Length of 256 bits in base62. */
const SECRET_LENGTH = 43;
const ID_LENGTH = 10;

/** Valid ids of tokens. */
export const TOKEN_ID = /^[a-z0-9]{4,32}$/;
const TOKEN = new RegExp(`^berth_([a-z0-9]{4,32})_[0-9A-Za-z]{${SECRET_LENGTH}}$`);

/** A newly created token. Its text is only known now. */
interface NewToken {
  readonly id: string;
  /** `berth_ID_SECRET`, where the secret is 256 random bits. */
  readonly text: string;
}

export function newToken(): NewToken {
  const id = randomBase32(ID_LENGTH);
  return { id, text: `berth_${id}_${base62(randomBytes(SECRET_BYTES))}` };
}

/** The id in a token's text; undefined if the text is not a token. */
export function tokenIdIn(text: string): string | undefined {
  return TOKEN.exec(text)?.[1];
}

/** The hash of a token to store. It needs no salt and no key stretching, because nobody can guess 256 random bits. */
export function hashOf(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

function base62(bytes: Buffer): string {
  let number = BigInt(`0x${bytes.toString("hex")}`);
  let text = "";
  for (; number > 0n; number /= 62n) text = BASE62[Number(number % 62n)] + text;
  return text.padStart(SECRET_LENGTH, "0");
}
