interface CompletionBody {
  readonly model: string;
  readonly promptIds: Uint32Array;
  readonly tokensMax: number;
}

/**
 * JSON of a streaming /v1/completions request over token ids, exactly `tokensMax` tokens long.
 * About 40 ns a token.
 */
export function completionBody(request: CompletionBody): Buffer {
  const options = JSON.stringify({
    model: request.model,
    max_tokens: request.tokensMax,
    ignore_eos: true,
    temperature: 0,
    stream: true,
    stream_options: { include_usage: true },
  });
  return Buffer.from(`${options.slice(0, -1)},"prompt":[${request.promptIds.join(",")}]}`);
}
