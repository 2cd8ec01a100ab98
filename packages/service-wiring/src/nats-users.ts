import type { NatsUser } from "@baton/bus";
import type { Pool } from "@baton/domain";
import { anyModelSubject } from "@baton/protocol";

/** A service that talks on the bus. */
export type BusService = "frontend" | "prefill-scheduler" | "decode-scheduler";

/** Longest time that a scheduler may take to answer: a place may wait as long as its request lives. */
const answerSecondsMax = 3_600;

/**
 * What each service may do on NATS, and no more: a frontend cannot speak as a scheduler, a scheduler of
 * one pool cannot speak for the other, and nobody reads another's answers. docs/operations.md shows the
 * server configuration made from it (`npm run baton -- config nats`).
 */
export function natsUserOf(service: BusService, secret: NatsUser["secret"]): NatsUser {
  const common = { name: service, secret, inboxPrefix: `_INBOX_${service}` };
  if (service === "frontend") {
    return {
      ...common,
      publish: [
        anyModelSubject("prefill", "place"),
        anyModelSubject("decode", "reserve"),
        anyModelSubject("decode", "handle"),
        ...(["outcome", "frontend", "decisions"] as const).map((verb) =>
          anyModelSubject("*", verb),
        ),
      ],
      subscribe: [anyModelSubject("*", "fleet")],
      answerSecondsMax: null,
    };
  }
  const pool: Pool = service === "prefill-scheduler" ? "prefill" : "decode";
  const served = pool === "prefill" ? (["place"] as const) : (["reserve", "handle"] as const);
  return {
    ...common,
    publish: [anyModelSubject(pool, "fleet")],
    subscribe: [
      ...[...served, "decisions" as const, "outcome" as const, "frontend" as const].map((verb) =>
        anyModelSubject(pool, verb),
      ),
      // A prefill worker that restarts voids its handles.
      ...(pool === "decode" ? [anyModelSubject("prefill", "fleet")] : []),
    ],
    answerSecondsMax,
  };
}
