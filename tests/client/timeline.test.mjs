/** The Timeline's arithmetic: axis, chart, tiles, lanes, flags, tables, and what lies under a point. */

import assert from "node:assert/strict";
import test from "node:test";

import { Axis } from "../../assets/timeline/axis.mjs";
import { Chart } from "../../assets/timeline/chart.mjs";
import { drawTicks, placeTag } from "../../assets/timeline/draw.mjs";
import { formatCounter, scaleOf } from "../../assets/timeline/counters.mjs";
import { Flags, readFlags, toggleFlag } from "../../assets/timeline/flags.mjs";
import { compareTimes } from "../../assets/timeline/ghost.mjs";
import {
  AXIS, GUTTER, Lanes, isFolded, readFolds, rowsOf, writeFolds,
} from "../../assets/timeline/lanes.mjs";
import { firstAfter } from "../../assets/timeline/path.mjs";
import { describeMeeting, describeWait, readMeeting } from "../../assets/timeline/peers.mjs";
import { barsOf, describeTime, joinBoxes } from "../../assets/timeline/pieces.mjs";
import { mixLine } from "../../assets/timeline/pictures.mjs";
import { stepHit } from "../../assets/timeline/search.mjs";
import { shapeTable, sortRows } from "../../assets/timeline/table_shape.mjs";
import { cutMiddle, cutStart, functionName } from "../../assets/timeline/text.mjs";
import { Tiles, joinRows, readCall } from "../../assets/timeline/tiles.mjs";
import { Timeline } from "../../assets/timeline/timeline.mjs";

const BINS = 1024;

/** A run of ranks that have a stream, and two comm groups. */
function description(ranks = [0, 1], span = 1 << 20) {
  const each = [1, 2, 2];
  return {
    span, bins: BINS, bars: 10, undrawn: "",
    kinds: ["compute", "stream", "communication"],
    names: ["", "7", "tp0", "12"],
    rank: Int32Array.from(ranks.flatMap((rank) => each.map(() => rank))),
    kind: Uint8Array.from(ranks.flatMap(() => each)),
    name: Int32Array.from(ranks.flatMap(() => [1, 2, 3])),
    level: new Uint8Array(ranks.length * each.length),
    ranks: Int32Array.from(ranks),
    finish: Float64Array.from(ranks, (rank) => 1000 - rank),
  };
}

/** A tile of one row with bars, and of another with bins. */
function tileData() {
  return {
    bars: Int32Array.of(0, 2, 2), start: Float64Array.of(-5, 100), end: Float64Array.of(20, 120),
    node: Int32Array.of(3, 4), name: Int32Array.of(0, 1), bytes: Float64Array.of(0, 8),
    waits: Float64Array.of(0, 5), category: Uint8Array.of(0, 1),
    binned: Int32Array.of(1), begun: new Int32Array(BINS).fill(2),
    strip: Int32Array.of(0), strip_category: Uint8Array.of(1), fraction: new Uint8Array(BINS).fill(51),
    names: ["gemm", "all_reduce"],
  };
}

test("a window is clamped to the whole and is never too narrow", () => {
  const axis = new Axis(100, 10);
  axis.bounds = { from: 0, to: 1000 };
  assert.deepEqual(axis.measureWhole(), { from: -10, to: 1010 });
  assert.deepEqual(axis.clamp(-500, -400), { from: -10, to: 90 });
  assert.deepEqual(axis.clamp(500, 500), { from: 495, to: 505 });
  assert.deepEqual(axis.clamp(-1e6, 1e6), axis.measureWhole());
});

test("zooming holds the moment under the pointer, and pixels lead back to moments", () => {
  const axis = new Axis(100, 10);
  [axis.width, axis.bounds, axis.shown] = [500, { from: 0, to: 1000 }, { from: 0, to: 1000 }];
  const held = axis.ns(225);
  assert.equal(axis.x(held), 225);
  axis.shown = axis.zoomWindow(axis.shown, 4, 225);
  assert.equal(axis.ns(225), held);
  assert.equal(axis.shown.to - axis.shown.from, 250);
  assert.equal(axis.nsPerPixel, 0.5);
  assert.equal(axis.isWhole(), false);
  const { from, to } = axis.zoomWindow({ from: 0, to: 12 }, 100, null);
  assert.equal(to - from, 10);
});

