import type { Laptop } from "./laptop.ts";

const intervalMs = 1_000;

/** One line that is written over each second on a terminal; nothing elsewhere. */
export function showStatus(laptop: Laptop, output: NodeJS.WriteStream): { stop(): void } {
  if (!output.isTTY) return { stop() {} };
  const startedMs = performance.now();
  const timer = setInterval(() => void write(), intervalMs);
  async function write(): Promise<void> {
    const [own, prefill, decode] = await Promise.all(
      [
        `${laptop.url}/metrics`,
        `${laptop.adminUrls.prefill}/metrics`,
        `${laptop.adminUrls.decode}/metrics`,
      ].map(read),
    );
    const upS = Math.round((performance.now() - startedMs) / 1_000);
    const missing = laptop.missing();
    const parts = [
      missing.length === 0 ? "ready" : missing.join(", "),
      `up ${upS} s`,
      `requests ${sum(own!, "baton_frontend_live_requests")} live, ${sum(own!, "baton_frontend_requests_total")} ended`,
      `prefilling ${sum(prefill!, "baton_scheduler_live_leases")}`,
      `decoding ${sum(decode!, "baton_scheduler_live_leases")}`,
      `tokens out ${sum(own!, "baton_frontend_output_tokens_total")}`,
    ];
    const line = parts.join(" · ").slice(0, (output.columns ?? 80) - 1);
    output.write(`\r\u001b[2K${line}`);
  }
  return {
    stop() {
      clearInterval(timer);
      output.write("\r\u001b[2K");
    },
  };
}

async function read(url: string): Promise<string> {
  try {
    return await (await fetch(url, { signal: AbortSignal.timeout(intervalMs) })).text();
  } catch {
    return ""; // the next second tries again
  }
}

function sum(text: string, name: string): number {
  let total = 0;
  for (const line of text.split("\n")) {
    if (line.startsWith(`${name} `) || line.startsWith(`${name}{`)) {
      total += Number(line.slice(line.lastIndexOf(" ") + 1));
    }
  }
  return total;
}
