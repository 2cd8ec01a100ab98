export { createEngineSim, type EngineSim } from "./engine-sim.ts";
export { type EngineSimOptions, engineSimHelp, parseEngineSimOptions } from "./options.ts";
export { runEngineSim } from "./run-engine-sim.ts";
export { type ChatMessage, renderChat, tokenizeText } from "./tokenizer.ts";
