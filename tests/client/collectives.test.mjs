import assert from "node:assert/strict";
import { test } from "node:test";

import { patchOf } from "../../assets/collectives/controls.mjs";
import {
  binOf, binUnder, cellsIn, cutText, describeBin, describeNothing, describeWindow, formatFigure, labelStep,
  layOut, shortenName,
} from "../../assets/collectives/layout.mjs";
import { paintCells } from "../../assets/collectives/pixels.mjs";
import { drawNames } from "../../assets/collectives/labels.mjs";
import { heatAddress, otherAddress } from "../../assets/collectives/requests.mjs";
import {
  NONE, codeValues, joinRanges, makeRamp, makeScale, pixelToCss,
} from "../../assets/collectives/scale.mjs";
import {
  dragWindow, readWindow, scaleWindow, scrollWindow, windowAround, writeWindow,
} from "../../assets/collectives/windows.mjs";

/** @typedef {import("../../assets/collectives/layout.mjs").HeatData} HeatData */

/** @param {...number} values */
const floats = (...values) => new Float32Array(values);

test("an empty picture says why there is nothing to draw", () => {
  assert.match(describeNothing({ pairs: true }), /neither messages nor all-to-alls/);
  assert.match(describeNothing({ pairs: false }), /show another one/);
});

test("a linear scale begins at zero, but where figures differ by little", () => {
  const scale = makeScale({ least: 10, most: 100, positive: 10 }, false, false);
  assert.deepEqual([scale.low, scale.middle, scale.high], [0, 50, 100]);
  assert.deepEqual([...codeValues(floats(0, 50, 100, NaN, -5, 500), scale)], [0, 127, 254, NONE, 0, 254]);
  assert.equal(makeScale({ least: 90, most: 100, positive: 90 }, false, false).low, 90);
});

test("a logarithmic scale sets zero apart from the least figure above it", () => {
  const scale = makeScale({ least: 0, most: 1000, positive: 10 }, false, true);
  assert.deepEqual([scale.low, Math.round(scale.middle), scale.high], [0, 100, 1000]);
  assert.deepEqual([...codeValues(floats(0, 10, 100, 1000, NaN), scale)], [0, 15, 135, 254, NONE]);
});

test("shares of the mean have it in the middle, linear and logarithmic", () => {
  const range = { least: 0.5, most: 3, positive: 0.5 };
  const linear = makeScale(range, true, false), log = makeScale(range, true, true);
  /* As far down as up, but nothing moves less than nothing. */
  assert.deepEqual([linear.low, linear.middle, linear.high], [0, 1, 3]);
  assert.deepEqual([...codeValues(floats(0, 1, 2, 3), linear)], [64, 127, 191, 254]);
  assert.equal(log.high, 3);
  assert.deepEqual([...codeValues(floats(1 / 3, 1, 3, 0), log)], [0, 127, 254, 0]);
});

test("one figure far beyond the others leaves these their colours", () => {
  const scale = makeScale({ least: 0.9, most: 12, positive: 0.9, usual: 0.2 }, true, false);
  assert.deepEqual([scale.low, scale.high, scale.isCutLow, scale.isCutHigh], [0.8, 1.2, false, true]);
  assert.deepEqual([...codeValues(floats(0.8, 0.9, 1, 1.1, 12), scale)], [0, 63, 127, 191, 254]);
  const absolute = makeScale({ least: 0, most: 5000, positive: 1, usual: 50 }, false, false);
  assert.deepEqual([absolute.low, absolute.high, absolute.isCutHigh], [0, 50, true]);
  const far = { least: 1, most: 9, positive: 1, usual: 0.1 };
  const both = joinRanges({ least: 0.5, most: 3, positive: 0.5 }, far, true);
  assert.deepEqual([both.most, both.usual], [9, 2]);
});

test("figures that are all the same have a colour of their own", () => {
  const scale = makeScale({ least: 7, most: 7, positive: 7 }, false, true);
  assert.deepEqual([...codeValues(floats(7, NaN), scale)], [191, NONE]);
});

