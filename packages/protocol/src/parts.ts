import type {
  BatonError,
  EngineDialect,
  ErrorCode,
  TierCounts,
  WorkerAddress,
} from "@baton/domain";
import { errorCatalogue } from "@baton/domain";
import { ok } from "@baton/kit";
import {
  bytes,
  list,
  nullable,
  oneOf,
  optional,
  real,
  type Shape,
  struct,
  text,
  uint,
} from "./shape.ts";

export const workerIdentity = struct({ workerId: text, incarnation: text });

export const workerAddress: Shape<WorkerAddress> = struct({
  workerId: text,
  incarnation: text,
  url: text,
  dialect: oneOf<EngineDialect>("vllm", "sglang", "trtllm"),
  dpRank: nullable(uint),
});

export const tierCounts: Shape<TierCounts> = struct({ gpu: uint, host: uint, disk: uint });

/** One process life of a frontend; schedulers release what a dead one held. */
export const frontendIdentity = struct({ frontendId: text, incarnation: text });

/** Hashes of one index block size, 8 little-endian bytes each, at most 65,536. */
export const blockHashes = struct({ blockSizeTokens: uint, hashes: bytes });

export const blockHashSets = list(blockHashes, 16);

const errorFields = struct({
  code: text,
  message: text,
  param: optional(text),
  cause: optional(text),
  retryAfterS: optional(real),
});

/** An error that crosses the bus. A code of a newer minor version stays readable as a handler failure. */
export const errorShape: Shape<BatonError> = {
  read(input, path) {
    const fields = errorFields.read(input, path);
    if (!fields.ok) return fields;
    const { code, ...rest } = fields.value;
    if (Object.hasOwn(errorCatalogue, code)) return ok({ ...rest, code: code as ErrorCode });
    return ok({ ...rest, code: "BATON_BUS_HANDLER_FAILED", cause: `unknown code ${code}` });
  },
  write: (error) => errorFields.write(error),
};
