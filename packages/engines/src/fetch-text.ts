import { type BatonError, batonError } from "@baton/domain";
import { fail, type Outcome, ok } from "@baton/kit";
import type { EngineCall, EngineClient, EngineText } from "@baton/ports";

type FetchTextCall = Parameters<EngineClient["fetchText"]>[0];

/** A whole small answer as UTF-8 text, over one `dispatch`; `timeoutMs` covers all of it. */
export function fetchText(
  client: Pick<EngineClient, "dispatch">,
  call: FetchTextCall,
): Promise<Outcome<EngineText, BatonError>> {
  return new Promise((resolve) => {
    const where = `worker ${call.workerId} at ${call.url}`;
    const decoder = new TextDecoder();
    let text = "";
    let lengthBytes = 0;
    let status = 0;
    /** Our own reason to abort, told instead of the abort. */
    let reason: BatonError | null = null;
    const stop = (error: BatonError) => {
      reason ??= error;
      exchange.abort();
    };
    const timer = setTimeout(() => {
      const what = `${call.method} ${call.path} took longer than ${call.timeoutMs} ms`;
      stop(batonError("BATON_ENGINE_TIMEOUT", `${where}: ${what}`));
    }, call.timeoutMs);
    const exchange = client.dispatch(toCall(call), {
      onHead(value) {
        status = value;
      },
      onData(bytes) {
        lengthBytes += bytes.length;
        if (lengthBytes <= call.bodyLimitBytes) {
          text += decoder.decode(bytes, { stream: true });
          return;
        }
        const what = `${call.method} ${call.path} answered more than ${call.bodyLimitBytes} bytes`;
        stop(batonError("BATON_ENGINE_GARBAGE", `${where}: ${what}`));
      },
      onEnd() {
        clearTimeout(timer);
        resolve(ok({ status, text: text + decoder.decode() }));
      },
      onFault(fault) {
        clearTimeout(timer);
        resolve(fail(reason ?? fault.error));
      },
    });
  });
}

function toCall(call: FetchTextCall): EngineCall {
  const hasBody = call.body !== undefined;
  return {
    workerId: call.workerId,
    url: call.url,
    method: call.method,
    path: call.path,
    headers: hasBody ? { "content-type": "application/json" } : {},
    body: hasBody ? [Buffer.from(call.body)] : [],
    headersTimeoutMs: call.timeoutMs,
    bodyTimeoutMs: call.timeoutMs,
  };
}
