export { type KvEventsConfig, readKvEventSources } from "./kv-event-sources.ts";
export { probeWorker } from "./probe-worker.ts";
export {
  type WatchedWorker,
  type WorkerWatch,
  type WorkerWatchOptions,
  watchWorkers,
} from "./watch-workers.ts";
