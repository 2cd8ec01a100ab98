import type { EventEmitter } from "node:events";

/** What runService needs of `process`; tests give their own. */
export interface HostProcess {
  /** Emits SIGINT, SIGTERM, disconnect, uncaughtException, unhandledRejection. */
  readonly events: EventEmitter;
  /** A parent holds an IPC channel to this process. */
  readonly hasChannel: boolean;
  /** Opens standard input; only called when its end is to be watched. */
  stdin(): EventEmitter & { resume(): unknown; destroy(): unknown };
  writeError(text: string): void;
  /** Ends the process at once. */
  exit(code: number): void;
  /** For when the event loop is empty. */
  setExitCode(code: number): void;
  /** Like a timer, but does not keep the process alive. */
  afterUnheld(delayMs: number, callback: () => void): void;
  /** What keeps the event loop alive, by kind. */
  activeResources(): readonly string[];
}

export const hostProcess: HostProcess = {
  events: process,
  get hasChannel() {
    return process.connected === true;
  },
  stdin: () => process.stdin,
  writeError(text) {
    process.stderr.write(text);
  },
  exit(code) {
    process.exit(code);
  },
  setExitCode(code) {
    process.exitCode = code;
  },
  afterUnheld(delayMs, callback) {
    setTimeout(callback, delayMs).unref();
  },
  activeResources: () => process.getActiveResourcesInfo(),
};
