export {
  createEngineClient,
  type EngineClientOptions,
  type EngineCredentials,
  type EngineHttpClient,
  keepAliveIdleMsMax,
} from "./engine-client.ts";
