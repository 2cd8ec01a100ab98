import { Histogram } from "./exposition.ts";

const tokens = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];
const gaps = [
  0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
];
const firstTokens = [
  0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
  160, 640, 2560,
];
const lives = [
  0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680,
];
const transferTimes = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 5];
const transferBytes = Array.from({ length: 12 }, (_, power) => 2048 * 4 ** power);

/** Figures of one finished request, in tokens and wall seconds. */
export interface RequestFigures {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly generatedTokens: number;
  readonly tokensAsked: number | null;
  readonly choices: number;
  readonly preemptions: number;
  readonly queueS: number;
  readonly prefillS: number;
  readonly decodeS: number;
  readonly totalS: number;
}

export type FinishReason = "stop" | "length" | "abort" | "error" | "repetition";

/** Histograms with vLLM's names (without the prefix) and buckets, and counts of ends by reason. */
export class RequestMetrics {
  readonly histograms = {
    nixl_xfer_time_seconds: new Histogram(transferTimes),
    nixl_post_time_seconds: new Histogram([0.001, ...transferTimes]),
    nixl_bytes_transferred: new Histogram(transferBytes),
    nixl_num_descriptors: new Histogram([
      10, 20, 30, 50, 75, 100, 200, 400, 1000, 2000, 4000, 10_000, 20_000, 50_000,
    ]),
    request_prompt_tokens: new Histogram(tokens),
    request_generation_tokens: new Histogram(tokens),
    iteration_tokens_total: new Histogram([
      1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384,
    ]),
    request_max_num_generation_tokens: new Histogram(tokens),
    request_params_n: new Histogram([1, 2, 5, 10, 20]),
    request_params_max_tokens: new Histogram(tokens),
    time_to_first_token_seconds: new Histogram(firstTokens),
    inter_token_latency_seconds: new Histogram(gaps),
    request_time_per_output_token_seconds: new Histogram(gaps),
    e2e_request_latency_seconds: new Histogram(lives),
    request_queue_time_seconds: new Histogram(lives),
    request_inference_time_seconds: new Histogram(lives),
    request_prefill_time_seconds: new Histogram(lives),
    request_decode_time_seconds: new Histogram(lives),
    request_num_preemptions: new Histogram([1, 2, 3, 4, 5, 10, 20]),
    request_prefill_kv_computed_tokens: new Histogram(tokens),
  };
  readonly ends: Record<FinishReason, number> = {
    stop: 0,
    length: 0,
    abort: 0,
    error: 0,
    repetition: 0,
  };
  failedTransfers = 0;

  firstToken(seconds: number): void {
    this.histograms.time_to_first_token_seconds.observe(seconds);
  }

  nextToken(seconds: number): void {
    this.histograms.inter_token_latency_seconds.observe(seconds);
  }

  transfer(seconds: number, bytes: number, descriptors: number): void {
    this.histograms.nixl_xfer_time_seconds.observe(seconds);
    this.histograms.nixl_post_time_seconds.observe(0);
    this.histograms.nixl_bytes_transferred.observe(bytes);
    this.histograms.nixl_num_descriptors.observe(descriptors);
  }

  finished(reason: FinishReason, figures: RequestFigures): void {
    const { histograms } = this;
    this.ends[reason]++;
    histograms.request_prompt_tokens.observe(figures.promptTokens);
    histograms.request_generation_tokens.observe(figures.generatedTokens);
    histograms.request_max_num_generation_tokens.observe(figures.generatedTokens);
    histograms.request_params_n.observe(figures.choices);
    if (figures.tokensAsked !== null) {
      histograms.request_params_max_tokens.observe(figures.tokensAsked);
    }
    if (figures.generatedTokens > 1) {
      const perToken = figures.decodeS / (figures.generatedTokens - 1);
      histograms.request_time_per_output_token_seconds.observe(perToken);
    }
    histograms.e2e_request_latency_seconds.observe(figures.totalS);
    histograms.request_queue_time_seconds.observe(figures.queueS);
    histograms.request_inference_time_seconds.observe(figures.prefillS + figures.decodeS);
    histograms.request_prefill_time_seconds.observe(figures.prefillS);
    histograms.request_decode_time_seconds.observe(figures.decodeS);
    histograms.request_num_preemptions.observe(figures.preemptions);
    histograms.request_prefill_kv_computed_tokens.observe(
      figures.promptTokens - figures.cachedTokens,
    );
  }
}
