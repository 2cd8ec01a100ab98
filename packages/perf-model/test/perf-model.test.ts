import {
  decodeStepMs,
  engineProfiles,
  LearntRate,
  prefillMs,
  profileDefault,
} from "@baton/perf-model";
import fc from "fast-check";
import t from "tap";

const profile = engineProfiles[profileDefault]!;

t.test("the default profile gives the published prefill and decode times", async (t) => {
  const cold = (newTokens: number) =>
    Math.round(prefillMs(profile.prefill, { newTokens, pastTokens: 0 }));
  t.same([512, 8_192, 32_768].map(cold), [33, 496, 2_545]);
  t.equal(Math.round(decodeStepMs(profile.decode, { sequences: 32, kvTokens: 32 * 4_096 })), 21);
});

t.test("computing a prompt in two parts costs the linear and quadratic terms once", async (t) => {
  const tokens = fc.nat(100_000);
  fc.assert(
    fc.property(tokens, tokens, (first, second) => {
      const whole = prefillMs(profile.prefill, { newTokens: first + second, pastTokens: 0 });
      const parts =
        prefillMs(profile.prefill, { newTokens: first, pastTokens: 0 }) +
        prefillMs(profile.prefill, { newTokens: second, pastTokens: first });
      return Math.abs(parts - profile.prefill.aMs - whole) < 1e-6 * whole;
    }),
  );
  t.pass();
});

t.test("a worker's rate follows its completions and ignores impossible ones", async (t) => {
  const rate = new LearntRate(10_000);
  t.equal(rate.factor(0), 1, "the prior counts until something is known");
  t.ok(Math.abs(rate.factor(0, 3) - 3) < 1e-9);
  for (let n = 1; n <= 40; n++) rate.learn({ actualMs: 500, profileMs: 1_000 }, n * 500);
  t.ok(Math.abs(rate.factor(20_000) - 0.5) < 0.1, `${rate.factor(20_000)}`);
  const before = rate.factor(21_000);
  rate.learn({ actualMs: 0, profileMs: 100 }, 21_000);
  rate.learn({ actualMs: Number.NaN, profileMs: 100 }, 21_000);
  rate.learn({ actualMs: 1, profileMs: 0 }, 21_000);
  t.equal(rate.factor(21_000), before);
});

t.test("one slow completion is believed less than many, and forgotten with time", async (t) => {
  const rate = new LearntRate(10_000);
  rate.learn({ actualMs: 1e9, profileMs: 1_000 }, 0);
  const once = rate.factor(0);
  t.ok(once > 2 && once < 8, `bounded and shrunk: ${once}`);
  t.ok(rate.factor(60_000) < 1.1, "a worker that got no work since is tried again");
  t.ok(Math.abs(rate.factor(600_000, 5) - 5) < 0.01, "it drifts to what its pool is like");
});

t.test("long work says more of a rate than short work", async (t) => {
  const long = new LearntRate(10_000);
  const short = new LearntRate(10_000);
  long.learn({ actualMs: 4_000, profileMs: 1_000 }, 0);
  short.learn({ actualMs: 20, profileMs: 5 }, 0);
  t.ok(long.factor(0) > short.factor(0));
});
