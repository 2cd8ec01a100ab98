import { connectorNamed, connectorNames, nixlPull } from "@baton/connectors";
import t from "tap";

/** As vLLM 0.32.0 answered on a prefill leg of 200 tokens with blocks of 32. */
const recorded = {
  do_remote_prefill: true,
  do_remote_decode: false,
  remote_block_ids: [[1, 2, 3, 8, 4, 9, 10]],
  remote_engine_id: "53774676-7fff-43f1-aefd-a0c6b6868cc6",
  remote_request_id: "cmpl-a7b416f77713121a-0-bb073da1",
  remote_host: "127.0.0.1",
  remote_port: 15600,
  tp_size: 1,
  dcp_size: 1,
  pp_size: 1,
  remote_num_tokens: 200,
  remote_blocks_expiry_time: null,
  transfer_mode: "pull",
  remote_prefill_cached_tokens: 96,
};
const facts = { promptTokens: 200, blockSizeTokens: 32 };

t.test(
  "a recorded vLLM handle passes, and its id is the prefill engine's request id",
  async (t) => {
    t.same(nixlPull.checkAnswer(recorded, facts), {
      ok: true,
      value: { handleId: "cmpl-a7b416f77713121a-0-bb073da1" },
    });
  },
);

t.test(
  "every handle that kills, hangs or misleads a decode engine is refused by name",
  async (t) => {
    const { remote_request_id: _, ...withoutId } = recorded;
    const rows: [unknown, RegExp, typeof facts?][] = [
      [null, /no kv_transfer_params/],
      [undefined, /no kv_transfer_params/],
      [[], /no kv_transfer_params/],
      [{ ...recorded, do_remote_prefill: false }, /do_remote_prefill/],
      [withoutId, /remote_request_id is missing/],
      [{ ...recorded, remote_engine_id: null }, /remote_engine_id is missing/],
      [{ ...recorded, remote_host: "" }, /remote_host is missing/],
      [{ ...recorded, remote_port: null }, /remote_port is missing/],
      [{ ...recorded, remote_block_ids: null }, /remote_block_ids is empty/],
      [{ ...recorded, remote_block_ids: [[]] }, /only empty groups/],
      [{ ...recorded, remote_block_ids: [[1], 2] }, /mixes/],
      [{ ...recorded, remote_block_ids: [[1, 2, 3]] }, /3 blocks for a prompt that needs 7/],
      [{ ...recorded, remote_block_ids: [[1, 2, 3, 4, 5, 6, 7, 8]] }, /8 blocks/],
      [{ ...recorded, remote_num_tokens: 199 }, /remote_num_tokens is 199/],
      [{ ...recorded, transfer_mode: "push" }, /push/],
    ];
    for (const [handle, reason, ...over] of rows) {
      const answer = nixlPull.checkAnswer(handle, over[0] ?? facts);
      t.match(answer, { ok: false, error: reason });
    }
  },
);

t.test("handles of older engines and other implementations pass opaquely", async (t) => {
  const { remote_num_tokens: _, transfer_mode: __, ...older } = recorded;
  t.equal(
    nixlPull.checkAnswer({ ...older, remote_block_ids: [1, 2, 3, 8, 4, 9, 10] }, facts).ok,
    true,
    "flat ids",
  );
  const textIds = recorded.remote_block_ids[0]!.map(String);
  t.equal(
    nixlPull.checkAnswer({ ...older, remote_block_ids: textIds }, facts).ok,
    true,
    "ids as text",
  );
  const clipped = [
    [1, 2],
    [1, 2, 3, 8, 4, 9, 10],
  ];
  t.equal(
    nixlPull.checkAnswer({ ...older, remote_block_ids: clipped }, facts).ok,
    true,
    "a clipped group before the full one",
  );
  t.equal(
    nixlPull.checkAnswer(recorded, { promptTokens: null, blockSizeTokens: null }).ok,
    true,
    "nothing to compare with",
  );
});

t.test("the prefill leg asks for one unstreamed token that nothing can end early", async (t) => {
  for (const route of ["chat", "completions"] as const) {
    const edit = nixlPull.prefillLeg(route);
    const added = Object.fromEntries(edit.append.map(({ key, json }) => [key, JSON.parse(json)]));
    t.match(added, { stream: false, max_tokens: 1, ignore_eos: true });
    t.equal("max_completion_tokens" in added, route === "chat");
    t.same(added["kv_transfer_params"], {
      do_remote_decode: true,
      do_remote_prefill: false,
      remote_engine_id: null,
      remote_block_ids: null,
      remote_host: null,
      remote_port: null,
    });
    for (const key of ["stream_options", "min_tokens", "stop", "max_completion_tokens"]) {
      t.ok(edit.remove.includes(key), `${key} is taken out`);
    }
    for (const { key } of edit.append) {
      t.ok(
        edit.remove.includes(key) || key === "kv_transfer_params",
        `${key} is never there twice`,
      );
    }
  }
});

t.test("the decode leg carries the handle's own bytes and changes nothing else", async (t) => {
  const json = '{"remote_port": 15600 ,"big":18446744073709551615}';
  t.same(nixlPull.decodeLeg(json), {
    remove: ["kv_transfer_params"],
    append: [{ key: "kv_transfer_params", json }],
  });
  const abandon = nixlPull.abandonLeg("chat", json);
  t.match(
    abandon.append.find(({ key }) => key === "stream"),
    { json: "true" },
  );
  t.match(
    abandon.append.find(({ key }) => key === "kv_transfer_params"),
    { json },
  );
});

t.test("connectors are found by name", async (t) => {
  for (const name of connectorNames) t.equal(connectorNamed(name)?.name, name);
  t.equal(connectorNamed("nonsense"), undefined);
});
