import { parentPort } from "node:worker_threads";

// Stands in for the tokenizer's thread: the tokens of a body are its bytes, and some bodies end badly.
const port = parentPort!;
port.on("message", ({ body }: { body: Uint8Array }) => {
  const text = Buffer.from(body).toString();
  if (text === "throw") throw new Error("thrown in the thread");
  if (text === "exit") process.exit(7);
  if (text === "hang") for (;;);
  port.postMessage({ kind: "tokens", tokenIds: Uint32Array.from(body) });
});
port.postMessage({ kind: "ready" });
