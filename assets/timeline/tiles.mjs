/* Tiles of a run: requested when they are missing, dropped when memory runs out. No DOM. */

/** @import { Chart } from "./chart.mjs" */

/**
 * A tile of some rows as the server packs it, see studio/analysis/gantt.py: P rows, S spans, C strips, D rows
 * that come as bins.
 * @typedef {object} TileData
 * @property {Int32Array} bars (P+1,) row i holds the spans bars[i] to bars[i+1]
 * @property {Float64Array} start (S,) ns after the tile's beginning
 * @property {Float64Array} end (S,)
 * @property {Int32Array} node (S,)
 * @property {Int32Array} name (S,) index into names
 * @property {Float64Array} bytes (S,)
 * @property {Float64Array} waits (S,) ns from its start until all that take part had begun
 * @property {Uint8Array} category (S,)
 * @property {Int32Array} binned (D,) which of the rows come as bins
 * @property {Int32Array} begun (D, bins)
 * @property {Int32Array} strip (C,) index into binned
 * @property {Uint8Array} strip_category (C,) a category, or the waiting of one
 * @property {Uint8Array} fraction (C, bins) 255 is busy all the time
 * @property {string[]} names
 * @property {Int32Array} [call] (K,) the spans that are of recorded calls, rising; missing where none can be
 * @property {Float64Array} [call_start] (K,) when the call began, ns after the tile's beginning
 * @property {Float64Array} [call_end] (K,) when it returned
 * @property {Float64Array} [call_own] (K,) ns of that which were its own
 * @property {Int32Array} [call_pieces] (K,) in how many spans it is drawn
 */

/**
 * What one answer brought, and the pictures that were made of it.
 * @typedef {object} Batch
 * @property {number} level
 * @property {number} begin ns
 * @property {number[]} rows
 * @property {TileData} data
 * @property {number[][]} strips of each binned row
 * @property {number} size bytes
 * @property {number} used clock of the last frame that drew it
 * @property {Picture | null} bins
 * @property {Picture | null} thin
 */

/** @typedef {{canvas: HTMLCanvasElement, look: object}} Picture */

/**
 * One row of a batch: its spans from low to high, or its line of bins; -1 where spans come one by one.
 * @typedef {{batch: Batch, at: number, low: number, high: number, binned: number}} Tile
 */

/** @typedef {{level: number, tile: number, rows: string, ghost: boolean}} Wish */

const AT_ONCE = 6; /* requests under way */
const ROWS_AT_MOST = 512; /* in a request */
const PATIENCE_MS = 2000; /* before a tile that could not be read is asked for again */

/**
 * Rows as an address names them: [0, 1, 2, 5] is "0-2,5".
 * @param {number[]} rows rising
 */
export function joinRows(rows) {
  /** @type {[number, number][]} */
  const parts = [];
  for (const row of rows) {
    const last = parts.at(-1);
    if (last && last[1] === row - 1) last[1] = row;
    else parts.push([row, row]);
  }
  return parts.map(([first, last]) => (first === last ? String(first) : first + "-" + last)).join(",");
}

/** Tiles of one run, and of the ghost in its rows. */
export class Tiles {
  /**
   * @param {Chart} chart
   * @param {number} budget bytes to keep
   * @param {(wish: Wish) => Promise<{data: TileData, size: number}>} read
   * @param {() => void} onNews called when tiles came
   * @param {(error: unknown) => void} onError
   */
  constructor(chart, budget, read, onNews, onError) {
    this.chart = chart;
    this.budget = budget;
    this.read = read;
    this.onNews = onNews;
    this.onError = onError;
    /** @type {Map<number, Map<number, Tile>>} by tile, then by row */
    this.places = new Map();
    /** @type {Set<Batch>} */
    this.batches = new Set();
    /** @type {Set<string>} */
    this.asked = new Set();
    this.kept = 0;
    this.running = 0;
    this.clock = 0;
    /** Answers to what was asked for in an earlier epoch are not kept. */
    this.ghostEpoch = 0;
  }

  /** How many rows of tiles are kept. */
  get size() {
    let count = 0;
    for (const rows of this.places.values()) count += rows.size;
    return count;
  }

  /** @param {number} level @param {number} index @param {number} row */
  find(level, index, row) {
    const tile = this.places.get(keyOf(level, index))?.get(row);
    if (tile) tile.batch.used = this.clock;
    return tile;
  }

