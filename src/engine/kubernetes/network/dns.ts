/** Resolvers of sandboxes with EGRESS. Public ones, as on Docker: a cluster's own is at a private address. */
export const DEFAULT_DNS: readonly string[] = ["1.1.1.1", "8.8.8.8"];
