import type { BatonError } from "@baton/domain";
import { type Outcome, ok } from "@baton/kit";
import type { GetAnswer, Logger } from "@baton/ports";
import {
  type AdminServer,
  createProcessMetrics,
  joinMetrics,
  type MetricsText,
  readiness,
  readSecretFile,
  serveAdmin,
} from "@baton/service-host";

const decisionsLimitDefault = 100;
const decisionsLimitMax = 10_000;

/** /health, /ready, /metrics, /debug/workers and /debug/decisions of one scheduler. */
export async function serveSchedulerAdmin(
  settings: {
    readonly host: string;
    readonly port: number;
    readonly tokenFile: string | null;
    readonly insecure: boolean;
  },
  scheduler: {
    missing(): string[];
    workers(): GetAnswer;
    decisions(query: { readonly requestId: string | null; readonly limit: number }): GetAnswer;
  },
  ports: { readonly metrics: MetricsText; readonly logger: Logger },
): Promise<Outcome<AdminServer, BatonError>> {
  const token = settings.tokenFile === null ? null : readSecretFile(settings.tokenFile);
  if (token !== null && !token.ok) return token;
  const processMetrics = createProcessMetrics();
  const joined = joinMetrics([ports.metrics, processMetrics]);
  const served = await serveAdmin({
    ...settings,
    bearerToken: token === null ? null : token.value.secret,
    ready: () => readiness(scheduler.missing()),
    metricsText: () => joined.text(),
    debug: {
      "/debug/workers": async () => scheduler.workers(),
      "/debug/decisions": async (query) => scheduler.decisions(readQuery(query)),
    },
    logger: ports.logger,
  });
  if (!served.ok) {
    processMetrics.close();
    return served;
  }
  return ok({
    ...served.value,
    async close() {
      processMetrics.close();
      await served.value.close();
    },
  });
}

function readQuery(query: URLSearchParams): { requestId: string | null; limit: number } {
  const limit = Number(query.get("limit") ?? decisionsLimitDefault);
  return {
    requestId: query.get("request_id"),
    limit:
      Number.isInteger(limit) && limit > 0
        ? Math.min(limit, decisionsLimitMax)
        : decisionsLimitDefault,
  };
}
