import assert from "node:assert/strict";
import { test } from "node:test";

import { patchOf, valuesOf } from "../../assets/graph/controls.mjs";
import {
  bandStops,
  centreOn,
  findBeside,
  findNearest,
  firstZoom,
  fitZoom,
  measureExtent,
  mergeSpans,
  shiftInto,
  toggleEntry,
  topOf,
  withBlock,
  withoutBlock,
} from "../../assets/graph/geometry.mjs";
import { paintMap } from "../../assets/graph/map.mjs";
import { describeNode } from "../../assets/graph/marks.mjs";

test("the extent of nodes includes their sizes, and fits into the window with a margin", () => {
  const extent = measureExtent([[{ x: 0, y: 0 }, 100, 40], [{ x: 900, y: 480 }, 100, 40]]);
  assert.deepEqual(extent, { left: -50, right: 950, top: -20, bottom: 500 });
  assert.equal(fitZoom(extent, 548, 4000), 0.5);
  assert.equal(fitZoom(extent, 4000, 308), 0.5);
  assert.equal(fitZoom(extent, 1e6, 1e6), 1.15, "little is not blown up");
});

test("a place is looked at without leaving more of the window empty than must be", () => {
  assert.equal(centreOn(5000, 0, 10_000, 648), 5000);
  assert.equal(centreOn(10, 0, 10_000, 648), 400);
  assert.equal(centreOn(9990, 0, 10_000, 648), 9600);
  assert.equal(centreOn(10, 0, 100, 648), 50, "all of it is in sight");
});

test("what leaves the window moves into it, but not its beginning out of it", () => {
  assert.equal(shiftInto(100, 200, 1000), 0);
  assert.equal(shiftInto(900, 200, 1000), -108);
  assert.equal(shiftInto(100, 2000, 1000), -92);
  assert.equal(shiftInto(-50, 2000, 1000), 0);
});

test("arrows lead to the nearest neighbour and along the row", () => {
  const points = [{ x: 0, y: 0 }, { x: 50, y: 0 }, { x: -30, y: 0 }, { x: 10, y: 100 }];
  assert.equal(findNearest(points, { x: 20, y: 4 }), 0);
  assert.equal(findNearest([], { x: 20, y: 4 }), -1);
  assert.equal(findBeside(points, points[0], 1), 1);
  assert.equal(findBeside(points, points[0], -1), 2);
  assert.equal(findBeside(points, points[1], 1), -1);
});

test("bands of a block lie side by side and end with it", () => {
  const parts = /** @type {[string, number][]} */ ([["comp", 0.25], ["coll", 0.7501]]);
  assert.deepEqual(bandStops(parts), ["0.00%", "25.00%", "25.00%", "100.00%"]);
});

test("spans on the map that touch are one", () => {
  assert.deepEqual(mergeSpans([[0.5, 0.6], [0, 0.1], [0.101, 0.2], [0.05, 0.15]]), [[0, 0.2], [0.5, 0.6]]);
  assert.deepEqual(mergeSpans([[0, 0.9], [0.1, 0.2]]), [[0, 0.9]]);
});

test("kinds are hidden and shown, blocks opened and closed with all in them", () => {
  assert.equal(toggleEntry(undefined, "comp"), "comp");
  assert.equal(toggleEntry("comp,coll", "comp"), "coll");
  assert.equal(toggleEntry("coll", "coll"), "");
  assert.deepEqual(withBlock(["0", "1"], "0"), ["1", "0"]);
  assert.deepEqual(withoutBlock(["0", "0.1", "01", "1"], "0"), ["01", "1"]);
});

test("controls show what the address says, else what is drawn", () => {
  const drawn = { mode: "near", by: "phase", against: "recorded" };
  const values = valuesOf({ q: "x", rank: "3", run: "r", with: "r" }, drawn, ["0", "3"]);
  assert.deepEqual(values, {
    rank: "3", show: "near", by: undefined, depth: "2", dir: "both", deps: "both", q: "x", colour: "type",
    with: "recorded",
  });
  assert.equal(valuesOf({}, {}, ["7"]).rank, "7");
  assert.equal(valuesOf({}, { mode: "fold", by: "phase" }, []).by, "phase");
  assert.equal(valuesOf({ with: "other" }, {}, []).with, "other");
});

test("what a control changes takes back what no longer means anything", () => {
  assert.deepEqual(patchOf("depth", "2"), { depth: null });
  assert.deepEqual(patchOf("show", "whole"), { show: "whole", at: null });
  assert.deepEqual(patchOf("by", "phase"), { by: "phase", open: null, block: null });
  const rank = { rank: "3", at: null, anchor: null, open: null, block: null, node: null };
  assert.deepEqual(patchOf("rank", "3"), rank);
});

test("the tip of a node and of a block say what is known", () => {
  const node = { id: "7", kind: "comp", name: "", type: "COMP_NODE", bytes: "1.00 MiB" };
  assert.deepEqual(describeNode({ ...node, hidden: 1, crit: true }), [
    "(no name)",
    "COMP_NODE · 1.00 MiB · id 7",
    "on the critical path",
    "1 dependency not drawn: double click to centre",
  ]);
  const block = { id: "f0", kind: "frame", name: "step", block: "0", count: 1234, time: "2.00 ms" };
  const lines = ["step", "1,234 nodes · 2.00 ms in all", "+3 %", "double click to close"];
  assert.deepEqual(describeNode({ ...block, value: "+3 %" }), lines);
});

test("the map has a colour for each cell that holds nodes", () => {
  const out = new Uint8ClampedArray(12);
  const map = { width: 3, height: 1, kind: new Uint8Array([4, 7, 9]), shown: new Uint8Array([255, 0, 100]) };
  paintMap(map, out, (kind) => (kind === "comp" ? [1, 2, 3] : [9, 9, 9]));
  assert.deepEqual([...out], [1, 2, 3, 178, 0, 0, 0, 0, 9, 9, 9, 70]);
});

test("a long narrow drawing begins at its top, as far as its print is drawn", () => {
  const long = { left: 0, right: 400, top: 0, bottom: 5000 };
  const wide = { left: 0, right: 5000, top: 0, bottom: 400 };
  assert.ok(fitZoom(long, 1448, 648) < 0.2);
  assert.equal(firstZoom(long, 1448, 648), 0.52);
  assert.equal(firstZoom({ ...long, right: 3500 }, 1448, 648), 0.4, "no wider than the window");
  assert.equal(firstZoom(wide, 1448, 648), fitZoom(wide, 1448, 648));
  assert.deepEqual(topOf(long, 0.5, 648), { x: 200, y: 600 });
  const short = { ...long, bottom: 1000 };
  assert.deepEqual(topOf(short, 0.5, 648), { x: 200, y: 500 }, "what fits is in the middle");
});
