export {
  type MessageOf,
  type MessageType,
  message,
  protocolMajor,
  protocolMinor,
} from "./message.ts";
export {
  decisionsAnswer,
  decisionsQuery,
  type EndKind,
  fleet,
  frontendBeat,
  handle,
  handleAnswer,
  outcome,
  type PlaceCandidate,
  place,
  placed,
  reserve,
  reserved,
} from "./messages.ts";
export {
  bool,
  bytes,
  type Infer,
  list,
  nullable,
  oneOf,
  optional,
  real,
  type Shape,
  struct,
  text,
  uint,
  union,
} from "./shape.ts";
export { anyModelSubject, modelToken, subjectOf, type Verb } from "./subjects.ts";
