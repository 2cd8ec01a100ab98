/**
 * Aborts on Ctrl-C, SIGTERM or the end of the process that started us; a second signal ends at once.
 */
export function stopSignal(): { readonly signal: AbortSignal; close(): void } {
  const controller = new AbortController();
  const stop = () => {
    if (controller.signal.aborted) process.exit(130);
    controller.abort();
  };
  const orphan = () => controller.abort();
  process.on("SIGINT", stop);
  process.on("SIGTERM", stop);
  process.on("SIGHUP", stop);
  process.on("disconnect", orphan);
  return {
    signal: controller.signal,
    close() {
      process.off("SIGINT", stop);
      process.off("SIGTERM", stop);
      process.off("SIGHUP", stop);
      process.off("disconnect", orphan);
      if (process.connected) process.disconnect();
    },
  };
}
