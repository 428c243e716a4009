/** Compare's arithmetic: which lanes of several runs belong together, and where they stand. */

import assert from "node:assert/strict";
import test from "node:test";

import { describeChoices } from "../../assets/compare/comparison.mjs";
import { AXIS, arrangeRanks, judge, makePanes, placeLane, readSlots } from "../../assets/compare/layout.mjs";
import { comparisonAddress } from "../../assets/compare/tray.mjs";

/** A chart whose rows are rank, kind, name and level. */
function chartOf(rows) {
  const column = (at) => rows.map((row) => row[at]);
  const kinds = ["compute", "stream", "communication"], [rank, kind, name, level] = [0, 1, 2, 3].map(column);
  return { count: rows.length, rows: { kinds, rank, kind, name, level } };
}

test("the n-th comm group of one run belongs to the n-th of another, whatever they are called", () => {
  const one = readSlots(chartOf([[0, 1, 0, 0], [0, 2, 5, 0], [0, 2, 6, 0], [0, 2, 6, 1]]));
  const two = readSlots(chartOf([[0, 2, 9, 0], [0, 2, 1, 0]]));
  assert.deepEqual([...one.get(0)], [["1/0/0", 0], ["2/0/0", 1], ["2/1/0", 2], ["2/1/1", 3]]);
  assert.deepEqual([...two.get(0)], [["2/0/0", 0], ["2/1/0", 1]]);
  const [entry] = arrangeRanks([two, one], 1, new Set());
  assert.deepEqual(entry.slots, ["1/0/0", "2/0/0", "2/1/0", "2/1/1"]);
});

test("ranks that any run has stand below each other; of many all are folded", () => {
  const [one, two] = [2, 0].map((rank) => new Map([[rank, new Map([["1/0/0", 0]])]]));
  const few = arrangeRanks([one, two], 1, new Set());
  assert.deepEqual(few.map(({ rank, y, height, folded }) => [rank, y, height, folded]), [
    [0, 0, 13, false], [2, 19, 13, false],
  ]);
  const slots = new Map([0, 1, 2, 3, 4].map((rank) => [rank, new Map([["1/0/0", rank]])]));
  const many = arrangeRanks([slots], 1, new Set([1]));
  assert.deepEqual(many.map(({ folded }) => folded), [true, false, true, true, true]);
});

test("runs share the height of a slot where they lie over each other", () => {
  const slots = new Map([[0, new Map([["1/0/0", 0]])]]);
  const [beside, over] = [1, 2].map((lanes) => arrangeRanks([slots, slots], lanes, new Set())[0]);
  assert.deepEqual([beside.pitch, placeLane(beside, 1, 0)], [12, { y: 0, tall: 11 }]);
  assert.ok(over.pitch > beside.pitch);
  const lanes = [0, 1].map((lane) => placeLane(over, 2, lane));
  assert.equal(lanes[1].y, lanes[0].tall);
  assert.ok(Math.abs(lanes[1].y + lanes[1].tall - (over.pitch - 2)) < 1e-9);
});

test("panes share the height below the axis", () => {
  const room = 300 - AXIS;
  assert.deepEqual(makePanes(2, 300, true), [{ sides: [0, 1], top: AXIS, high: room }]);
  const panes = makePanes(2, 300, false);
  assert.deepEqual(panes.map(({ sides, top }) => [sides, top]), [[[0], AXIS], [[1], AXIS + room / 2]]);
});

test("a node is told of on every side", () => {
  const at = (start, end) => ({ rank: 3, node: "7", row: 1, name: "gemm", start, end });
  const words = "rank 3 · gemm · A takes 100 ns · B takes 150 ns (+50 ns) · C takes 100 ns (= A) · not in D";
  assert.equal(describeChoices([at(0, 100), at(10, 160), at(5, 105), null]), words);
  assert.equal(describeChoices([null, at(null, null)]), "rank 3 · gemm · not in A · B has no time for it");
  assert.deepEqual([judge(5, 5), judge(6, 5), judge(4, 5)], ["same", "worse", "better"]);
});

test("the tray leads to a comparison of what is in it", () => {
  const chosen = [["a/r1", "first"], ["b/recorded", "second"], ["b/r2", "third"]];
  assert.equal(comparisonAddress(chosen), "/compare?job=a&run=r1&with=b%2Frecorded%2Cb%2Fr2");
});