test("ticks are round, far enough apart, and named in a unit that suits them", () => {
  const axis = new Axis(0, 10);
  [axis.width, axis.shown] = [1000, { from: -1e6, to: 50e6 }];
  const ticks = axis.makeTicks();
  assert.deepEqual(ticks.slice(0, 3).map(({ text }) => text), ["0", "5 ms", "10 ms"]);
  assert.ok(axis.x(ticks[1].ns) - axis.x(ticks[0].ns) >= 96);
  axis.shown = { from: 20e6, to: 20e6 + 500 };
  assert.equal(axis.makeTicks()[1].text, "20,000.05 µs");
});

test("rows are grouped by rank; comm groups of a rank have shades of their own", () => {
  const chart = new Chart("job", "", description([0, 4]));
  const [one, two] = [...chart.groups.values()];
  assert.deepEqual([one.rank, one.first, one.count, one.finish], [0, 0, 3, 1000]);
  assert.deepEqual([two.rank, two.first, two.count, two.finish], [4, 3, 3, 996]);
  assert.deepEqual([...chart.shade], [0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1]);
  assert.deepEqual([0, 1, 2].map((row) => chart.laneName(row)), ["stream 7", "tp0", "group 12"]);
});

test("levels halve the detail, up to one tile for everything, also of a longer ghost", () => {
  const chart = new Chart("job", "", description());
  assert.equal(chart.top, 10);
  assert.ok(chart.tileSpan(chart.top) >= chart.span);
  assert.deepEqual([0.1, 1, 3, 4, 5, 1e9].map((ns) => chart.pickLevel(ns)), [0, 0, 2, 2, 3, 10]);
  chart.reach(1 << 22);
  assert.deepEqual([chart.span, chart.top], [1 << 22, 12]);
  chart.reach(0);
  assert.equal(chart.span, chart.own);
});

