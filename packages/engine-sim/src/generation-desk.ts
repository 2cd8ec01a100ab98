import type { IncomingMessage, ServerResponse } from "node:http";
import { type ApiError, errorBody, internalError } from "./api-error.ts";
import { Generation } from "./generation.ts";
import type { GenerationDeps } from "./generation-deps.ts";
import { type GenerationRequest, type Route, readGenerationRequest } from "./generation-request.ts";
import { send, sendJson } from "./http-answer.ts";
import type { JsonBody } from "./http-api.ts";
import { readRemoteKv } from "./remote-kv.ts";

export interface GenerationDeskOptions {
  readonly deps: GenerationDeps;
  readonly model: string;
  readonly contextTokensMax: number;
  readonly fingerprint: string;
  readonly onDeath: (reason: string) => void;
}

/** What an answer's id may hold without an escape in JSON. */
const plainId = /^[\w.:@/+=-]{1,256}$/;

/** Where generation requests come in: faults, validation, and the list of those under way. */
export class GenerationDesk {
  readonly #options: GenerationDeskOptions;
  readonly #modelJson: string;
  readonly #underWay = new Set<Generation>();
  #onIdle: (() => void) | null = null;

  constructor(options: GenerationDeskOptions) {
    this.#options = options;
    this.#modelJson = JSON.stringify(options.model);
  }

  get size(): number {
    return this.#underWay.size;
  }

  accept(route: Route, request: IncomingMessage, response: ServerResponse, body: JsonBody): void {
    const { faults, ledger } = this.#options.deps;
    ledger.request(request.url ?? "", request.headers, body);
    if (faults.dieOnNext) this.#options.onDeath("the fault dieOnNext");
    else if (faults.hangMs === 0) this.#begin(route, request, response, body);
    else {
      const timer = setTimeout(() => this.#begin(route, request, response, body), faults.hangMs);
      response.on("close", () => clearTimeout(timer));
    }
  }

  failAll(error: ApiError): void {
    for (const generation of [...this.#underWay]) generation.fail(error);
  }

  /** Resolves when nothing is under way. */
  idle(): Promise<void> {
    if (this.#underWay.size === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#onIdle = resolve;
    });
  }

  #begin(route: Route, request: IncomingMessage, response: ServerResponse, body: JsonBody): void {
    const { deps, model, contextTokensMax } = this.#options;
    const { faults, ledger, puller } = deps;
    if (faults.failPrefill > 0) {
      faults.failPrefill--;
      sendJson(response, 500, errorBody(internalError));
      return;
    }
    if (faults.garbage > 0) {
      faults.garbage--;
      send(response, 200, "application/json", Buffer.from('{"id":"cmpl-'));
      return;
    }
    const remote = readRemoteKv(body["kv_transfer_params"]);
    if (remote !== null) ledger.handle(remote.requestId);
    const read = readGenerationRequest(route, body, { model, contextTokensMax });
    if (!read.ok) {
      if (remote !== null) puller.refuse(remote);
      sendJson(response, read.error.status, errorBody(read.error));
      return;
    }
    this.#start(read.value, request, response);
  }

  #start(generate: GenerationRequest, request: IncomingMessage, response: ServerResponse): void {
    const { deps, fingerprint } = this.#options;
    const given = request.headers["x-request-id"];
    const name = typeof given === "string" && plainId.test(given) ? given : deps.ids.hex(16);
    const generation = new Generation({
      deps,
      request: generate,
      head: {
        route: generate.route,
        id: `${generate.route === "chat" ? "chatcmpl" : "cmpl"}-${name}`,
        createdS: Math.floor(Date.now() / 1000),
        modelJson: this.#modelJson,
        fingerprint,
      },
      response,
      onEnd: (ended) => {
        this.#underWay.delete(ended);
        if (this.#underWay.size === 0) this.#onIdle?.();
      },
    });
    this.#underWay.add(generation);
    generation.start();
  }
}