test("two heatmaps share the range of both", () => {
  const one = { least: 1, most: 5, positive: null }, other = { least: null, most: 9, positive: 2 };
  assert.deepEqual(joinRanges(one, other, false), { least: 1, most: 9, positive: 2, usual: null });
  assert.equal(joinRanges(one, null, false), one);
  assert.equal(joinRanges(one, { least: null, most: null, positive: null }, false), one);
});

test("colours go along their stops, and no figure has none", () => {
  const ramp = makeRamp([[0, 0, 0], [254, 0, 127]]);
  assert.deepEqual([0, 127, 254].map((code) => pixelToCss(ramp[code])), [
    "rgb(0,0,0)", "rgb(127,0,64)", "rgb(254,0,127)",
  ]);
  assert.equal(ramp[NONE], 0);
});

/** Each code is its own pixel. */
const TABLE = Uint32Array.from({ length: 256 }, (_, code) => code);

/**
 * @param {number[][]} rows
 * @param {number} wide
 * @param {number} high
 */
function paint(rows, wide, high, { isDiverging = false, gapX = 0, gapY = 0 } = {}) {
  const codes = Uint8Array.from(rows.flat());
  const cells = { codes, lines: rows.length, columns: rows[0].length, isDiverging };
  const out = new Uint32Array(wide * high);
  paintCells(cells, TABLE, out, { wide, high, gapX, gapY });
  return Array.from({ length: high }, (_, y) => [...out.subarray(y * wide, (y + 1) * wide)]);
}

test("a cell larger than a pixel fills its pixels but for the gap", () => {
  assert.deepEqual(paint([[1, 2]], 4, 2), [[1, 1, 2, 2], [1, 1, 2, 2]]);
  assert.deepEqual(paint([[1, 2], [3, NONE]], 4, 4, { gapX: 1, gapY: 1 }), [
    [1, 0, 2, 0], [0, 0, 0, 0], [3, 0, 0, 0], [0, 0, 0, 0],
  ]);
});

test("a pixel shows the strongest of its cells, no figure being none", () => {
  const rows = [[1, 9, NONE, NONE], [3, 2, NONE, 4], [130, 120, 127, NONE], [128, 140, 126, NONE]];
  assert.deepEqual(paint(rows, 2, 2), [[9, 4], [140, 127]]);
  assert.deepEqual(paint(rows, 2, 2, { isDiverging: true })[1], [140, 126]);
});

test("no cell is lost, however many share a pixel", () => {
  const rows = Array.from({ length: 97 }, () => new Array(89).fill(1));
  rows[61][43] = 200;
  const strong = paint(rows, 7, 5).flat().filter((code) => code === 200);
  assert.equal(strong.length, 1);
});

const EXTENT = { lines: 1000, ranks: 64 };

test("a window comes back from the address; a wrong one is all", () => {
  assert.deepEqual(readWindow({ rows: "120-240", cols: "0-63" }, EXTENT), [120, 241, 0, 64]);
  for (const rows of ["240-120", "0-1000", "x", "", null]) {
    assert.deepEqual(readWindow({ rows }, EXTENT), [0, 1000, 0, 64]);
  }
  assert.deepEqual(writeWindow([120, 241, 0, 64], EXTENT), { rows: "120-240", cols: null });
  assert.deepEqual(writeWindow([-3, 0.2, 60, 99], EXTENT), { rows: "0-0", cols: "60-63" });
});

test("a bin is opened with as much around it as can be drawn cell by cell", () => {
  const bin = { line: 990, high: 992, column: 4, right: 6 };
  assert.deepEqual(windowAround(bin, EXTENT), [488, 1000, 0, 64]);
  const middle = { line: 500, high: 502, column: 4, right: 6 };
  assert.deepEqual(windowAround(middle, EXTENT), [245, 757, 0, 64]);
});