test("rows are asked for as ranges", () => {
  assert.equal(joinRows([0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
  assert.equal(joinRows([]), "");
});

/** Tiles whose answers are given by hand. */
function heldTiles(chart, budget) {
  const wishes = [];
  const read = (wish) => new Promise((resolve) => wishes.push({ ...wish, resolve }));
  return { tiles: new Tiles(chart, budget, read, () => {}, assert.fail), wishes };
}

test("what is on its way is not asked for again, and what came is found", async () => {
  const chart = new Chart("job", "", description()), { tiles, wishes } = heldTiles(chart, 1e6);
  tiles.want(3, 0, [1, 0]);
  tiles.want(3, 0, [0, 1]);
  const asked = wishes.map(({ level, tile, rows, ghost }) => [level, tile, rows, ghost]);
  assert.deepEqual(asked, [[3, 0, "0-1", false]]);
  wishes[0].resolve({ data: tileData(), size: 100 });
  await new Promise(setImmediate);
  const [bars, bins] = [0, 1].map((row) => tiles.find(3, 0, row));
  assert.deepEqual([bars.low, bars.high, bars.binned], [0, 2, -1]);
  assert.deepEqual([bins.binned, bins.batch.strips], [0, [[0]]]);
  tiles.want(3, 0, [0, 1]);
  assert.equal(wishes.length, 1);
  assert.deepEqual([tiles.size, tiles.kept, tiles.running], [2, 100, 0]);
});

test("six requests run at once; rows of a ghost are asked for apart, and end with it", async () => {
  const chart = new Chart("job", "", description()), { tiles, wishes } = heldTiles(chart, 1e6);
  tiles.want(0, 0, [5, 6, 7]);
  assert.deepEqual(wishes.map(({ rows, ghost }) => [rows, ghost]), [["5", false], ["0-1", true]]);
  for (let index = 1; index < 9; index++) tiles.want(0, index, [0]);
  assert.equal(wishes.length, 6);
  tiles.forgetGhost();
  wishes[1].resolve({ data: tileData(), size: 50 });
  await new Promise(setImmediate);
  assert.equal(tiles.find(0, 0, 6), undefined);
});

test("what was drawn longest ago goes first; the tile of everything stays", () => {
  const chart = new Chart("job", "", description()), { tiles } = heldTiles(chart, 350);
  tiles.keep(chart.top, 0, [0, 1], tileData(), 100);
  for (let index = 0; index < 3; index++) {
    tiles.clock += 2;
    tiles.keep(0, index, [0, 1], tileData(), 100);
  }
  assert.equal(tiles.kept, 200);
  assert.equal(tiles.find(0, 0, 0), undefined);
  assert.equal(tiles.find(0, 1, 0), undefined);
  assert.ok(tiles.find(0, 2, 0) && tiles.find(chart.top, 0, 1));
});

/** Lanes of four ranks in a window of 300 pixels. */
function arrangedLanes(order = "rank", pins = [], folds = () => false) {
  const lanes = new Lanes(new Chart("job", "", description([0, 1, 2, 3])));
  Object.assign(lanes.size, { wide: 1000, high: 300, top: 0 });
  lanes.arrange(order, pins, new Map([[0, 5], [1, 9], [2, 7], [3, 1]]), folds, false);
  return lanes;
}

test("ranks stand in the order asked for, pinned ones first", () => {
  const numbers = (lanes) => lanes.list.map(({ rank }) => rank);
  assert.deepEqual(numbers(arrangedLanes()), [0, 1, 2, 3]);
  assert.deepEqual(numbers(arrangedLanes("idle")), [1, 2, 0, 3]);
  assert.deepEqual(numbers(arrangedLanes("finish", [3, 2])), [3, 2, 0, 1]);
});

test("a row is found at the height it stands at, scrolled or pinned", () => {
  const lanes = arrangedLanes("rank", [2]);
  lanes.size.top = 60;
  for (const row of [6, 7, 3, 5]) {
    const { y, height, behind } = lanes.placeOfRow(row);
    assert.equal(behind, false);
    assert.equal(lanes.rowAt(y + height / 2).row, row);
  }
  assert.ok(lanes.placeOfRow(0).behind);
  assert.equal(lanes.rowAt(AXIS - 1), null);
  assert.deepEqual(lanes.listVisible().map(({ rank }) => rank), [0, 1, 3, 2]);
  assert.deepEqual(rowsOf(lanes.listScrolled().slice(0, 1)), [0, 1, 2]);
});

test("pinned ranks leave room for the others, folded ones take less", () => {
  assert.equal(arrangedLanes("rank", [0, 1, 2, 3]).pinned, 2);
  const folded = arrangedLanes("rank", [], (rank) => rank !== 1);
  assert.ok(folded.height < arrangedLanes().height);
  assert.deepEqual([folded.placeOfRow(0).thin, folded.placeOfRow(3).thin], [true, false]);
});

test("folds are read from the address and written back", () => {
  for (const [text, usual] of [["all,3", false], ["none", true], ["2,5", true], [undefined, false]]) {
    assert.equal(writeFolds(readFolds(text, usual), usual), text ?? null);
  }
  const folds = readFolds("all,3", false);
  assert.deepEqual([isFolded(folds, 3), isFolded(folds, 4)], [false, true]);
});

test("what is at a moment of a row: the bar, one nearby, or the bin", () => {
  const axis = new Axis(0, 10), chart = new Chart("job", "", description());
  [axis.width, axis.shown] = [1000, { from: 0, to: 1000 }];
  const timeline = new Timeline(chart, axis, { budget: 1e6, draw() {}, fail() {} });
  timeline.look = { ratio: 1, hidden: [] };
  timeline.tiles.keep(0, 0, [0, 1], tileData(), 10);
  assert.deepEqual(timeline.hit(0, 110).bar, {
    rank: 0, row: 0, start: 100, end: 120, name: "all_reduce", bytes: 8, index: 4, waits: 5, category: 1,
    ghost: false,
  });
  assert.equal(timeline.hit(0, 122).bar.index, 4);
  assert.equal(timeline.hit(0, 60), null);
  assert.equal(timeline.hit(0, -2), null);
  const { bin } = timeline.hit(1, 33.5);
  assert.deepEqual([bin.from, bin.to, bin.begun, bin.shares], [33, 34, 2, [["collective", 0.2]]]);
  timeline.look.hidden = [false, true];
  assert.equal(timeline.hit(0, 110), null);
});

test("two timelines share an axis, each at its own offset", () => {
  const axis = new Axis(0, 10), hooks = { budget: 1, draw() {}, fail() {} };
  [axis.width, axis.shown] = [100, { from: 0, to: 100 }];
  const [one, two] = [0, 40].map((offset) => {
    const timeline = new Timeline(new Chart("job", String(offset), description()), axis, hooks);
    timeline.offset = offset;
    timeline.begin({ ratio: 1, hidden: [] });
    return timeline;
  });
  assert.deepEqual([one.x(50), two.x(90)], [50, 50]);
  assert.deepEqual([two.from, two.to], [40, 140]);
  assert.equal(two.address("/node", { row: 1 }), "/api/jobs/job/timeline/node?run=40&row=1");
});

test("bins are mixed of the colours of what kept them busy", () => {
  const pixels = new Uint8ClampedArray(8), fraction = Uint8Array.of(255, 0, 255, 0);
  mixLine(pixels, 0, 2, fraction, [0, 1], [[200, 0, 0], [0, 100, 0]]);
  assert.deepEqual([...pixels], [100, 50, 0, 255, 0, 0, 0, 0]);
});

test("flags rise; one near to another takes it away", () => {
  assert.deepEqual(readFlags("30,x,10"), [10, 30]);
  assert.deepEqual(toggleFlag([10, 30], 20, 5), [10, 20, 30]);
  assert.deepEqual(toggleFlag([10, 30], 12, 5), [30]);
});

test("a label of the axis lies over no other where there is a place", () => {
  const tags = [{ left: 100, right: 150 }];
  assert.equal(placeTag(tags, 10, 50, 0, 500), 10);
  assert.equal(placeTag(tags, 90, 50, 0, 500), 48);
  assert.equal(placeTag(tags, 130, 50, 0, 500), 152);
  assert.equal(placeTag(tags, 90, 50, 60, 500), 152);
  assert.equal(placeTag(tags, 90, 50, 60, 140), 90);
});

/** A pen that remembers what it wrote, and where; letters are as wide as those of a test of names. */
function writingPen() {
  const written = [];
  return { written, measureText: (text) => ({ width: text.length * 6 }), fillRect() {},
    fillText: (text, x) => written.push([text, x]) };
}

test("moments that a label lies over are not named", () => {
  const axis = new Axis(GUTTER, 10);
  [axis.width, axis.shown] = [1000, { from: 0, to: 50e6 }];
  const pen = writingPen(), ticks = axis.makeTicks();
  const tags = [{ left: GUTTER + 120, right: GUTTER + 260 }];
  drawTicks({ look: {}, axis, tags }, pen, ticks, GUTTER + 1000);
  const named = ["0", "15 ms", "20 ms", "25 ms", "30 ms", "35 ms", "40 ms", "45 ms"];
  assert.deepEqual(pen.written.map(([text]) => text), named);
});

test("labels of flags near to each other stand on both sides", () => {
  const axis = new Axis(GUTTER, 10), pen = writingPen();
  [axis.width, axis.shown] = [1000, { from: 0, to: 50e6 }];
  const flags = new Flags({ axis, tags: [], look: {}, formatMoment: (ns) => ns / 1e6 + " ms" });
  flags.flags = [20e6, 22e6];
  flags.drawAxis(pen, GUTTER + 1000);
  assert.deepEqual(pen.written.map(([text]) => text), ["A 20 ms", "B +2.00 ms"]);
  const [first, second] = flags.scene.tags;
  assert.deepEqual([first.right, second.left], [axis.x(20e6), axis.x(22e6)]);
});

test("search goes to the next hit, or the one before, round and round", () => {
  const hits = { start: Float64Array.of(10, 20, 30) };
  assert.deepEqual([stepHit(hits, 2, true, 0), stepHit(hits, 0, false, 0)], [0, 2]);
  assert.deepEqual([stepHit(hits, -1, true, 15), stepHit(hits, -1, false, 15)], [1, 0]);
  assert.deepEqual([stepHit(hits, -1, true, 99), stepHit(hits, -1, false, 5)], [0, 2]);
});

test("a meeting says how long a rank waited, and for whom", () => {
  const meeting = readMeeting({ peers: [[0, 1, 100, 500], [3, 4, 250, 500]], position: 0 });
  assert.equal(describeMeeting(meeting, { rank: 0 }), " · 2 ranks arrive within 150 ns");
  const bar = { rank: 0, waits: 150, category: 1 };
  assert.equal(describeWait(bar, undefined), ", of which 150 ns waiting for others");
  assert.equal(describeWait(bar, meeting), ", of which 150 ns waiting for rank 3");
  assert.equal(describeWait({ rank: 3, waits: 0 }, meeting), "");
  const message = readMeeting({ peers: [[0, 1, 100, 500], [3, 4, 250, 500]], position: -1 });
  assert.equal(describeMeeting(message, { rank: 0 }), " · with rank 3");
  const receive = { rank: 0, waits: 20, category: 3 };
  assert.equal(describeWait(receive, message), ", of which 20 ns bubble, idle until rank 3 sends");
  assert.equal(describeMeeting(readMeeting({ peers: [], position: 0 }), { rank: 0 }), "");
  const synchronise = { rank: 0, waits: 20, category: 5 };
  assert.equal(describeWait(synchronise, undefined), ", of which 20 ns waiting for the device");
});

test("a node says how it differs from the other run", () => {
  const words = " · slow 200 ns: here −100 ns (−50.0 %), issued 40 ns earlier";
  assert.equal(compareTimes({ row: 0, here: [10, 110], there: [50, 250] }, "slow"), words);
  assert.equal(compareTimes({ row: 0, here: [0, 5], there: [0, 5] }, "slow"), " · slow 5 ns: the same");
  assert.equal(compareTimes({ row: 0, here: [0, 5], there: null }, "slow"), " · slow: did not run");
});

test("counters are written by their unit and drawn to a round scale", () => {
  const texts = [["share", 0.05], ["share", 1.5], ["bytes", 2048], ["nodes", 2.345], ["nodes", 1234.5]];
  assert.deepEqual(texts.map(([unit, value]) => formatCounter(unit, value)), [
    "5.00 %", "150 %", "2.00 KiB", "2.35", "1,235",
  ]);
  assert.deepEqual([0.03, 0.7, 1.4].map((most) => scaleOf({ unit: "share", most })), [0.05, 1, 1.4]);
});

test("times of a window stand in a column for each category", () => {
  const rows = [[0, "idle", 0, 70], [0, "compute", 2, 30], [1, "compute", 1, 100]];
  const { head, rows: lines } = shapeTable({ rows }, "category", "rank", 100);
  assert.deepEqual(head.map(({ title, full }) => [title, full]), [
    ["rank", undefined], ["compute", 100], ["idle", 100],
  ]);
  assert.deepEqual(lines, [[0, 30, 70], [1, 100, 0]]);
  assert.deepEqual(sortRows(lines, 1, true), [[1, 100, 0], [0, 30, 70]]);
  const parts = [
    [0, "stall", 0, 20], [0, "waiting", 0, 30], [0, "transfer", 0, 50], [1, "after_finish", 0, 100],
  ];
  const split = shapeTable({ rows: parts }, "part", "rank", 100);
  const titles = ["rank", "waiting", "transfer", "stall", "after finish", "exposed"];
  assert.deepEqual(split.head.map(({ title }) => title), titles);
  assert.deepEqual(split.rows, [[0, 30, 50, 20, 0, 80], [1, 0, 0, 0, 100, 0]]);
  assert.deepEqual(shapeTable({ rows: [[0, 5, "x", 30, 20, 10, 1, 2]] }, "difference", "rank", 1).rows, [
    [0, 5, "x", 30, 20, 10, 0.5, 1, 2],
  ]);
});

test("names are cut where half a word would stay", () => {
  const pen = { measureText: (text) => ({ width: text.length * 6 }) };
  assert.equal(cutStart(pen, "layer0.attention.qkv", 200), "layer0.attention.qkv");
  assert.equal(cutStart(pen, "layer0.attention.qkv", 90), "…qkv");
  assert.equal(cutStart(pen, "gradients", 30), "");
  assert.equal(cutStart(pen, "aten::native", 68), "…native");
  assert.equal(cutStart(pen, "ncclDevKernel_Generic", 80), "ncclDevKerne…");
  const kernel = "void at::native::add_kernel<4, at::Half>(int, at::Half*)";
  assert.equal(functionName(kernel), "at::native::add_kernel");
  assert.equal(functionName("ncclDevKernel_1(Args<4096ul>)"), "ncclDevKernel_1");
  for (const name of ["PjitFunction(conv)", "Memset (Device)", "a < b", "layer0.mlp"]) {
    assert.equal(functionName(name), name);
  }
  assert.equal(cutMiddle(pen, "a long name of a lane", 62), "a lon…lane");
});

test("the critical path is looked up by time", () => {
  const times = { start: [0, 10, 20], end: [10, 20, 25], rank: [0, 1, 0], row: [0, 2, 0], gap: [0, 0, 1] };
  const pieces = { ...times, sentence: "", length: 25, dropped: 0 };
  assert.deepEqual([-1, 0, 9, 10, 24, 25].map((ns) => firstAfter(pieces, ns)), [0, 0, 0, 1, 2, 3]);
});

test("a call in several bars is one node wherever it is pointed at", () => {
  const chart = new Chart("job", "", description()), axis = new Axis(0, 1);
  axis.width = 1024;
  axis.shown = { from: 0, to: 1024 };
  const timeline = new Timeline(chart, axis, { budget: 1e6, draw() {}, fail() {} });
  const data = {
    ...tileData(), node: Int32Array.of(3, 3), binned: new Int32Array(), strip: new Int32Array(),
    call: Int32Array.of(0, 1), call_start: Float64Array.of(-10, -10), call_end: Float64Array.of(150, 150),
    call_own: Float64Array.of(45, 45), call_pieces: Int32Array.of(2, 2),
  };
  timeline.tiles.keep(0, 0, [0, 1], data, 100);
  timeline.look = /** @type {any} */ ({ ratio: 1, hidden: [] });
  timeline.low = timeline.last = timeline.level = 0;
  const over = [10, 110].map((ns) => timeline.hit(0, ns)?.bar);
  for (const bar of over) {
    assert.deepEqual([bar?.index, bar?.start, bar?.end, bar?.own, bar?.count], [3, -10, 150, 45, 2]);
  }
  const found = timeline.findBars(/** @type {any} */ (over[0])).map(({ start, end }) => [start, end]);
  assert.deepEqual(found, [[-5, 20], [100, 120]]);
  assert.equal(readCall(tileData(), 0), null);
});

test("how long a call took is its own time, within the time until it returned", () => {
  assert.equal(describeTime({ start: 0, end: 1500 }), "1.50 µs");
  const call = { start: 0, end: 100000, own: 70000 };
  assert.equal(describeTime(call), "70.0 µs of its own within 100 µs");
  assert.equal(describeTime({ ...call, count: 3 }), "70.0 µs of its own within 100 µs, one node in 3 pieces");
  const pair = /** @type {any} */ ({ row: 0, here: [0, 100], there: [0, 60], own: [60, 60] });
  assert.equal(compareTimes(pair, "B"), " · B 60 ns: the same");
});

test("outlines that would run into each other are one", () => {
  const pieces = /** @type {[number, number, number][]} */ ([[2, 0, 5], [2, 8, 9], [3, 20, 30]]);
  const bars = barsOf({ rank: 0, row: 2, start: 0, end: 30, pieces });
  assert.deepEqual(bars.map(({ row, start }) => [row, start]), [[2, 0], [2, 8], [3, 20]]);
  const box = (/** @type {number} */ left, /** @type {number} */ right, y = 0) => {
    return { left, right, y, height: 8, behind: false };
  };
  const joined = joinBoxes([box(0, 5), box(8, 9), box(40, 41), box(41, 44, 20)]);
  assert.deepEqual(joined.map(({ left, right }) => [left, right]), [[0, 9], [40, 41], [41, 44]]);
});
