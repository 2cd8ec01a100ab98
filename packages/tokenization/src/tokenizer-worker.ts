import { parentPort, workerData } from "node:worker_threads";
import { invariant } from "@baton/kit";
import { tokenizeBody } from "./tokenize-body.ts";
import { loadTokenizerFolder, textOf } from "./tokenizer-folder.ts";
import type { TokenizeJob, WorkerData, WorkerMessage } from "./worker-messages.ts";

/** Entry of a worker thread: loads the folder, says so, then answers one job after the other. */
invariant(parentPort !== null, "runs as a worker thread");
const port = parentPort;
const { folder } = workerData as WorkerData;

function send(message: WorkerMessage, moved: ArrayBuffer[] = []): void {
  port.postMessage(message, moved);
}

const loaded = await loadTokenizerFolder(folder);
if (!loaded.ok) send({ kind: "unusable", reason: loaded.error });
else {
  port.on("message", ({ route, body }: TokenizeJob) => {
    try {
      const tokens = tokenizeBody(loaded.value, route, body);
      if (!tokens.ok) send({ kind: "failed", reason: tokens.error });
      else {
        send({ kind: "tokens", tokenIds: tokens.value }, [tokens.value.buffer as ArrayBuffer]);
      }
    } catch (error) {
      // Templates raise on conversations that they do not allow; the engine will say so itself.
      send({ kind: "failed", reason: textOf(error) });
    }
  });
  send({ kind: "ready" });
}
