/* Where the lanes of the Timeline page stand, and which lane is at a height. No DOM: sizes are given. */

/** @import { Chart, Group } from "./chart.mjs" */
/**
 * Where a row stands; `behind` pinned ranks it is not seen.
 * @typedef {{y: number, height: number, thin: boolean, group: Group, behind: boolean}} RowPlace
 */
/** @typedef {"rank" | "finish" | "idle"} Order */

export const GUTTER = 176, AXIS = 26, BAR = 16, PAD = 7;
const ROW = 20, THIN = 5, LEAST = 15;
const GHOST_BAR = 10; /* height of a bar above one of the other run */
const PINNED_AT_MOST = 0.6; /* of the height */

export class Lanes {
  /** @param {Chart} chart */
  constructor(chart) {
    this.chart = chart;
    /** Size of the page in pixels, and how far it is scrolled. */
    this.size = { wide: 0, high: 0, top: 0 };
    /** @type {Group[]} */
    this.list = [];
    /** Where each of the list begins, and where the last ends. */
    this.y = new Float64Array(1);
    /** @type {Map<number, number>} */
    this.placeOf = new Map();
    this.pinned = 0;
    this.pinHeight = 0;
    this.hasGhost = false;
  }

  /**
   * Put the ranks in order, those that are pinned first, in the order they were pinned in.
   * @param {Order} order @param {number[]} pins
   * @param {Map<number, number> | null} idle ns of each rank
   * @param {(rank: number) => boolean} folds @param {boolean} hasGhost
   */
  arrange(order, pins, idle, folds, hasGhost) {
    const list = [...this.chart.groups.values()];
    if (order === "finish") list.sort((a, b) => b.finish - a.finish || a.rank - b.rank);
    if (order === "idle" && idle) {
      list.sort((a, b) => (idle.get(b.rank) ?? 0) - (idle.get(a.rank) ?? 0) || a.rank - b.rank);
    }
    const first = pins.flatMap((rank) => this.chart.groups.get(rank) ?? []);
    this.list = [...first, ...list.filter((group) => !pins.includes(group.rank))];
    this.hasGhost = hasGhost;
    this.y = new Float64Array(this.list.length + 1);
    this.placeOf = new Map();
    for (const [place, group] of this.list.entries()) {
      group.folded = folds(group.rank);
      group.pitch = group.folded ? THIN + (hasGhost ? 3 : 0) : ROW;
      this.placeOf.set(group.rank, place);
      this.y[place + 1] = this.y[place] + PAD + Math.max(group.count * group.pitch, LEAST);
    }
    /* Pinned ranks stay in sight while the others scroll, unless they would leave too little of them. */
    this.pinned = first.length;
    while (this.pinned && this.y[this.pinned] > (this.size.high - AXIS) * PINNED_AT_MOST) this.pinned--;
    this.pinHeight = this.y[this.pinned];
  }

  /** Of everything, in pixels. */
  get height() {
    return AXIS + this.y[this.list.length] + PAD;
  }

  /** Which of the list stands at a height of it. @param {number} y */
  indexAt(y) {
    let low = 0, high = this.list.length;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.y[middle] <= y) low = middle;
      else high = middle - 1;
    }
    return Math.min(low, this.list.length - 1);
  }

  /**
   * What is at a height of the page; row -1 is between rows.
   * @param {number} py @returns {{group: Group, row: number} | null}
   */
  rowAt(py) {
    if (py < AXIS || !this.list.length) return null;
    const y = py - AXIS + (py - AXIS < this.pinHeight ? 0 : this.size.top), place = this.indexAt(y);
    const group = this.list[place], inside = Math.floor((y - this.y[place] - PAD / 2) / group.pitch);
    return { group, row: inside >= 0 && inside < group.count ? group.first + inside : -1 };
  }

  /** @param {number} row @returns {RowPlace} */
  placeOfRow(row) {
    const group = this.chart.groupOf(row), place = this.placeOf.get(group.rank) ?? 0;
    const isPinned = place < this.pinned, top = AXIS - (isPinned ? 0 : this.size.top);
    const y = top + this.y[place] + PAD / 2 + (row - group.first) * group.pitch;
    const height = group.folded ? THIN - 1 : this.hasGhost ? GHOST_BAR : BAR;
    return { y, height, thin: group.folded, group, behind: !isPinned && y + height <= AXIS + this.pinHeight };
  }

  /** The other run stands below, lower and paler. @param {RowPlace} place @returns {RowPlace} */
  ghostPlace(place) {
    const { y, height, thin } = place;
    return { ...place, y: y + height + (thin ? 0.5 : 1), height: thin ? 2.5 : 6 };
  }

  /** Ranks in sight that are not pinned. */
  listScrolled() {
    const first = Math.max(this.pinned, this.indexAt(this.size.top + this.pinHeight));
    return this.list.slice(first, this.indexAt(this.size.top + this.size.high - AXIS) + 1);
  }

  /** Ranks in sight, those that are pinned last. */
  listVisible() {
    return [...this.listScrolled(), ...this.list.slice(0, this.pinned)];
  }

  /** The list from one height of it to another. @param {number} from @param {number} to */
  listBetween(from, to) {
    return this.list.slice(Math.max(0, this.indexAt(from)), this.indexAt(to) + 1);
  }
}

/** All rows of some ranks. @param {Group[]} groups */
export function rowsOf(groups) {
  return groups.flatMap(({ first, count }) => Array.from({ length: count }, (_, at) => first + at));
}

/**
 * Which ranks are folded: `base` says it of all but those listed. In an address "all,3" means all but rank 3.
 * @typedef {{base: boolean, except: Set<number>}} Folds
 */

/**
 * @param {string | undefined} text
 * @param {boolean} usual what holds where the text says nothing
 * @returns {Folds}
 */
export function readFolds(text, usual) {
  const parts = (text || "").split(",");
  const base = parts.includes("all") ? true : parts.includes("none") ? false : usual;
  return { base, except: new Set(parts.filter((part) => /^\d+$/.test(part)).map(Number)) };
}

/** @param {Folds} folds @param {boolean} usual */
export function writeFolds({ base, except }, usual) {
  const word = base === usual ? [] : [base ? "all" : "none"];
  return [...word, ...[...except].sort((a, b) => a - b)].join(",") || null;
}

/** @param {Folds} folds @param {number} rank */
export function isFolded({ base, except }, rank) {
  return base !== except.has(rank);
}
