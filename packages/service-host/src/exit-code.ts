import type { BatonError } from "@baton/domain";

/** Exit codes of every Baton process, numbered as in BSD's sysexits.h where that has one. */
export const exitOk = 0;
/** The configuration has problems (EX_USAGE, as linkerd2-proxy does). */
export const exitConfig = 64;
/** Input that was named has a mistake, e.g. a row of a trace (EX_DATAERR). */
export const exitData = 65;
/** Something needed is not there: the bus cannot be reached, the port is taken (EX_UNAVAILABLE). */
export const exitUnavailable = 69;
/** A bug: an invariant, an uncaught exception or an unhandled rejection (EX_SOFTWARE). */
export const exitCrash = 70;
/** The machine refused something at start, e.g. a file or a socket (EX_OSERR). */
export const exitSystem = 71;
/** The drain deadline passed and work was cut; starting again is right (EX_TEMPFAIL). */
export const exitDrainCut = 75;
/** A second signal: 128 + its number, as a shell reports a death by signal. */
export const exitOnSignal = { SIGINT: 130, SIGTERM: 143 } as const;

export type StopSignal = keyof typeof exitOnSignal;

/** How a process ends that could not start, or could not go on, because of `error`. */
export function exitCodeOf(error: BatonError): number {
  switch (error.code) {
    case "BATON_CONFIG_INVALID":
      return exitConfig;
    case "BATON_TRACE_INVALID":
      return exitData;
    case "BATON_BUS_UNREACHABLE":
    case "BATON_BUS_CLOSED":
    case "BATON_BUS_NO_RESPONDER":
    case "BATON_BUS_DEADLINE":
    case "BATON_ENGINE_UNREACHABLE":
    case "BATON_ENGINE_TIMEOUT":
    case "BATON_PORT_IN_USE":
      return exitUnavailable;
    default:
      return exitSystem;
  }
}
