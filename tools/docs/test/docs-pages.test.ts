import { execFile } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import t from "tap";

const root = fileURLToPath(new URL("../../../", import.meta.url));
const text = (path: string) => readFileSync(`${root}${path}`, "utf8");
const run = promisify(execFile);
const baton = (...args: string[]) =>
  run(process.execPath, ["packages/cli/src/main.ts", ...args], { cwd: root });

const recordFiles = readdirSync(`${root}docs/adr`)
  .filter((file) => file !== "README.md")
  .sort();
const records = recordFiles.map((file) => ({ file, page: text(`docs/adr/${file}`) }));
const operations = text("docs/operations.md");
const api = text("docs/api.md");

t.test(
  "decision records have one form, no gap in their numbers, and a line in the index",
  async (t) => {
    const wanted: string[] = [];
    for (const [at, { file, page }] of records.entries()) {
      const number = String(at + 1).padStart(4, "0");
      t.match(file, new RegExp(`^${number}-[a-z0-9-]+\\.md$`));
      const head =
        /^# (\d{4} .+)\n\n\| \| \|\n\| --- \| --- \|\n\| Date \| (\S+) \|\n\| Status \| (\w+) \|\n\| Tags \| (.+) \|\n/;
      const [, title = "", date = "", status = "", tags = ""] = head.exec(page) ?? [];
      t.match(title, number, file);
      t.match(status, /^(proposed|accepted|superseded)$/, file);
      t.same(
        [...page.matchAll(/^## (.+)$/gm)].map((match) => match[1]),
        ["Context", "Decision", "Consequences", "Alternatives", "Revisions"],
        file,
      );
      t.ok(page.split("\n").length <= 71, `${file} has at most 70 lines`);
      const revisions = [...page.matchAll(/^\| (\d{4}-\d\d-\d\d) \| .+ \|$/gm)].map(
        ([, each]) => each,
      );
      t.equal(revisions.at(0), date, `${file}: the first revision has the record's date`);
      wanted.push(`| [${title}](${file}) | ${status} | ${tags} |`);
    }
    const index = text("docs/adr/README.md").split("\n");
    t.same(
      index.filter((line) => line.startsWith("| [")),
      wanted,
    );
  },
);

t.test("the NATS permissions in operations are those that `config nats` prints", async (t) => {
  const { stdout } = await baton("config", "nats");
  t.ok(stdout.includes("authorization {"));
  t.equal(/```\n(authorization \{[\s\S]*?)```/.exec(operations)?.[1], stdout);
  const users = stdout.split("# ").slice(1);
  t.equal(users.length, 3);
  for (const user of users) {
    const [name, ...others] = [...user.matchAll(/"([^"]+)"/g)].map((match) => match[1]!);
    const row = operations.split("\n").find((line) => line.startsWith(`| \`${name}\` |`)) ?? "";
    const subjects = others.filter((each) => /^(baton\.|_INBOX)/.test(each));
    t.same(
      [...row.matchAll(/`([^`]+)`/g)].slice(1).map((match) => match[1]),
      subjects,
      `row of ${name}`,
    );
  }
});

t.test("every configuration in deploy/config is accepted", async (t) => {
  const files = readdirSync(`${root}deploy/config`).filter((file) => file.endsWith(".yaml"));
  t.ok(files.length >= 3);
  await Promise.all(
    files.map(async (file) => {
      const { stdout } = await baton("config", "check", `deploy/config/${file}`);
      t.match(stdout, "is a valid configuration for");
    }),
  );
});

t.test("keys, metrics and error codes that the pages name exist", async (t) => {
  const config = text("docs/config.md");
  const metrics = text("docs/metrics.md");
  const errors = text("docs/errors.md");
  const sections = new Set([...config.matchAll(/^\| `([a-z]+)\./gm)].map((match) => match[1]!));
  t.ok(sections.size > 5);
  const pages = [api, operations, text("docs/protocol.md"), ...records.map(({ page }) => page)];
  for (const page of pages) {
    for (const [, key, section] of page.matchAll(/`(([a-z]+)\.[a-z][A-Za-z]+)(?::[^`]*)?`/g)) {
      if (sections.has(section!)) t.ok(config.includes(`\`${key}\``), `key ${key}`);
    }
    for (const [name] of page.matchAll(/baton_[a-z_]+[a-z]/g)) {
      t.ok(metrics.includes(`\`${name}\``), `metric ${name}`);
    }
    for (const [name] of page.matchAll(/\bBATON_[A-Z_]+[A-Z]/g)) {
      const isKnown = errors.includes(`\`${name}\``) || config.includes(`\`${name}\``);
      t.ok(isKnown || /^BATON_NATS_[A-Z_]+_PASSWORD$/.test(name), `code or variable ${name}`);
    }
  }
});

interface Candidate {
  readonly terms: readonly { readonly value: number; readonly unit: string }[];
  readonly costMs: number;
  readonly worker: { readonly workerId: string };
}

t.test("the decision shown in the API page is one that Baton makes", async (t) => {
  const block = /```json decisions\n([\s\S]*?)```/.exec(api)?.[1] ?? "";
  const { records: shown } = JSON.parse(block) as {
    records: { candidates: Candidate[]; winner: { workerId: string }; promptTokens: number }[];
  };
  t.equal(shown.length, 2);
  for (const { candidates, winner } of shown) {
    const least = Math.min(...candidates.map((each) => each.costMs));
    for (const { terms, costMs, worker } of candidates) {
      const sum = terms.reduce((ms, each) => ms + (each.unit === "ms" ? each.value : 0), 0);
      t.ok(Math.abs(sum - costMs) < 1e-6, "terms in ms add up to the cost");
      if (worker.workerId === winner.workerId) t.ok(costMs - least <= Math.max(1, least * 0.005));
    }
  }
});
