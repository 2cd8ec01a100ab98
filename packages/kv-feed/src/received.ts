interface Source<T> {
  readonly closed: boolean;
  receive(): Promise<T>;
}

/**
 * What a socket or its monitor receives, until it is closed. zeromq's own iterator throws when the
 * close meets a receive that was put off to a later turn (ENOTSOCK instead of the EAGAIN it
 * expects).
 */
export async function* received<T>(source: Source<T>): AsyncGenerator<T, void> {
  while (!source.closed) {
    let item: T;
    try {
      item = await source.receive();
    } catch (error) {
      if (source.closed) return;
      throw error;
    }
    yield item;
  }
}
