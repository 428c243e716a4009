/** What is said of uploads, and which files are sent together. */

import assert from "node:assert/strict";
import test from "node:test";

import { byName, filesOfDrop, isWanted, keepApart } from "../../assets/home/files.mjs";
import { takeNext } from "../../assets/home/sending.mjs";
import * as words from "../../assets/home/words.mjs";

const KIB = 1024;

function makeFile(more) {
  return { id: "f", path: "f", size: 10, received: 0, status: "waiting", tries: 0, ...more };
}

function makeCard(more) {
  return {
    id: "c", name: "c", status: "uploading", mine: true, fresh: true, size: 0, received: 0, chunk: KIB,
    created: 0, files: [], samples: [], job: "", error: null, progress: null, warnings: [], idle: null,
    used: null, leftOut: null, ...more,
  };
}

test("hidden files and those of macOS are not wanted; rank 2 comes before rank 10", () => {
  assert.deepEqual(["a/b.et", "a/.git/x", ".x", "__MACOSX/a"].map(isWanted), [true, false, false, false]);
  assert.deepEqual(["r.10", "r.2"].sort(byName), ["r.2", "r.10"]);
});

/** What a browser hands over for a dropped file or folder, null for one that cannot be read. */
function makeEntry(fullPath, content) {
  const name = fullPath.split("/").at(-1);
  if (!Array.isArray(content)) {
    const file = (resolve, reject) => content === null ? reject(new Error("no")) : resolve({ name });
    return { name, fullPath, isDirectory: false, file };
  }
  const batches = [content, []];
  const isClosed = content[0] === null;
  const readEntries = (resolve, reject) => isClosed ? reject(new Error("no")) : resolve(batches.shift());
  return { name, fullPath, isDirectory: true, createReader: () => ({ readEntries }) };
}

test("what cannot be read of a drop loses nothing else of it", async () => {
  const gone = makeEntry("/job/gone.et", null), closed = makeEntry("/job/closed", [null]);
  const entries = [makeEntry("/job", [makeEntry("/job/a.et", ""), gone, closed]), makeEntry("/b.et", "")];
  const kind = "file", getAsFile = () => null;
  const items = entries.map((entry) => ({ kind, webkitGetAsEntry: () => entry, getAsFile }));
  const lost = [];
  const found = await filesOfDrop({ items }, lost);
  assert.deepEqual(found.map(({ path }) => path), ["job/a.et", "b.et"]);
  assert.deepEqual(lost, ["job/gone.et", "job/closed"]);
  assert.equal(words.describeLost(lost), "Left out, as they cannot be read: job/gone.et, job/closed.");
  const many = words.describeLost(["a", "b", "c", "d"]);
  assert.equal(many, "Left out, as they cannot be read: a, b, c and 1 more.");
  assert.equal(words.describeLost([]), "");
});

test("files of one path are kept apart, and stay called as they are", () => {
  const picked = ["r.0.et", "r.0.et", "r.1.et", "r.0.et"].map((path, file) => ({ path, file }));
  assert.deepEqual(keepApart(picked).map(({ path }) => path), ["r.0.et", "2/r.0.et", "r.1.et", "3/r.0.et"]);
});

test("small files are sent together up to the size of a chunk, others alone", () => {
  const queue = [
    makeFile({ size: 400 }),
    makeFile({ size: 600 }),
    makeFile({ size: 100 }),
    makeFile({ size: 600 * KIB }),
  ];
  assert.deepEqual(
    [1, 2, 3].map(() => takeNext(queue, KIB).map((file) => file.size)),
    [[400, 600], [100], [600 * KIB]],
  );
  assert.deepEqual(takeNext(queue, KIB), []);
  const many = Array.from({ length: 60 }, () => makeFile({ size: 1 }));
  assert.equal(takeNext(many, KIB).length, 50);
});

test("a file that was begun, or failed among others, is sent alone", () => {
  const queue = [makeFile({ alone: true }), makeFile({ received: 5 }), makeFile()];
  assert.deepEqual([1, 2].map(() => takeNext(queue, KIB).length), [1, 1]);
});

test("speed is that of the last seconds", () => {
  const samples = [];
  assert.equal(words.measureSpeed(samples, 0, 0), 0);
  assert.equal(words.measureSpeed(samples, 500, 200), 0);
  assert.equal(words.measureSpeed(samples, 1000, 1000), 1000);
  assert.equal(words.measureSpeed(samples, 1000, 6000), 0);
});