  /**
   * Ask for what of some rows is not there yet, as far as requests are free.
   * @param {number} level @param {number} index @param {number[]} rows
   */
  want(level, index, rows) {
    if (index < 0 || index * this.chart.tileSpan(level) > this.chart.span) return;
    const kept = this.places.get(keyOf(level, index));
    const left = rows.filter((row) => !kept?.has(row) && !this.asked.has(nameOf(level, index, row)));
    if (!left.length || this.running >= AT_ONCE) return;
    const some = left.slice(0, ROWS_AT_MOST).sort((a, b) => a - b), { count } = this.chart;
    const own = some.filter((row) => row < count), ghosts = some.filter((row) => row >= count);
    if (own.length) this.#request(level, index, own, false);
    if (ghosts.length) this.#request(level, index, ghosts, true);
  }

  /** @param {number} level @param {number} index @param {number[]} rows @param {boolean} ghost */
  async #request(level, index, rows, ghost) {
    const names = rows.map((row) => nameOf(level, index, row)), epoch = this.ghostEpoch;
    const numbers = ghost ? rows.map((row) => row - this.chart.count) : rows;
    for (const name of names) this.asked.add(name);
    this.running++;
    try {
      const { data, size } = await this.read({ level, tile: index, rows: joinRows(numbers), ghost });
      if (!ghost || epoch === this.ghostEpoch) this.keep(level, index, rows, data, size);
    } catch (error) {
      this.onError(error);
      await new Promise((again) => setTimeout(again, PATIENCE_MS));
    }
    this.running--;
    for (const name of names) this.asked.delete(name);
    this.onNews();
  }

  /**
   * @param {number} level @param {number} index @param {number[]} rows @param {TileData} data
   * @param {number} size bytes
   */
  keep(level, index, rows, data, size) {
    const begin = index * this.chart.tileSpan(level), key = keyOf(level, index);
    /** @type {Batch} */
    const batch = { level, begin, rows, data, strips: [], size, used: this.clock, bins: null, thin: null };
    /** @type {Map<number, number>} */
    const lines = new Map();
    data.binned.forEach((at, line) => {
      lines.set(at, line);
      batch.strips.push([]);
    });
    data.strip.forEach((line, strip) => batch.strips[line].push(strip));
    let place = this.places.get(key);
    if (!place) this.places.set(key, (place = new Map()));
    for (const [at, row] of rows.entries()) {
      place.set(row, { batch, at, low: data.bars[at], high: data.bars[at + 1], binned: lines.get(at) ?? -1 });
    }
    this.batches.add(batch);
    this.kept += size;
    if (this.kept > this.budget) this.#forget();
  }

  /** Drop what was drawn longest ago; the tile of everything stays. */
  #forget() {
    const before = this.clock - 1, { top } = this.chart;
    const old = [...this.batches].filter(({ used, level }) => used < before && level < top);
    old.sort((a, b) => a.used - b.used);
    for (const batch of old) {
      if (this.kept <= this.budget * 0.7) return;
      this.#drop(batch);
    }
  }

  /** Drop the tiles of the ghost: another run stands in its place, or none. */
  forgetGhost() {
    this.ghostEpoch++;
    for (const batch of this.batches) if (batch.rows[0] >= this.chart.count) this.#drop(batch);
    this.asked.clear();
  }

  /** @param {Batch} batch */
  #drop(batch) {
    const key = keyOf(batch.level, Math.round(batch.begin / this.chart.tileSpan(batch.level)));
    const place = this.places.get(key);
    for (const row of batch.rows) if (place?.get(row)?.batch === batch) place.delete(row);
    if (place && !place.size) this.places.delete(key);
    this.batches.delete(batch);
    this.kept -= batch.size;
  }
}

/**
 * What a tile says of the call that a bar is of; null where it is of none.
 * @param {TileData} data @param {number} bar
 */
export function readCall(data, bar) {
  const { call, call_start: start, call_end: end, call_own: own, call_pieces: pieces } = data;
  if (!call || !start || !end || !own || !pieces) return null;
  let low = 0, high = call.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (call[middle] < bar) low = middle + 1;
    else high = middle;
  }
  if (call[low] !== bar) return null;
  return { start: start[low], end: end[low], own: own[low], count: pieces[low] };
}

/** Levels are below 64. @param {number} level @param {number} index */
function keyOf(level, index) {
  return index * 64 + level;
}

/** @param {number} level @param {number} index @param {number} row */
function nameOf(level, index, row) {
  return level + "/" + index + "/" + row;
}
