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

export interface EngineProfile {
  readonly prefill: PrefillCoefficients;
  readonly decode: DecodeCoefficients;
  /** Summed over the tensor-parallel ranks. */
  readonly kvBytesPerToken: number;
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
  prefill: readonly [number, number, number],
  decode: readonly [number, number, number],
  kvBytesPerToken: number,
): EngineProfile {
  return {
    prefill: { aMs: prefill[0], bMs: prefill[1], cMs: prefill[2] },
    decode: { aMs: decode[0], bMs: decode[1], cMs: decode[2] },
    kvBytesPerToken,
  };
}

export const profileDefault = "qwen3-32b-bf16-tp2";

/**
 * Least-squares fits over the per-operator H100 SXM tables of NVIDIA aiconfigurator (vLLM 0.19),
 * composed layer by layer. Fit error: prefill 1-3 % mean, decode 2-3 % mean. They seed an estimate;
 * the measured completions of each worker correct it.
 */
export const engineProfiles: Readonly<Record<string, EngineProfile>> = {
  "qwen3-32b-bf16-tp2": profile([4.924, 0.05407, 1.4309e-6], [13.609, 0.02489, 4.6809e-5], 262_144),
  "qwen3-32b-bf16-tp4": profile([4.407, 0.0352, 7.047e-7], [8.426, 0.02175, 2.3037e-5], 262_144),
  "qwen3-32b-fp8-tp2": profile([4.946, 0.03931, 1.4154e-6], [8.631, 0.02723, 4.6577e-5], 262_144),
  "llama-3.3-70b-bf16-tp4": profile(
    [5.774, 0.07341, 8.8632e-7],
    [15.523, 0.0395, 2.8996e-5],
    327_680,
  ),
  "llama-3.3-70b-bf16-tp8": profile(
    [5.73, 0.04971, 4.7604e-7],
    [10.077, 0.03194, 1.4328e-5],
    327_680,
  ),
  "llama-3.3-70b-fp8-tp2": profile(
    [8.663, 0.07568, 1.7585e-6],
    [15.835, 0.04934, 5.8414e-5],
    327_680,
  ),
  "llama-3.3-70b-fp8-tp4": profile(
    [7.134, 0.05609, 8.7129e-7],
    [10.06, 0.04808, 2.8858e-5],
    327_680,
  ),
  "llama-3.3-70b-fp8-tp8": profile(
    [6.902, 0.0421, 4.7336e-7],
    [7.556, 0.04026, 1.4352e-5],
    327_680,
  ),
  "qwen3-8b-bf16-tp1": profile([1.986, 0.02025, 8.0542e-7], [6.513, 0.007733, 5.0158e-5], 147_456),
};
