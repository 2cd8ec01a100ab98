/**
 * Largest event read; peers of the field use the same two caps. Checked before anything is
 * allocated.
 */
export const hashesPerEventMax = 65_536;
export const tokensPerEventMax = 1_048_576;
/** One scheduler step of an engine stays far below; a clear is one event. */
export const eventsPerBatchMax = 65_536;
/** Largest payload read, 64 MiB: what engines cap their own publish queue at. */
export const payloadBytesMax = 64 * 1024 * 1024;
