import type { IncomingHttpHeaders } from "node:http";

/** What is known of a call before its body is read. */
export interface Credentials {
  /** Request headers, names in lower case. */
  readonly headers: IncomingHttpHeaders;
  /** `package.Service/Method`. */
  readonly method: string;
  /** Address of the other end, or `unix`. */
  readonly peer: string;
}

/** Says who makes a call. */
export interface Authenticator {
  /**
   * Names the owner whose sandboxes the call may see. Runs before the body of
   * the request is read.
   *
   * @throws BerthError `UNAUTHENTICATED` for a caller that is not known
   */
  authenticate(credentials: Credentials): string | Promise<string>;
}

/** The owner of everything while the server has no tokens. */
export const DEFAULT_OWNER = "default";

/** Takes every caller for the one owner there is. */
export const anonymousAuthenticator: Authenticator = { authenticate: () => DEFAULT_OWNER };
