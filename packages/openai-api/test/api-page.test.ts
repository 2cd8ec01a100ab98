import { readFileSync } from "node:fs";
import {
  clientFieldsStripped,
  errorBody,
  forwardHeaders,
  parseGenerateRequest,
  relayHeaders,
} from "@baton/openai-api";
import t from "tap";

const page = readFileSync(new URL("../../../docs/api.md", import.meta.url), "utf8");
const section = (heading: string) =>
  page.split(`### ${heading}\n`)[1]?.split(/^##/m)[0]?.replaceAll("\n", " ") ?? "";
const names = (text: string) => [...text.matchAll(/`([^`]+)`/g)].map((match) => match[1]!);

t.test("the page lists exactly the fields that never reach an engine", async (t) => {
  const listed = names(section("Fields that never reach an engine").split("; inside")[0]!);
  t.same(listed.sort(), [...clientFieldsStripped].sort());
});

t.test(
  "the page lists headers that pass, and no other of what clients and engines send",
  async (t) => {
    const rows = page.split("\n").filter((line) => / → (engine|client) \|/.test(line));
    t.equal(rows.length, 2);
    const [toEngine, toClient] = rows.map((row) => names(row.split("|")[2]!));
    const usual =
      "accept accept-encoding authorization baggage cache-control connection content-encoding content-length content-type cookie date host keep-alive openai-organization retry-after server set-cookie te traceparent tracestate transfer-encoding user-agent vary x-data-parallel-rank x-forwarded-for x-prefiller-host-port x-request-id x-session-id x-vllm-priority";
    const sent = Object.fromEntries(
      [...new Set([...usual.split(" "), ...toEngine!, ...toClient!])].map((name) => [name, "1"]),
    );
    const forwarded = Object.keys(forwardHeaders(sent)).filter((name) => name !== "content-type");
    t.same(toEngine!.sort(), forwarded.sort());
    // The length is the relay's to pass, since it knows whether the bytes are the engine's own.
    t.same(toClient!.sort(), [...Object.keys(relayHeaders(sent)), "content-length"].sort());
  },
);

t.test("the page names what keeps a request from being split", async (t) => {
  const named = section("Requests that are not split");
  const bodies = {
    n: { n: 2 },
    best_of: { best_of: 2 },
    "several prompts": { prompt: ["a", "b"] },
    echo: { echo: true },
    prompt_logprobs: { prompt_logprobs: 1 },
    prompt_embeds: { prompt_embeds: "x" },
    use_beam_search: { use_beam_search: true },
  };
  for (const [name, fields] of Object.entries(bodies)) {
    t.match(named, name);
    const body = JSON.stringify({ model: "m", prompt: "a", ...fields });
    const read = parseGenerateRequest("completions", new TextEncoder().encode(body));
    t.equal(read.ok && typeof read.value.unsplittable, "string", name);
  }
});

t.test("the page's error types are those of the statuses", async (t) => {
  const typed = [...page.matchAll(/(\d{3})\s+`([a-z_]+_error)`/g)];
  t.ok(typed.length >= 3);
  const codes = { 401: "BATON_UNAUTHORIZED", 404: "BATON_UNKNOWN_MODEL", 429: "BATON_SATURATED" };
  for (const [, status, type] of typed) {
    const code = codes[Number(status) as keyof typeof codes];
    const answer = errorBody({ code: code as "BATON_SATURATED", message: "" });
    t.same([answer.status, answer.body.error.type], [Number(status), type]);
  }
});