test("the wheel scrolls to the end and no further, or scales around the pointer", () => {
  assert.deepEqual(scrollWindow([0, 120, 0, 64], 3, EXTENT), [10, 130, 0, 64]);
  assert.deepEqual(scrollWindow([878, 998, 0, 64], 3, EXTENT), [880, 1000, 0, 64]);
  assert.equal(scrollWindow([880, 1000, 0, 64], 3, EXTENT), null);
  const place = { x: 0.5, y: 0.25 };
  assert.deepEqual(scaleWindow([100, 200, 0, 64], 0.5, place, EXTENT), [112.5, 162.5, 16, 48]);
});

test("one finger moves the window, two scale it around what they hold", () => {
  const window = /** @type {const} */ ([400, 600, 0, 64]);
  const start = { x: 0.5, y: 0.5, apart: 0 };
  assert.deepEqual(dragWindow(window, start, { ...start, y: 0.25 }, false, EXTENT), [450, 650, 0, 64]);
  assert.deepEqual(dragWindow(window, start, { ...start, y: 9 }, false, EXTENT), [0, 200, 0, 64]);
  const apart = { x: 0.5, y: 0.5, apart: 100 };
  assert.deepEqual(dragWindow(window, apart, { ...apart, apart: 200 }, true, EXTENT), [450, 550, 16, 48]);
});

/** @type {HeatData} */
const DATA = {
  shape: [2, 3], window: [10, 14, 0, 3], down: 2, across: 1, lines: 54, ranks: 8,
  values: floats(1, 2, NaN, 0.5, 1, 1.5), numbers: new Int32Array([4, 5, 6]),
  name: new Int32Array([0, -1]), type: new Int32Array([0, 0]), nth: new Int32Array([2, -1]),
  group: new Int32Array([0, -1]), section: new Int32Array([0, 1]),
  names: ["grads"], types: ["ALL_REDUCE"], groups: ["dp"], sections: ["one", "two"],
  folded: false, unit: "ratio", measured: "bytes", figures: floats(1024, 2048, NaN, 1, 2, 3),
  max: new Float64Array(2), variation: new Float64Array(2), gini: new Float64Array(2),
  excess: new Float64Array(2), sum: new Float64Array(2),
  range: { least: 0.5, most: 2, positive: 0.5 }, colours: { sequential: {}, diverging: {} },
  metric: "size", relative: true, timed: true,
};

test("cells fill the room that names and bars leave, and are found under the pointer", () => {
  const options = { narrow: false, lines: 0, widest: 200 };
  const box = layOut(DATA, 1000, 300, options);
  assert.deepEqual([box.x, box.y, box.w, box.h, box.cw, box.ch], [292, 30, 288, 52, 96, 26]);
  assert.deepEqual(binUnder(box, 292 + 100, 30 + 27), { line: 1, column: 1 });
  assert.equal(binUnder(box, 291, 40), null);
  assert.equal(binUnder(box, 292, 82), null);
  const narrow = layOut(DATA, 300, 92, { narrow: true, lines: 10, widest: 200 });
  assert.deepEqual([narrow.sections, narrow.strip, narrow.ch], [0, 0, 6], "lines as high as those beside");
});

test("names of lines that are lower than they stand whole within the picture, none over another", () => {
  const lines = 97, none = new Int32Array(lines).fill(-1);
  const many = {
    ...DATA, shape: /** @type {[number, number]} */ ([lines, 3]), name: new Int32Array(lines), nth: none,
  };
  for (let high = 200; high < 260; high += 7) {
    const box = layOut(many, 1000, high, { narrow: false, lines: 0, widest: 200 });
    /** @type {number[]} */
    const written = [];
    const pen = {
      measureText: (/** @type {string} */ text) => ({ width: 6 * text.length }), fillRect() {},
      /** @param {string} _text @param {number} _x @param {number} y */
      fillText: (_text, _x, y) => written.push(y),
    };
    const look = { text: "", dim: "", border: "", accent: "", bg: "", collective: "", font: "" };
    drawNames(/** @type {any} */ (pen), look, box, many, null);
    assert.ok(written.length > 5);
    assert.ok(written.every((y) => y >= 36 && y + 6 <= high), `at a height of ${high}`);
    assert.ok(written.every((y, index) => !index || y - written[index - 1] >= 11.5));
  }
});

