/** The frame's arithmetic: parts of the view, addresses, and where the palette leads. */

import assert from "node:assert/strict";
import test from "node:test";

import { addressOf } from "../../assets/base/view.mjs";
import { jumpTo, viewOfJob } from "../../assets/frame/jumps.mjs";
import { changedParts } from "../../assets/frame/parts.mjs";
import { pinnedNode, withPin } from "../../assets/frame/pin.mjs";

const VIEW = { job: "j", run: "r", rank: "3", node: "7", q: "x" };

test("an address leaves empty parts out and escapes the others", () => {
  assert.equal(
    addressOf("/graph", { job: "a b", node: null, q: "", rank: 0, run: undefined }),
    "/graph?job=a+b&rank=0",
  );
  assert.equal(addressOf("/graph", {}), "/graph");
});

test("a store changes when its part of the view does, and only then", () => {
  const take = changedParts();
  assert.deepEqual(Object.keys(take({ job: "j" }, "/graph")).sort(), ["job", "searched", "shown-run"]);
  assert.deepEqual(take({ job: "j", from: "12" }, "/graph"), {});
  assert.deepEqual(take({ job: "j", run: "r" }, "/graph"), {
    "shown-run": '["j","r"]', named: '["/graph","j","r",null,null,null,null]',
  });
  assert.deepEqual(take({ run: "r" }, "/graph").job, null);
});

test("the server is asked only about what is selected or named, and told when that ends", () => {
  const take = changedParts();
  const selected = take({ job: "j", rank: "0", node: "7" }, "/graph");
  assert.deepEqual(JSON.parse(selected.selection ?? ""), { job: "j", rank: "0", node: "7" });
  assert.equal(selected.named, '["/graph","j",null,"0",null,null,null]');
  assert.deepEqual(take({ job: "j" }, "/graph"), { selection: "{}", named: null });
  assert.deepEqual(take({ job: "j" }, "/nodes"), {});
});

test("a pin is what the inspector shows, whatever is selected, until it is taken out", () => {
  const take = changedParts(), pin = "j/recorded/2/5.1";
  const pinned = { job: "j", run: "recorded", rank: "2", node: "5.1", pin };
  assert.deepEqual(JSON.parse(take({ ...VIEW, pin }, "/graph").selection ?? ""), pinned);
  assert.equal("selection" in take({ ...VIEW, node: "8", pin }, "/nodes"), false);
  assert.equal("selection" in take({ pin }, "/"), false);
  const { selection } = take(VIEW, "/graph");
  assert.deepEqual(JSON.parse(selection ?? ""), { job: "j", run: "r", rank: "3", node: "7" });
});

test("what is no pin is none, and the selection is shown", () => {
  for (const pin of [undefined, "", "j", "j/r/1", "j//1/2", "j/r/1/2/3"]) assert.equal(pinnedNode(pin), null);
  const { selection } = changedParts()({ job: "j", node: "7", pin: "j/r" }, "/graph");
  assert.deepEqual(JSON.parse(selection ?? ""), { job: "j", node: "7" });
});

test("a pin goes along to another page, unless that names its own", () => {
  assert.equal(withPin("?job=k", "j/r/1/2"), "?job=k&pin=j%2Fr%2F1%2F2");
  assert.equal(withPin("", "j/r/1/2"), "?pin=j%2Fr%2F1%2F2");
  assert.equal(withPin("?pin=k%2Fr%2F1%2F2", "j/r/1/2"), "?pin=k%2Fr%2F1%2F2");
  assert.equal(withPin("?job=a+b", undefined), "?job=a+b");
});

test("the palette keeps job, run and selection on the way to a page", () => {
  const item = { kind: "page", title: "", about: "", path: "/nodes", view: {} };
  assert.deepEqual(
    jumpTo(item, "/graph", VIEW),
    { path: "/nodes", view: { job: "j", run: "r", rank: "3", node: "7" } },
  );
});

test("another job is shown on the same page, from Home on the Overview", () => {
  const item = { kind: "job", title: "", about: "", view: { job: "k" } };
  assert.deepEqual(jumpTo(item, "/graph", VIEW), { path: "/graph", view: { job: "k" } });
  assert.deepEqual(jumpTo(item, "/", VIEW), { path: "/overview", view: { job: "k" } });
});

test("another job is shown in the same way: what says how to look stays, what is of a job goes", () => {
  const item = { kind: "job", title: "", about: "", view: { job: "k" } };
  const tab = { ...VIEW, tab: "sizes", sort: "spread", of: "tp0", rows: "1-2" };
  assert.deepEqual(viewOfJob("/collectives", tab, "k"), { job: "k", tab: "sizes", sort: "spread" });
  assert.deepEqual(
    jumpTo(item, "/collectives", tab),
    { path: "/collectives", view: { job: "k", tab: "sizes", sort: "spread" } },
  );
  assert.deepEqual(viewOfJob("/validate", { job: "j", tables: "t1" }, "k"), { job: "k", tables: "t1" });
  assert.deepEqual(viewOfJob("/overview", VIEW, "k"), { job: "k" });
  const drawn = { job: "j", show: "near", colour: "group", node: "7", open: "1" };
  assert.deepEqual(viewOfJob("/graph", drawn, "k"), { job: "k", show: "near", colour: "group" });
  assert.deepEqual(viewOfJob("/graph", { job: "j", show: "path", anchor: "3" }, "k"), { job: "k" });
});

test("a rank is seen where the page shows ranks, elsewhere in the graph", () => {
  const item = { kind: "rank", title: "", about: "", view: { rank: "5" } };
  assert.deepEqual(jumpTo(item, "/timeline", VIEW), { patch: { top: "5", rank: "5" } });
  assert.deepEqual(jumpTo(item, "/graph", VIEW), { patch: { rank: "5" } });
  assert.deepEqual(
    jumpTo(item, "/simulate", VIEW),
    { path: "/graph", view: { job: "j", run: "r", rank: "5" } },
  );
  const filters = { ...VIEW, f: '{"type":["is","comp"],"rank":["matches","1"]}' };
  assert.deepEqual(jumpTo(item, "/nodes", filters), {
    patch: { f: '{"type":["is","comp"],"rank":["matches","5"]}', rank: "5" },
  });
  assert.deepEqual(
    jumpTo(item, "/nodes", { f: "no JSON" }),
    { patch: { f: '{"rank":["matches","5"]}', rank: "5" } },
  );
});

test("a node changes the view, and from Home opens the graph", () => {
  const item = { kind: "node", title: "", about: "", view: { rank: "1", node: "2" } };
  assert.deepEqual(jumpTo(item, "/timeline", VIEW), { patch: { rank: "1", node: "2" } });
  assert.deepEqual(
    jumpTo(item, "/", { job: "j" }),
    { path: "/graph", view: { job: "j", rank: "1", node: "2" } },
  );
});
