import { isatty } from "node:tty";
import { type BatonError, errorCatalogue } from "@baton/domain";
import { assertNever, type Outcome } from "@baton/kit";
import type { Clock, Timers } from "@baton/ports";
import type { Frozen, LoadedConfig } from "./config-load.ts";
import { changedConfig } from "./config-print.ts";
import { type ConfigProblem, configError, problemText } from "./config-problem.ts";
import { exitCodeOf, exitCrash, exitDrainCut, exitOk, exitOnSignal } from "./exit-code.ts";
import type { HostConfig } from "./host-config.ts";
import { type HostProcess, hostProcess } from "./host-process.ts";
import { createLogger, type HostLogger } from "./logger.ts";
import { maskText } from "./secret-mask.ts";
import { type StopReason, StopRequest } from "./stop-request.ts";
import { systemClock } from "./system-clock.ts";
import { systemTimers } from "./system-timers.ts";

export interface ServiceContext<T> {
  readonly config: Frozen<T>;
  readonly logger: HostLogger;
  readonly clock: Clock;
  readonly timers: Timers;
  /** Aborts when the service is to stop, also while it still starts. */
  readonly stopping: AbortSignal;
  /** Asks for the same end as SIGTERM; with an error, its exit code. */
  stop(error: BatonError | null): void;
}

export interface RunningService {
  /**
   * Takes no new work, lets running work end, cuts what is left at the deadline, and frees all that
   * keeps the event loop alive. Called once.
   */
  drain(deadlineMs: number): Promise<void>;
}

export interface ServiceOptions<T extends HostConfig> {
  readonly name: string;
  /** As `loadConfig` gave it: with problems the service is not started. */
  readonly config: Outcome<LoadedConfig<T>, readonly ConfigProblem[]>;
  /** A failure ends the process with one message and no stack; a throw is a crash. */
  readonly start: (context: ServiceContext<T>) => Promise<Outcome<RunningService, BatonError>>;
  /** Drain when standard input ends; `--die-with-parent`. A parent's IPC channel always counts. */
  readonly dieWithParent?: boolean;
  readonly process?: HostProcess;
  readonly logger?: HostLogger;
  readonly clock?: Clock;
  readonly timers?: Timers;
}

/** Nobody reads the answers of a child whose parent is gone. */
const orphanDrainMsMax = 1_000;
/** What a drain may take beyond its deadline, to close what it cut. */
const drainGraceMs = 1_000;
/** What the event loop gets to empty itself before the process is ended by force. */
const lastResortMs = 2_000;

/**
 * Runs one service as a process. SIGINT, SIGTERM, the parent's death or `context.stop` drain it,
 * then the process ends because its event loop is empty. A second signal ends it at once. Uncaught
 * exceptions and rejections are logged and end it with 70.
 * Resolves with the exit code, which is set: 0, 64, 69, 70, 71 or 75 (`exit-code.ts`).
 */
export async function runService<T extends HostConfig>(
  options: ServiceOptions<T>,
): Promise<number> {
  const { config, process: host = hostProcess } = options;
  if (!config.ok) return refuse(host, configError(config.error));
  const { value, warnings } = config.value;
  const logger = options.logger ?? serviceLogger(options.name, value);
  const crash = installCrashHandlers(host, logger);
  for (const warning of warnings) logger.warn({ problem: problemText(warning) }, "config warning");
  logger.info({ config: changedConfig(config.value) }, "starting");
  try {
    return await run({ ...options, host, logger, value });
  } catch (error) {
    crash("start or drain", error);
    return exitCrash;
  }
}

async function run<T extends HostConfig>(
  given: ServiceOptions<T> & {
    readonly host: HostProcess;
    readonly logger: HostLogger;
    readonly value: Frozen<T>;
  },
): Promise<number> {
  const { host, logger, value, clock = systemClock, timers = systemTimers } = given;
  const exitNow = (code: number): void => {
    logger.flushNow();
    host.exit(code);
  };
  const { drainDeadlineMs } = (value as HostConfig).shutdown;
  let overrun: { cancel(): void } | null = null;
  const request = new StopRequest(host, {
    dieWithParent: given.dieWithParent ?? false,
    onReason(reason) {
      const limitMs = deadlineOf(reason, drainDeadlineMs) + drainGraceMs;
      logger.info({ ...reason, limitMs }, "stopping");
      overrun = timers.after(limitMs, () => {
        logger.error({ resources: host.activeResources() }, "drain deadline passed, work is cut");
        exitNow(exitDrainCut);
      });
    },
    onSecondSignal(signal) {
      logger.warn({ signal }, "second signal, ending at once");
      exitNow(exitOnSignal[signal]);
    },
  });
  const end = async (code: number): Promise<number> => {
    overrun?.cancel();
    request.close();
    host.setExitCode(code);
    host.afterUnheld(lastResortMs, () => {
      logger.error({ resources: host.activeResources() }, "event loop did not empty");
      exitNow(code);
    });
    await logger.flush();
    return code;
  };
  const stopping = request.signal;
  const stop = (error: BatonError | null) => request.ask(error);
  const started = await given.start({ config: value, logger, clock, timers, stopping, stop });
  if (!started.ok) {
    return await end(stopping.aborted ? exitOk : refuse(host, started.error));
  }
  if (!stopping.aborted) logger.info({}, "started");
  const reason = await request.reason;
  await started.value.drain(deadlineOf(reason, drainDeadlineMs));
  const code = codeOf(reason);
  if (reason.kind === "asked" && reason.error !== null) host.writeError(errorText(reason.error));
  logger.info({ code }, "stopped");
  return await end(code);
}

function deadlineOf(reason: StopReason, drainDeadlineMs: number): number {
  const isOrphan = reason.kind === "parent-gone";
  return isOrphan ? Math.min(drainDeadlineMs, orphanDrainMsMax) : drainDeadlineMs;
}

function codeOf(reason: StopReason): number {
  switch (reason.kind) {
    case "signal":
    case "parent-gone":
      return exitOk;
    case "asked":
      return reason.error === null ? exitOk : exitCodeOf(reason.error);
    default:
      return assertNever(reason);
  }
}

/** Says on stderr why this process does not start, and sets its exit code. */
export function refuse(host: Pick<HostProcess, "writeError" | "setExitCode">, error: BatonError) {
  const code = exitCodeOf(error);
  host.writeError(errorText(error));
  host.setExitCode(code);
  return code;
}

/** `error CODE: what`, the cause, and `next step: …`; for people at a terminal. */
export function errorText(error: BatonError): string {
  const cause = error.cause === undefined ? "" : `\n  cause: ${error.cause}`;
  const text = `error ${error.code}: ${error.message}${cause}`;
  return `${maskText(text)}\n  next step: ${errorCatalogue[error.code].nextStep}\n`;
}

function installCrashHandlers(
  host: HostProcess,
  logger: HostLogger,
): (kind: string, error: unknown) => void {
  const crash = (kind: string, error: unknown): void => {
    logger.error({ kind, error }, "crash");
    logger.flushNow();
    host.exit(exitCrash);
  };
  host.events.on("uncaughtException", (error) => crash("uncaught exception", error));
  host.events.on("unhandledRejection", (error) => crash("unhandled rejection", error));
  return crash;
}

function serviceLogger(service: string, { log }: HostConfig): HostLogger {
  const pretty = log.format === "pretty" || (log.format === "auto" && isatty(1));
  return createLogger({ level: log.level, pretty, service });
}