test("an upload says how far it is, how fast, and how long it takes", () => {
  const card = makeCard({ files: [makeFile({ size: 4 * KIB, received: KIB })], samples: [[0, 0]] });
  assert.equal(words.statusText(card, 1000), "uploading · 25 % of 4.00 KiB · 1.02 kB/s · 3 s left");
  card.files.push(makeFile({ status: "cancelled", size: 999 }));
  assert.deepEqual(words.sumFiles(card), { size: 4 * KIB, received: KIB });
  assert.equal(words.statusText(makeCard({ retryAt: 2500 }), 1000), "connection lost, retrying in 2 s");
});

test("an upload of another window says whether anybody goes on with it", () => {
  const card = makeCard({ mine: false, size: 10, received: 5, idle: 3 });
  assert.equal(words.statusText(card, 0), "uploading in another window · 50 %");
  assert.equal(
    words.statusText({ ...card, idle: 20 }, 0),
    "waiting for its files: drop the same files again to continue",
  );
});

test("each state has its words", () => {
  const say = (more) => words.statusText(makeCard(more), 0);
  assert.equal(
    say({ status: "reading", progress: { phase: "ranks", done: 12, total: 1024 } }),
    "ranks 12 of 1,024",
  );
  const read = { phase: "checking", done: 1 << 20, total: 3 << 20, unit: "bytes" };
  assert.equal(say({ status: "reading", progress: read }), "checking 1.00 MiB of 3.00 MiB");
  const stored = { phase: "storing", done: 2, total: 3, unit: "graphs" };
  assert.equal(say({ status: "reading", progress: stored }), "storing 2 of 3 graphs");
  assert.equal(say({ status: "failed", error: { message: "", ranks_for: ["a"] } }), "waiting for ranks");
  assert.equal(say({ status: "failed", error: { message: "" } }), "failed");
  assert.equal(
    say({ status: "interrupted", size: 2, received: 1 }),
    "interrupted: drop the same files again to continue",
  );
  assert.equal(say({ status: "done" }), "open");
});

test("progress, remaining time and the files that are not listed", () => {
  assert.deepEqual([words.percent(1, 3), words.percent(9, 3), words.percent(0, 0)], [33, 100, 100]);
  assert.deepEqual([0.2, 89, 90, 5400].map(words.formatRemaining), ["1 s", "89 s", "2 min", "1.5 h"]);
  const rest = [makeFile(), makeFile(), makeFile({ status: "done" })];
  assert.equal(words.restText(rest), "and 3 more: 2 waiting, 1 done");
});

test("before files are read it is said how many are used, and as what", () => {
  const sortedText = ([used, leftOut]) => words.sortedText(makeCard({ used, leftOut }));
  const ended = ["done", "failed", "left out"].map((status) => makeFile({ status }));
  const after = makeCard({ status: "done", used: 2, leftOut: 1, files: ended });
  assert.equal(words.sortedText(after), "1 file used, 1 damaged, 1 left out");
  const sorted = [[null, null], [1, 0], [31, 2]].map(sortedText);
  assert.deepEqual(sorted, ["", "1 file used, none left out", "31 files used, 2 left out"]);
  assert.equal(words.noteText(makeFile({ status: "used", role: "rank 3" }), 0), "used: rank 3");
  const files = ["used", "left out", "used"].map((status) => makeFile({ status }));
  assert.equal(words.restText(files), "and 3 more: 1 left out, 2 used");
});

test("a first picture names what ranks do and send, and which ranks a bar stands for", () => {
  const bars = [
    { place: 0, first: 0, last: 0, sent_bytes: 2 * KIB },
    { place: 1, first: 1024, last: 1031, sent_bytes: KIB },
  ];
  const picture = {
    ranks: 12, of_ranks: 128, operations: { host: 4, compute: 2, copy: 0 }, span_ns: 5, bars, of_bars: 128,
    sent_bytes: 3 * KIB, refused: [], more_refused: 0,
  };
  const progress = { phase: "reading", done: KIB, total: 4 * KIB, unit: "bytes", picture };
  const card = makeCard({ status: "reading", progress });
  assert.equal(words.statusText(card, 0), "reading 1.00 KiB of 4.00 KiB · 12 of 128 ranks");
  const linking = makeCard({ status: "reading", progress: { ...progress, phase: "linking", unit: "" } });
  assert.equal(words.statusText(linking, 0), "linking 1,024 of 4,096");
  assert.deepEqual(words.workOf(picture.operations), [
    { key: "compute", name: "Compute", count: 2 },
    { key: "host", name: "Host", count: 4 },
  ]);
  assert.deepEqual(bars.map(words.barText), [
    "rank 0 sends 2.00 KiB",
    "ranks 1,024 to 1,031 send 1.00 KiB on average",
  ]);
  assert.equal(words.sentText(picture), "Bytes sent by rank: 3.00 KiB so far, up to 2.00 KiB each");
  const silent = { ...picture, sent_bytes: 0 };
  assert.equal(words.sentText(silent), "Bytes sent by rank: none so far");
});
