/* What there is to draw of a run: its rows, by rank, and the shades that tell comm groups apart. No DOM. */

/**
 * What the server says of a run, see studio/server/timeline.py. R rows, M ranks.
 * @typedef {object} Description
 * @property {number} span ns
 * @property {number} bins of a tile
 * @property {number} bars
 * @property {string} undrawn
 * @property {string[]} kinds
 * @property {string[]} names
 * @property {Int32Array} rank (R,) number of the rank
 * @property {Uint8Array} kind (R,) index into kinds
 * @property {Int32Array} name (R,) index into names
 * @property {Uint8Array} level (R,) number among the rows of a lane
 * @property {Int32Array} ranks (M,)
 * @property {Float64Array} finish (M,) ns
 */

/**
 * The rows of a rank, and how the page shows them.
 * @typedef {object} Group
 * @property {number} rank
 * @property {number} first row
 * @property {number} count of rows
 * @property {number} finish ns
 * @property {boolean} folded
 * @property {number} pitch from row to row, in pixels
 * @property {number} pinAt where its pin is drawn
 */

export const CATEGORIES = ["compute", "collective", "send", "receive", "memory", "host", "copy", "gap"];
/** Added to a category: its time before all that take part had begun. That of receives is idle. */
export const WAITING = 16;
export const COLLECTIVE = 1, SEND = 2, RECEIVE = 3, HOST = 5, GAP = 7;

/** How far the shades of the comm groups of a rank lie from the colour of collectives. */
export const SHADES = [0, 0.18, 0.34];

const LANES = { compute: "compute", memory: "memory", cpu: "CPU", thread: "thread ", stream: "stream " };

/** The rows of a run. A row number of `count` or more stands for the same row of another run, the ghost. */
export class Chart {
  /** @param {string} job @param {string} run @param {Description} description */
  constructor(job, run, description) {
    this.job = job;
    this.run = run;
    this.rows = description;
    this.count = description.rank.length;
    this.bins = description.bins;
    /** When the run ends, in ns. */
    this.own = description.span;
    /** What the time axis reaches to: a ghost may end later. */
    this.span = description.span;
    /** @type {Map<number, Group>} */
    this.groups = groupRows(description);
    this.shade = shadeRows(description, this.groups);
  }

  /** The coarsest level: one tile holds everything. */
  get top() {
    return Math.max(1, Math.ceil(Math.log2(this.span / this.bins)));
  }

  /** How much time a tile holds. @param {number} level */
  tileSpan(level) {
    return 2 ** level * this.bins;
  }

  /**
   * The level whose bins are at most as wide as a pixel.
   * @param {number} nsPerPixel of the screen
   */
  pickLevel(nsPerPixel) {
    return Math.min(this.top, Math.max(0, Math.ceil(Math.log2(nsPerPixel))));
  }

  /** Let the time axis reach to the end of another run, too. @param {number} otherNs */
  reach(otherNs) {
    this.span = Math.max(this.own, otherNs);
  }

  /** @param {number} row */
  rankOf(row) {
    return this.rows.rank[row];
  }

  /** The group of a row. @param {number} row */
  groupOf(row) {
    return /** @type {Group} */ (this.groups.get(this.rows.rank[row]));
  }

  /** @param {number} row */
  kindOf(row) {
    return this.rows.kinds[this.rows.kind[row]];
  }

  /** What a lane is called. @param {number} row */
  laneName(row) {
    const kind = this.kindOf(row), name = this.rows.names[this.rows.name[row]];
    if (kind === "communication") return /^\d+$/.test(name) ? "group " + name : name;
    return LANES[/** @type {keyof typeof LANES} */ (kind)] + (name || "");
  }
}

/** @param {Description} rows @returns {Map<number, Group>} */
function groupRows({ rank, ranks, finish }) {
  /** @type {Map<number, Group>} */
  const groups = new Map();
  rank.forEach((number, row) => {
    const group = groups.get(number);
    const start = { rank: number, first: row, count: 1, finish: 0, folded: false, pitch: 1, pinAt: 0 };
    if (group) group.count++;
    else groups.set(number, start);
  });
  ranks.forEach((number, place) => {
    const group = groups.get(number);
    if (group) group.finish = finish[place];
  });
  return groups;
}

/**
 * Comm groups of a rank differ in shade; the same role has the same shade on every rank.
 * @param {Description} rows @param {Map<number, Group>} groups
 */
function shadeRows({ rank, kind, kinds, name }, groups) {
  const shade = new Uint8Array(2 * rank.length);
  for (const group of groups.values()) {
    /** @type {number[]} */
    const names = [];
    for (let row = group.first; row < group.first + group.count; row++) {
      if (kinds[kind[row]] !== "communication") continue;
      if (!names.includes(name[row])) names.push(name[row]);
      shade[row] = shade[row + rank.length] = names.indexOf(name[row]) % SHADES.length;
    }
  }
  return shade;
}
