/* Where the lanes of several runs stand, so that what belongs together is at one height in each. No DOM. */

/** @import { Chart } from "../timeline/chart.mjs" */

/**
 * The rows of each rank by what they are: "kind/n/level" is a row of the n-th lane of a kind. The n-th comm
 * group of one run stands where the n-th of another does.
 * @typedef {Map<number, Map<string, number>>} Slots
 */

/**
 * A rank in all runs.
 * @typedef {object} Entry
 * @property {number} rank
 * @property {number} y below the top of all
 * @property {number} height
 * @property {number} pitch from slot to slot
 * @property {string[]} slots
 * @property {boolean} folded
 */

/** @typedef {{sides: number[], top: number, high: number}} Pane */

export const LETTERS = "ABCDEFGH"; /* names of the sides */
export const GUTTER = 92, AXIS = 24, HEAD = 18, GAP = 6;
const ROW = 12, THIN = 4, LEAST = 13;
const OPEN_AT_MOST = 4; /* ranks; of more all are folded at first */
const KINDS = ["compute", "stream", "communication", "memory", "cpu", "thread"];

/** @param {Chart} chart @returns {Slots} */
export function readSlots({ rows, count }) {
  /** @type {Slots} */
  const slots = new Map();
  /** @type {Map<string, number>} */
  const lanes = new Map(); /* by rank, kind and name: the how-manieth of its kind */
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (let row = 0; row < count; row++) {
    const kind = KINDS.indexOf(rows.kinds[rows.kind[row]]), sort = rows.rank[row] + "/" + kind;
    const lane = sort + "/" + rows.name[row];
    if (!lanes.has(lane)) {
      lanes.set(lane, counts.get(sort) ?? 0);
      counts.set(sort, (counts.get(sort) ?? 0) + 1);
    }
    const ranks = slots.get(rows.rank[row]) ?? new Map();
    slots.set(rows.rank[row], ranks.set([kind, lanes.get(lane), rows.level[row]].join("/"), row));
  }
  return slots;
}

/** From the top: what the accelerator does stands first. @param {string} a @param {string} b */
function compareSlots(a, b) {
  const [one, two] = [a, b].map((slot) => slot.split("/").map(Number));
  return one[0] - two[0] || one[1] - two[1] || one[2] - two[2];
}

/**
 * Give each rank that any run has its place.
 * @param {Slots[]} all of the runs
 * @param {number} lanes runs that share the height of a slot: all of them, or one
 * @param {Set<number>} toggled ranks that are not folded as usual
 * @returns {Entry[]}
 */
export function arrangeRanks(all, lanes, toggled) {
  const ranks = [...new Set(all.flatMap((slots) => [...slots.keys()]))].sort((a, b) => a - b);
  const usual = ranks.length > OPEN_AT_MOST;
  let y = 0;
  return ranks.map((rank) => {
    const slots = [...new Set(all.flatMap((side) => [...(side.get(rank)?.keys() ?? [])]))].sort(compareSlots);
    const folded = usual !== toggled.has(rank), row = folded ? THIN : ROW;
    const pitch = lanes > 1 ? row * Math.max((folded ? 0.75 : 0.6) * lanes, 1) + 2 : row;
    const entry = { rank, y, slots, folded, pitch, height: Math.max(slots.length * pitch, LEAST) };
    y += entry.height + GAP;
    return entry;
  });
}

/** Where the lane of a run lies in a slot. @param {Entry} entry @param {number} lanes @param {number} lane */
export function placeLane({ pitch }, lanes, lane) {
  const tall = lanes > 1 ? (pitch - 2) / lanes : pitch - 1;
  return { y: lanes > 1 ? lane * tall : 0, tall };
}

/**
 * The parts of the canvas: one below the other for each run, or one for all.
 * @param {number} count of runs
 * @param {number} high pixels of the canvas
 * @param {boolean} isOverlay @returns {Pane[]}
 */
export function makePanes(count, high, isOverlay) {
  const sides = Array.from({ length: count }, (_, side) => side), room = high - AXIS;
  if (isOverlay) return [{ sides, top: AXIS, high: room }];
  return sides.map((side) => ({ sides: [side], top: AXIS + (side * room) / count, high: room / count }));
}

/** How a run differs from the first. @param {number} ns @param {number} first */
export function judge(ns, first) {
  return ns === first ? "same" : ns > first ? "worse" : "better";
}
