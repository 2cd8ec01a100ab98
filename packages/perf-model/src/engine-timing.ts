/** prefill ms = aMs + bMs·n + cMs·(n·past + n²/2), n new tokens after `past` cached ones. */
export interface PrefillCoefficients {
  readonly aMs: number;
  readonly bMs: number;
  readonly cMs: number;
}

/** decode step ms = aMs + bMs·sequences + cMs·KV tokens of all of them. */
export interface DecodeCoefficients {
  readonly aMs: number;
  readonly bMs: number;
  readonly cMs: number;
}

/** What one engine costs in time and memory. */
export interface EngineProfile {
  readonly name: string;
  readonly prefill: PrefillCoefficients;
  readonly decode: DecodeCoefficients;
  /** Over all layers and tensor-parallel ranks. */
  readonly kvBytesPerToken: number;
  /** KV cache of the whole engine: what fits beside the weights at 92 % of HBM. */
  readonly kvTokens: number;
}

/** Time to compute a prompt's uncached tokens alone on an idle engine. */
export function prefillMs(
  coefficients: PrefillCoefficients,
  tokens: { readonly newTokens: number; readonly pastTokens: number },
): number {
  const { newTokens: n, pastTokens } = tokens;
  return coefficients.aMs + coefficients.bMs * n + coefficients.cMs * n * (pastTokens + n / 2);
}

/** Time of one decode step, which is the inter-token latency of every sequence in it. */
export function decodeStepMs(
  coefficients: DecodeCoefficients,
  load: { readonly sequences: number; readonly kvTokens: number },
): number {
  return coefficients.aMs + coefficients.bMs * load.sequences + coefficients.cMs * load.kvTokens;
}

function profile(
  name: string,
  prefill: readonly [number, number, number],
  decode: readonly [number, number, number],
  kvBytesPerToken: number,
  kvTokens: number,
): EngineProfile {
  return {
    name,
    prefill: { aMs: prefill[0], bMs: prefill[1], cMs: prefill[2] },
    decode: { aMs: decode[0], bMs: decode[1], cMs: decode[2] },
    kvBytesPerToken,
    kvTokens,
  };
}

export const profileDefault = "qwen3-32b-bf16-tp2";

/**
 * Least-squares fits over the per-operator H100 SXM tables of NVIDIA aiconfigurator (vLLM 0.19),
 * composed layer by layer. Fit error: prefill 1-3 % mean, decode 2-3 % mean. They seed an estimate;
 * the measured completions of each worker correct it.
 */
export const engineProfiles: Readonly<Record<string, EngineProfile>> = Object.fromEntries(
  [
    profile(
      "qwen3-32b-bf16-tp2",
      [4.924138, 0.05407201, 1.430854e-6],
      [13.609403, 0.02489354, 4.680901e-5],
      262_144,
      317_000,
    ),
    profile(
      "qwen3-32b-bf16-tp4",
      [4.407497, 0.03520305, 7.047029e-7],
      [8.426037, 0.02175075, 2.303722e-5],
      262_144,
      884_000,
    ),
    profile(
      "qwen3-32b-fp8-tp2",
      [4.946488, 0.03931455, 1.415329e-6],
      [8.631149, 0.02723176, 4.657708e-5],
      262_144,
      442_000,
    ),
    profile(
      "llama-3.3-70b-bf16-tp4",
      [5.773856, 0.07341451, 8.863176e-7],
      [15.522911, 0.0394953, 2.899612e-5],
      327_680,
      476_000,
    ),
    profile(
      "llama-3.3-70b-bf16-tp8",
      [5.730059, 0.0497107, 4.76042e-7],
      [10.077213, 0.03193608, 1.432826e-5],
      327_680,
      1_360_000,
    ),
    profile(
      "llama-3.3-70b-fp8-tp2",
      [8.662985, 0.07567621, 1.758533e-6],
      [15.835362, 0.04934305, 5.841406e-5],
      327_680,
      238_000,
    ),
    profile(
      "llama-3.3-70b-fp8-tp4",
      [7.133656, 0.05609011, 8.712895e-7],
      [10.059509, 0.04808145, 2.885752e-5],
      327_680,
      692_000,
    ),
    profile(
      "llama-3.3-70b-fp8-tp8",
      [6.902416, 0.0420999, 4.733602e-7],
      [7.555727, 0.0402644, 1.435247e-5],
      327_680,
      1_600_000,
    ),
    profile(
      "qwen3-8b-bf16-tp1",
      [1.985552, 0.02024841, 8.054232e-7],
      [6.512606, 0.0077333, 5.015791e-5],
      147_456,
      393_000,
    ),
  ].map((each) => [each.name, each]),
);
