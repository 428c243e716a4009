/** Tables as CSV and TSV. */

import assert from "node:assert/strict";
import test from "node:test";

import { isNumeric, moveUnits, parseCsv, splitExact, writeCsv, writeTsv } from "../../assets/base/csv.mjs";

test("what is written is read again", () => {
  const rows = [["a", "b,c", 'd"e'], ["", "two\nlines", "x"], ["", "", ""]];
  assert.deepEqual(
    parseCsv(writeCsv({ head: ["one", "two", "three"], rows })),
    [["one", "two", "three"], ...rows],
  );
});

test("CSV of others is read", () => {
  assert.deepEqual(parseCsv("a,b\r\n1,\r\n"), [["a", "b"], ["1", ""]]);
  assert.deepEqual(parseCsv("a,b\n1,"), [["a", "b"], ["1", ""]]);
  assert.deepEqual(parseCsv('"a ""b"""'), [['a "b"']]);
  assert.deepEqual(parseCsv(""), []);
  assert.throws(() => parseCsv('"open'));
});

test("a spreadsheet takes no text for a formula, and no number for text", () => {
  const rows = [["=1+1", "-5", "-5 %", "+x", "@a", null, undefined, 3]];
  assert.equal(writeCsv({ head: ["h"], rows }), "h\n'=1+1,-5,-5 %,'+x,'@a,,,3\n");
});

test("TSV keeps each row in its line", () => {
  assert.equal(writeTsv({ head: ["a", "b"], rows: [["x\ty", "1\n2"]] }), "a\tb\nx y\t1 2");
});

test("the unit of a column moves into its head; of several each number keeps its own", () => {
  assert.deepEqual(splitExact("1,234 ns"), { number: "1234", unit: "ns" });
  assert.deepEqual(splitExact("−2.5"), { number: "-2.5", unit: "" });
  assert.equal(splitExact("none"), "none");
  const head = ["time", "size", "", "name"];
  const rows = [
    [splitExact("1,234 ns"), splitExact("5 B"), "button", "x"],
    [splitExact("2 ns"), splitExact("6 ns"), "button", "y"],
  ];
  assert.deepEqual(moveUnits(head, rows), {
    head: ["time (ns)", "size", "name"], rows: [["1234", "5 B", "x"], ["2", "6 ns", "y"]],
  });
});

test("numbers stand at the right", () => {
  assert.deepEqual([1, "1.5", "", "x", null].map(isNumeric), [true, true, false, false, false]);
});
