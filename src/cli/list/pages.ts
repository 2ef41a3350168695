const PAGE_SIZE = 1000;

/** Reads all pages of a list. */
export async function everyPage<P extends { readonly nextPageToken: string }>(
  read: (page: { readonly pageSize: number; readonly pageToken: string }) => Promise<P>,
): Promise<P[]> {
  const pages: P[] = [];
  for (let pageToken = ""; ; ) {
    const page = await read({ pageSize: PAGE_SIZE, pageToken });
    pages.push(page);
    pageToken = page.nextPageToken;
    if (pageToken === "") return pages;
  }
}
