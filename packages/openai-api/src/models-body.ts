export interface ModelCard {
  readonly id: string;
  /** Seconds since the epoch. */
  readonly createdS: number;
  /** Longest prompt and answer together; null when no engine has told. */
  readonly maxModelTokens: number | null;
  /** Base model of an adapter. */
  readonly parent: string | null;
}

/** Body of GET /v1/models, with the fields that vLLM adds and clients read. */
export function modelsBody(models: readonly ModelCard[]): {
  readonly object: "list";
  readonly data: readonly Readonly<Record<string, string | number | null>>[];
} {
  const data = models.map(({ id, createdS, maxModelTokens, parent }) => ({
    id,
    object: "model",
    created: createdS,
    owned_by: "baton",
    root: id,
    parent,
    ...(maxModelTokens === null ? {} : { max_model_len: maxModelTokens }),
  }));
  return { object: "list", data };
}
