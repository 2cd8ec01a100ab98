import type { DecisionRecord } from "@baton/domain";
import type { Bus } from "@baton/ports";
import { decisionsAnswer, decisionsQuery, type MessageOf, subjectOf } from "@baton/protocol";

const deadlineMs = 2_000;

/** Decision records of both schedulers of each model, newest first, and who did not answer why. */
export async function askDecisions(
  bus: Bus,
  models: readonly string[],
  query: MessageOf<typeof decisionsQuery>,
): Promise<{
  readonly records: readonly DecisionRecord[];
  readonly unanswered: readonly string[];
}> {
  const payload = decisionsQuery.encode(query);
  const subjects = models.flatMap((model) =>
    (["prefill", "decode"] as const).map((pool) => subjectOf(model, pool, "decisions")),
  );
  const answers = await Promise.all(
    subjects.map((subject) => bus.request(subject, payload, { deadlineMs })),
  );
  const records: DecisionRecord[] = [];
  const unanswered: string[] = [];
  answers.forEach((answer, at) => {
    const read = answer.ok ? decisionsAnswer.decode(answer.value) : answer;
    if (read.ok) records.push(...read.value.records);
    else unanswered.push(`${subjects[at]}: ${read.error.message}`);
  });
  records.sort((left, right) => right.wallMs - left.wallMs);
  return { records: records.slice(0, query.limit), unanswered };
}