test("a bin knows its cells, and a cell its bin", () => {
  assert.deepEqual(cellsIn(DATA, { line: 1, column: 2 }), { line: 12, high: 14, column: 2, right: 3 });
  assert.deepEqual(binOf(DATA, { line: 13, column: 2 }), { line: 1, column: 2 });
  assert.equal(binOf(DATA, { line: 14, column: 2 }), null);
});

test("a bin and the window are described", () => {
  assert.deepEqual(describeBin(DATA, { line: 0, column: 1 }), [
    "grads #3", "rank 5 · group dp", "2.00× the mean, 2.00 KiB", "the largest of 2 × 1 cells; click to open",
  ]);
  assert.deepEqual(describeBin({ ...DATA, down: 1, window: [10, 12, 0, 3] }, { line: 0, column: 2 }), [
    "grads #3", "rank 6 · group dp", "takes no part",
  ]);
  /* Two groups of a line: the mean of the line is that of neither. */
  const values = floats(1, 0.5, 1.5, 1, 1, 1), figures = floats(65536, 24576, 73728, 1, 1, 1);
  const groups = { ...DATA, values, figures };
  assert.equal(describeBin(groups, { line: 0, column: 1 })[2], "0.50× the mean, 24.0 KiB");
  assert.equal(describeBin(groups, { line: 0, column: 2 })[2], "1.50× the mean, 72.0 KiB");
  assert.equal(describeWindow(DATA), "4 of 54 collectives × 3 ranks; a cell is the largest of 2 × 1");
  const whole = { ...DATA, window: /** @type {const} */ ([0, 1, 0, 8]), lines: 1, down: 1, folded: true };
  assert.equal(describeWindow(whole), "1 row × 8 ranks");
});

test("figures have their units; numbers of ranks and names what has room", () => {
  assert.equal(formatFigure(1.375, "ratio"), "1.38×");
  assert.equal(formatFigure(0, "ratio"), "0×");
  assert.equal(formatFigure(65_540_096, "bytes"), "62.5 MiB");
  assert.equal(labelStep(25, 10), 4);
  assert.equal(labelStep(25, 0.01), 4096);
  assert.deepEqual([1, 3, 8, 90].map((ranks) => labelStep(ranks, 1)), [1, 4, 8, 128]);
  const measure = (/** @type {string} */ text) => text.length;
  assert.equal(cutText("abcdef", 4, true, measure), "…def");
  const name = "step0.mb1.layer2.moe.dispatch.fwd #3";
  assert.equal(shortenName(name, 40, measure), name);
  assert.equal(shortenName(name, 30, measure), "ste0.mb1.lay2.moe.dis.fwd #3");
  assert.equal(shortenName(name, 22, measure), "s0.m1.l2.m.dis.fwd #3");
  assert.equal(shortenName(name, 10, measure), "….m.d.f #3");
  assert.equal(cutText("abcdef", 4, false, measure), "abc…");
  assert.equal(cutText("abcdef", 1, false, measure), "");
});

test("what is chosen takes out of the address what no longer means anything", () => {
  assert.deepEqual(patchOf({ sort: "gini" }), { sort: "gini", rows: null });
  assert.deepEqual(patchOf({ by: "none" }), { by: null, rows: null, only: null });
  assert.deepEqual(patchOf({ rel: "1", scale: "log" }), { rel: "1", scale: "log", rows: null });
  assert.deepEqual(patchOf({ metric: "size" }), { metric: "size", rel: null, scale: null, rows: null });
  assert.deepEqual(patchOf({ with: null }), { with: null });
});

test("addresses of the server name what the picture depends on", () => {
  const view = { job: "a b", tab: "traffic", of: "=pp0", node: "3", rank: "1" };
  assert.equal(heatAddress(view), "/api/jobs/a%20b/traffic?of=%3Dpp0");
  const first = { metric: "size", relative: true };
  assert.equal(
    otherAddress({ job: "a", run: "r", with: "b/s" }, first),
    "/api/jobs/b/collectives?run=s&metric=size&rel=1&like=a%2Fr",
  );
});
