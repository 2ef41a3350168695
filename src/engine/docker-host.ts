/** Whether Berth can reach a daemon at what `DOCKER_HOST` or `--docker-host` says: a socket of this machine, or TCP. */
export function isDockerHost(text: string): boolean {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  return url?.protocol === "unix:" ? url.pathname !== "" : /^(tcp|https?):$/.test(url?.protocol ?? "");
}
