import assert from "node:assert/strict";
import { test } from "node:test";

import { chooseColumns, splitName } from "../../assets/nodes/columns.mjs";
import {
  filterText,
  filterWords,
  gridFilters,
  gridOrder,
  orderText,
  rankOf,
  readFilters,
  withoutFilter,
  withRank,
} from "../../assets/nodes/filters.mjs";

/** @param {string} column */
const isText = (column) => ({ name: true, rank: false, bytes: false, type: true })[column] ?? null;

test("an address's filters come back from the grid as they were", () => {
  const texts = [
    '{"bytes":["matches",">= 32 MiB"]}',
    '{"name":["contains","grads"],"type":["blank"]}',
    '{"name":["AND",["contains","a"],["notContains","b"]]}',
    "",
  ];
  for (const text of texts) assert.equal(filterText(gridFilters(text, isText)), text);
});

test("filters are written in the order of their columns", () => {
  const model = gridFilters('{"type":["blank"],"name":["contains","x"]}', isText);
  assert.equal(filterText(model), '{"name":["contains","x"],"type":["blank"]}');
});

test("comparisons of an earlier studio are read as people write them today", () => {
  const old = '{"bytes":["inRange",1,2],"rank":["equals",5],"name":["equals","5"]}';
  assert.equal(
    filterText(gridFilters(old, isText)),
    '{"bytes":["matches","1..2"],"name":["equals","5"],"rank":["matches","5"]}',
  );
  assert.equal(filterText(gridFilters('{"bytes":["lessThan",7]}', isText)), '{"bytes":["matches","< 7"]}');
});

test("text that is no filter, and columns that are none, filter nothing", () => {
  for (const text of ["{", "[1]", "3", "null"]) assert.deepEqual(readFilters(text), {});
  assert.deepEqual(gridFilters('{"colour":["equals","red"],"name":"x"}', isText), {});
});

test("an order is written by the place of each column in it", () => {
  const order = gridOrder("type,-duration_ns");
  assert.deepEqual(order, [
    { colId: "type", sort: "asc", sortIndex: 0 },
    { colId: "duration_ns", sort: "desc", sortIndex: 1 },
  ]);
  assert.equal(orderText([...order].reverse()), "type,-duration_ns");
  assert.equal(orderText([{ colId: "id", sort: null }]), "");
  assert.deepEqual(gridOrder(""), []);
});

test("a rank is picked and given up among other filters", () => {
  assert.equal(rankOf('{"rank":["equals",5]}'), "5");
  assert.equal(rankOf('{"rank":["matches","> 5"]}'), null);
  assert.equal(rankOf(""), null);
  const both = withRank('{"type":["blank"]}', "3");
  assert.equal(both, '{"rank":["matches","3"],"type":["blank"]}');
  assert.equal(withRank(both, null), '{"type":["blank"]}');
  assert.equal(withRank('{"rank":["matches","3"]}', null), "");
});

const NAMES = ["rank", "id", "name", "type", "waits_for", "recorded_start_ns"];
const COLUMNS = NAMES.map((name) => ({ name, width: 100 }));

test("empty columns and those there is no room for are left out, the least important first", () => {
  const { shown, narrow } = chooseColumns(COLUMNS, 310, { empty: ["type"], simulated: false, used: "," });
  assert.deepEqual([...shown], ["rank", "id", "name"]);
  assert.deepEqual(narrow, ["waits_for"]);
});

test("recorded times have columns while a run is shown, and what the address uses stays", () => {
  const list = { empty: [], simulated: true, used: "," };
  assert.ok(chooseColumns(COLUMNS, 1000, list).shown.has("recorded_start_ns"));
  const sorted = chooseColumns(COLUMNS, 10, { empty: [], simulated: false, used: ",recorded_start_ns" });
  assert.deepEqual([...sorted.shown], ["rank", "name", "recorded_start_ns"]);
});

test("a long name keeps its end, whole surrogate pairs included", () => {
  assert.equal(splitName("x".repeat(21)), null);
  assert.deepEqual(splitName("a".repeat(6) + "b".repeat(16)), ["aaaaaa", "b".repeat(16)]);
  const pair = "a".repeat(9) + "😀" + "b".repeat(15);
  assert.deepEqual(splitName(pair), ["a".repeat(9), "😀" + "b".repeat(15)]);
});

test("a filter says what it asks for, and is taken away alone", () => {
  const text =
    '{"bytes":["matches",">= 32 MiB"],"name":["OR",["contains","a"],["notContains","b"]],"type":["blank"]}';
  assert.deepEqual(filterWords(gridFilters(text, isText)), [
    ["bytes", ">= 32 MiB"], ["name", "contains a or does not contain b"], ["type", "is blank"],
  ]);
  assert.equal(withoutFilter(text, "name"), '{"bytes":["matches",">= 32 MiB"],"type":["blank"]}');
  assert.equal(withoutFilter('{"type":["blank"]}', "type"), "");
});
