/** The standard health service's status for the whole server, requested like a load balancer does. */
export async function healthOf(address: string): Promise<string> {
  const answer = await fetch(`http://${address}/grpc.health.v1.Health/Check`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: "{}",
  });
  const { status } = (await answer.json()) as { readonly status: string };
  return status;
}
