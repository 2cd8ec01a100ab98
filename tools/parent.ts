/**
 * Calls back when the bootstrap that started this process is gone, however it ended. The channel
 * alone does not keep this process running. Does nothing in a process started by hand.
 */
export function onParentGone(callback: () => void): void {
  if (process.channel !== undefined) {
    process.once("disconnect", callback);
    process.channel?.unref();
  }
}
