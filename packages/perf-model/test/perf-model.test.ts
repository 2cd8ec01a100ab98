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
  t.equal(rate.factor, 1, "the profile counts until something is known");
  for (let n = 1; n <= 30; n++) rate.learn({ actualMs: 50, profileMs: 100 }, n * 1_000);
  t.ok(Math.abs(rate.factor - 0.5) < 0.01);
  rate.learn({ actualMs: 0, profileMs: 100 }, 40_000);
  rate.learn({ actualMs: Number.NaN, profileMs: 100 }, 41_000);
  t.ok(Math.abs(rate.factor - 0.5) < 0.01);
  rate.learn({ actualMs: 1e9, profileMs: 1 }, 42_000);
  t.ok(rate.factor <= 64, "one absurd sample is bounded");
});
