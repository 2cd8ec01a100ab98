export { clientFieldsStripped, strippedBodyFields } from "./client-fields.ts";
export { type ErrorAnswer, errorBody, sseErrorEvent } from "./error-body.ts";
export {
  type GenerateRequest,
  type GenerateRoute,
  parseGenerateRequest,
} from "./generate-request.ts";
export { forwardHeaders, type HeaderRecord, relayHeaders, streamHeaders } from "./headers.ts";
export {
  findMember,
  type MemberSpan,
  memberBytes,
  memberValue,
  type ScanFault,
  scanTopLevel,
} from "./json-scan.ts";
export { type AppendedMember, joinChunks, type Splice, spliceMembers } from "./json-splice.ts";
export { type ModelCard, modelsBody } from "./models-body.ts";
export { type PrefillAnswer, readPrefillAnswer } from "./prefill-answer.ts";
export { SseScanner } from "./sse-scanner.ts";
export { readUsage, type Usage, UsageReader } from "./usage.ts";
