/**
 * Numbers read the same in the browser as in Python: tests/test_units.py checks studio/units.py by the same
 * table.
 */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import * as format from "../../assets/base/format.mjs";

const TABLE = JSON.parse(readFileSync(new URL("../data/formats.json", import.meta.url), "utf8"));

test("numbers are written as studio/units.py writes them", () => {
  for (const [name, values, unit, text] of TABLE) {
    const chosen = ["formatTime", "formatMoment"].includes(name) ? [unit] : [];
    assert.equal(format[name](...values, ...chosen), text, `${name}(${values}) in ${unit}`);
  }
});

test("ties are rounded to even", () => {
  assert.deepEqual([0.5, 1.5, 2.5, -2.5].map((value) => format.formatFixed(value)), ["0", "2", "2", "-2"]);
  assert.deepEqual(
    [0.125, 0.375, 0.25].map((value) => format.formatFixed(value, 2)),
    ["0.12", "0.38", "0.25"],
  );
});

test("large numbers have commas, decimals have none", () => {
  assert.equal(format.formatFixed(1234567.123456, 6), "1,234,567.123456");
  assert.equal(format.formatCount(96331), "96,331");
});

test("nothing is 0 of the smallest unit, and what is no number is a dash", () => {
  assert.equal(format.formatBytes(0), "0 B");
  assert.equal(format.formatRate(Number.NaN), "–");
  assert.equal(format.formatTime(Number.POSITIVE_INFINITY, "ms"), "–");
});

test("a noun follows its number", () => {
  assert.deepEqual(
    [0, 1, 1200].map((count) => format.plural(count, "rank")),
    ["0 ranks", "1 rank", "1,200 ranks"],
  );
  assert.equal(format.plural(2, "entry", "entries"), "2 entries");
  assert.equal(format.formatShare(0.1234), "12.3 %");
});

test("cells of a table are short: whole numbers in full, others by four digits, words as they are", () => {
  const cells = ["2.7402271509222222", 0.00012345678, "15653190", 12345.678, 512, "2048", "", null, "1.5 ms"];
  const texts = cells.map(format.formatCell);
  assert.deepEqual(texts, ["2.74", "0.0001235", "15,653,190", "12,346", "512", "2048", "", "", "1.5 ms"]);
  assert.equal(format.formatCell("18446744073709551615"), "18446744073709551615");
});
