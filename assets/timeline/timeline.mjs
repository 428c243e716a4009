/* A run drawn on a time axis: its tiles, its bars, and what lies under a point. Several may share an axis. */

import { formatRgb } from "../base/canvas.mjs";
import { unpack } from "../base/packed.mjs";
import { CATEGORIES, GAP, HOST, RECEIVE, SEND, SHADES, WAITING } from "./chart.mjs";
import { LINES, paintBins, paintThin } from "./pictures.mjs";
import { ask, timelineAddress } from "./server.mjs";
import { cutStart, functionName, textWidth } from "./text.mjs";
import { Tiles, readCall } from "./tiles.mjs";

/** @import { Pen } from "../base/canvas.mjs" */
/** @import { Axis } from "./axis.mjs" */
/** @import { Chart } from "./chart.mjs" */
/** @import { Look } from "./look.mjs" */
/** @import { Batch, Tile } from "./tiles.mjs" */

/**
 * A bar from a tile or from the server; the server gives `node` and `type`, a tile the category.
 * @typedef {object} Bar
 * @property {number} rank
 * @property {number} row
 * @property {number} index row of the rank's graph
 * @property {number} start ns
 * @property {number} end ns
 * @property {string} name
 * @property {number} bytes
 * @property {number} [waits] ns from its start until all that take part had begun
 * @property {string} [node] id
 * @property {string} [type]
 * @property {number} [category]
 * @property {boolean} [ghost] of the other run
 * @property {number} [own] ns: of a recorded call what of start to end was its own; missing where that is all
 * @property {number} [count] in how many bars it is drawn
 * @property {[number, number, number][]} [pieces] row, start and end of these, as the server knows them
 */

/**
 * A bin of a row that is too full for bars: what kept it busy, and how many nodes begin in it.
 * @typedef {{row: number, at: number, from: number, to: number, shares: [string, number][], begun: number,
 *   ghost: boolean}} Bin
 */

/**
 * Where a row stands; `thin` rows are drawn as a line of pixels.
 * @typedef {{y: number, height: number, thin: boolean}} Place
 */

const GHOSTLY = 0.5; /* alpha of the other run */
const FADED = 30; /* from this code on bars are a ghost's */
const ITEMS = 7; /* numbers of a bar to be filled: code, left, right, y, height, name, where waiting ends */
const LEAST_WAIT = 1.5; /* pixels of waiting that are drawn */
const FINER = 3; /* levels below that are tried while a tile is missing */
const LABEL_FROM = 26; /* pixels of a bar that has a name in it: three letters at least */
/* Pixels behind the waiting of a bar from which its name stands there. With fewer, some five letters, it
   stands over the hatch, where it has all of the bar: so this is more than LABEL_FROM. */
const BEHIND_FROM = 40;

export class Timeline {
  /**
   * @param {Chart} chart @param {Axis} axis @param {object} hooks
   * @param {number} hooks.budget bytes of tiles to keep
   * @param {() => void} hooks.draw called when tiles came
   * @param {(error: unknown) => void} hooks.fail called when they could not be read
   */
  constructor(chart, axis, { budget, draw, fail }) {
    this.chart = chart;
    this.axis = axis;
    /** ns of this run at the axis' beginning. */
    this.offset = 0;
    /** The other run that is drawn in the same rows: its id, "recorded", or "" for none. */
    this.ghost = "";
    this.tiles = new Tiles(chart, budget, (wish) => this.#read(wish), draw, fail);
    this.counts = { drawn: 0, binned: 0, missing: 0 };
    /** @type {Map<number, number[]>} Rows that lacked their tile in this frame, by tile. */
    this.missing = new Map();
    this.level = 0;
    this.from = 0;
    this.to = 1;
    this.low = 0;
    this.last = 0;
    /* Bars of a frame. The arrays are used again and again: panning shall leave no garbage behind. */
    /** @type {number[]} */
    this.bars = [];
    /** @type {Batch[]} */
    this.owners = [];
    /** @type {number[][]} */
    this.buckets = [];
  }

  /**
   * Where the studio answers questions about this run.
   * @param {string} path @param {import("./server.mjs").Query} [query]
   */
  address(path, query) {
    return timelineAddress(this.chart.job, this.chart.run, path, query);
  }

  /** @param {import("./tiles.mjs").Wish} wish */
  async #read({ level, tile, rows, ghost }) {
    const query = { level, tile, rows, ghost: ghost ? this.ghost : undefined };
    const buffer = await (await ask(this.address("/tile", query))).arrayBuffer();
    /** @type {import("./tiles.mjs").TileData} */
    const data = unpack(buffer);
    return { data, size: buffer.byteLength };
  }

  /** @param {number} ns of this run */
  x(ns) {
    return this.axis.x(ns - this.offset);
  }

  /** The level whose tiles are drawn now. @param {Look} look */
  pickLevel(look) {
    return this.chart.pickLevel(this.axis.nsPerPixel / look.ratio);
  }

  /** Begin a frame. @param {Look} look */
  begin(look) {
    this.look = look;
    this.tiles.clock++;
    this.from = this.axis.shown.from + this.offset;
    this.to = this.axis.shown.to + this.offset;
    this.level = this.pickLevel(look);
    const span = this.chart.tileSpan(this.level);
    this.low = Math.max(0, Math.floor(this.from / span));
    this.last = Math.max(this.low, Math.floor(Math.min(this.to, this.chart.span) / span));
    this.missing.clear();
    this.counts.drawn = this.counts.binned = this.counts.missing = 0;
  }

  /** Ask for what was missing in this frame. */
  fetchMissing() {
    for (const [index, rows] of this.missing) this.tiles.want(this.level, index, rows);
  }

  /** Draw a row; bars wait for fillBars(). @param {Pen} pen @param {number} row @param {Place} place */
  drawRow(pen, row, place) {
    const { level, low, last } = this, span = this.chart.tileSpan(level);
    /* A bar that reaches into the next tile is drawn once, by the tile it begins in, where both have bars. */
    let ahead = this.tiles.find(level, low, row), follows = false;
    for (let index = low; index <= last; index++) {
      const tile = ahead;
      ahead = index < last ? this.tiles.find(level, index + 1, row) : undefined;
      if (tile) {
        const goesOn = tile.binned < 0 && (index === last || Boolean(ahead && ahead.binned < 0));
        this.#drawTile(pen, tile, row, place, index * span, goesOn ? Infinity : (index + 1) * span, follows);
        follows = tile.binned < 0 && goesOn;
      } else {
        const rows = this.missing.get(index);
        if (rows) rows.push(row);
        else this.missing.set(index, [row]);
        this.counts.missing++;
        this.#drawInstead(pen, index, row, place);
        follows = false;
      }
    }
  }

  /**
   * Draw a tile that has not come yet: as a coarser one has it, else as finer ones do.
   * @param {Pen} pen @param {number} index @param {number} row @param {Place} place
   */
  #drawInstead(pen, index, row, place) {
    const { chart, tiles, level } = this, from = index * chart.tileSpan(level);
    const to = from + chart.tileSpan(level);
    for (let up = level + 1; up <= chart.top; up++) {
      const tile = tiles.find(up, Math.floor(index / 2 ** (up - level)), row);
      if (tile) return this.#drawTile(pen, tile, row, place, from, to, false);
    }
    for (let down = level - 1; down >= Math.max(0, level - FINER); down--) {
      const parts = 2 ** (level - down), span = chart.tileSpan(down);
      let some = false;
      for (let part = index * parts; part < (index + 1) * parts; part++) {
        const tile = tiles.find(down, part, row);
        if (!tile) continue;
        some = true;
        this.#drawTile(pen, tile, row, place, part * span, (part + 1) * span, false);
      }
      if (some) return;
    }
  }

  /**
   * Draw what a tile says of a row between two moments. Where it `follows`, the one before has drawn some.
   * @param {Pen} pen @param {Tile} tile @param {number} row @param {Place} place @param {number} from
   * @param {number} to @param {boolean} follows
   */
  #drawTile(pen, tile, row, place, from, to, follows) {
    if (tile.binned >= 0 || place.thin) return this.#drawPicture(pen, tile, row, place, from, to);
    const { data, begin } = tile.batch, look = /** @type {Look} */ (this.look);
    const faded = row >= this.chart.count ? FADED : 0, shade = this.chart.shade[row];
    for (let bar = tile.low; bar < tile.high; bar++) {
      const category = data.category[bar];
      if (look.hidden[category] || (follows && data.start[bar] < 0)) continue;
      const start = Math.max(begin + data.start[bar], from), end = Math.min(begin + data.end[bar], to);
      if (end < this.from || start > this.to || end < start) continue;
      const code = faded + category * SHADES.length + shade;
      const begun = Math.min(Math.max(begin + data.start[bar] + data.waits[bar], start), end);
      const box = [this.x(start), this.x(end), place.y, place.height];
      this.bars.push(code, box[0], box[1], box[2], box[3], data.name[bar], this.x(begun));
      this.owners.push(tile.batch);
    }
  }

  /**
   * Draw a row of bins, or of bars too thin to be drawn one by one.
   * @param {Pen} pen @param {Tile} tile @param {number} row @param {Place} place @param {number} from
   * @param {number} to
   */
  #drawPicture(pen, tile, row, { y, height }, from, to) {
    const { batch } = tile, isBinned = tile.binned >= 0, look = /** @type {Look} */ (this.look);
    if (!isBinned && tile.low === tile.high) return;
    const image = isBinned ? paintBins(batch, this.chart, look) : paintThin(batch, this.chart, look);
    const span = this.chart.tileSpan(batch.level), bin = span / image.width;
    const start = Math.max(from, batch.begin, this.from), end = Math.min(to, batch.begin + span, this.to);
    const first = Math.max(0, Math.floor((start - batch.begin) / bin));
    const last = Math.min(image.width, Math.ceil((end - batch.begin) / bin));
    if (last <= first) return;
    const left = this.x(batch.begin + first * bin), right = this.x(batch.begin + last * bin);
    if (isBinned) this.counts.binned++;
    else this.counts.drawn += tile.high - tile.low;
    pen.globalAlpha = row >= this.chart.count ? GHOSTLY : 1;
    const line = (isBinned ? tile.binned : tile.at) * LINES;
    pen.drawImage(image, first, line, last - first, LINES, left, y, right - left, height);
    pen.globalAlpha = 1;
  }

  /** Fill all bars that wait, colour by colour, then write their names. @param {Pen} pen */
  fillBars(pen) {
    const { bars, buckets, axis } = this, look = /** @type {Look} */ (this.look);
    const least = axis.gutter - 4, most = axis.gutter + axis.width + 4, hair = 1 / look.ratio;
    for (let at = 0; at < bars.length; at += ITEMS) (buckets[bars[at]] ??= []).push(at);
    this.counts.drawn += this.owners.length;
    /** @type {number[]} */
    const texts = [], /** @type {number[]} */ waits = [];
    buckets.forEach((places, code) => {
      if (!places.length) return;
      const isGhost = code >= FADED, plain = code % FADED;
      const category = Math.floor(plain / SHADES.length), shade = plain % SHADES.length;
      pen.globalAlpha = isGhost ? GHOSTLY : 1;
      pen.fillStyle = look.fills[category][shade];
      for (const at of places) {
        const isBubble = isMessage(category) && bars[at + 6] - bars[at + 1] > LEAST_WAIT;
        const from = Math.max(bars[at + (isBubble ? 6 : 1)], least), to = Math.min(bars[at + 2], most);
        let wide = to - from, y = bars[at + 3], height = bars[at + 4];
        if (category === HOST || category === GAP) y += height /= 2;
        if (wide > 0 || !isBubble) pen.fillRect(from, y, Math.max(wide - (wide > 4 ? 1 : 0), hair), height);
        if (isBubble) wide = to - Math.max(bars[at + 1], least);
        if (bars[at + 6] - bars[at + 1] > LEAST_WAIT) waits.push(at, category);
        if (wide > LABEL_FROM && height > 8 && !isGhost && category !== GAP) texts.push(at, category, shade);
      }
      places.length = 0;
    });
    pen.globalAlpha = 1;
    for (let wait = 0; wait < waits.length; wait += 2) {
      const at = waits[wait], from = Math.max(bars[at + 1], least), to = Math.min(bars[at + 6], most);
      const isBubble = isMessage(waits[wait + 1]), box = { x: from, y: bars[at + 3], wide: to - from };
      if (to > from) drawWait(pen, look, isBubble, { ...box, high: bars[at + 4] });
    }
    pen.font = look.font;
    pen.textBaseline = "middle";
    for (let text = 0; text < texts.length; text += 3) {
      this.#label(pen, look, texts[text], texts[text + 1], texts[text + 2]);
    }
    bars.length = this.owners.length = 0;
  }

  /** @param {Pen} pen @param {Look} look @param {number} at @param {number} category @param {number} shade */
  #label(pen, look, at, category, shade) {
    const { bars, axis: { gutter, width } } = this, y = bars[at + 3], height = bars[at + 4];
    const left = Math.max(bars[at + 1], gutter), right = Math.min(bars[at + 2], gutter + width);
    const name = this.owners[at / ITEMS].data.names[bars[at + 5]];
    const sign = category === SEND ? "→ " : category === RECEIVE ? "← " : "";
    const isBubble = isMessage(category) && bars[at + 6] - left > LEAST_WAIT;
    /* Behind the waiting, where there is room: its hatch is the only sign of it. */
    const hasRoom = !isMessage(category) && right - bars[at + 6] > BEHIND_FROM;
    const begin = hasRoom ? Math.max(left, bars[at + 6]) : left;
    const text = cutStart(pen, sign + functionName(name), right - begin - 9);
    if (!text) return;
    if (isBubble) {
      pen.fillStyle = look.bg;
      pen.fillRect(left + 2, y + 2, Math.min(textWidth(pen, text) + 4, right - left - 4), height - 4);
      pen.fillStyle = look.dim;
      pen.fillText(text, left + 4, y + height / 2 + 0.5);
      return;
    }
    if (isMessage(category) || bars[at + 6] - begin > LEAST_WAIT) {
      pen.fillStyle = formatRgb(look.colours[category][shade]);
      pen.fillRect(left + 2, y + 2, Math.min(textWidth(pen, text) + 4, right - left - 4), height - 4);
    }
    pen.fillStyle = look.inks[category][shade];
    pen.fillText(text, begin + 4, y + height / 2 + 0.5);
  }

  /**
   * What of a row is at a moment of this run: the bar there or at most three pixels away, or the bin.
   * @param {number} row
   * @param {number} at ns
   * @returns {{bar: Bar, bin?: undefined} | {bin: Bin, bar?: undefined} | null}
   */
  hit(row, at) {
    const { chart, look } = this;
    if (at < 0 || !look) return null;
    const level = this.pickLevel(look), index = Math.floor(at / chart.tileSpan(level));
    const tile = this.tiles.find(level, index, row);
    if (!tile) return null;
    if (tile.binned >= 0) return { bin: this.#readBin(tile, row, at) };
    const { data, begin } = tile.batch, ghost = row >= chart.count, own = ghost ? row - chart.count : row;
    let best = -1, nearest = this.axis.nsPerPixel * 3;
    for (let bar = tile.low; bar < tile.high; bar++) {
      if (look.hidden[data.category[bar]]) continue;
      const start = begin + data.start[bar], end = begin + data.end[bar];
      const away = at < start ? start - at : at >= end ? at - end : -1;
      if (away < nearest) [nearest, best] = [away, bar];
    }
    if (best < 0) return null;
    const call = readCall(data, best);
    const { start, end } = call ?? { start: data.start[best], end: data.end[best] };
    return { bar: {
      rank: chart.rankOf(own), row: own, start: begin + start, end: begin + end,
      name: data.names[data.name[best]], bytes: data.bytes[best], index: data.node[best],
      waits: data.waits[best], category: data.category[best], ghost,
      ...(call ? { own: call.own, count: call.count } : {}),
    } };
  }

  /**
   * The bars of a node that the tiles of this frame have, by time.
   * @param {Bar} bar one of them
   */
  findBars({ rank, row, index }) {
    /** @type {{rank: number, row: number, start: number, end: number}[]} */
    const found = [];
    for (let place = this.low; place <= this.last; place++) {
      const tile = this.tiles.find(this.level, place, row);
      if (!tile || tile.binned >= 0) continue;
      const { data, begin } = tile.batch;
      for (let bar = tile.low; bar < tile.high; bar++) {
        if (data.node[bar] !== index) continue;
        found.push({ rank, row, start: begin + data.start[bar], end: begin + data.end[bar] });
      }
    }
    return found;
  }

  /**
   * @param {Tile} tile @param {number} row
   * @param {number} at ns
   * @returns {Bin}
   */
  #readBin(tile, row, at) {
    const { data, begin, strips, level } = tile.batch, { bins, count } = this.chart, size = 2 ** level;
    const bin = Math.min(bins - 1, Math.floor((at - begin) / size)), from = begin + bin * size;
    /** @type {[string, number][]} */
    const shares = strips[tile.binned].map((strip) => [
      nameStrip(data.strip_category[strip]), data.fraction[strip * bins + bin] / 255,
    ]);
    return {
      row: row >= count ? row - count : row, ghost: row >= count, at, from, to: from + size,
      shares: shares.filter(([, share]) => share), begun: data.begun[tile.binned * bins + bin],
    };
  }
}

/** What a strip of bins is called. @param {number} category */
function nameStrip(category) {
  if (category < WAITING) return CATEGORIES[category];
  return isMessage(category - WAITING) ? "bubble" : "of it waiting";
}

/** @param {number} category */
function isMessage(category) {
  return category === SEND || category === RECEIVE;
}

/**
 * The part of a bar in which others had not begun: hatched; that of a message is idle, so it has no fill.
 * @param {Pen} pen @param {Look} look @param {boolean} isBubble
 * @param {{x: number, y: number, wide: number, high: number}} box
 */
function drawWait(pen, look, isBubble, { x, y, wide, high }) {
  pen.fillStyle = isBubble ? look.bubble : look.waiting;
  pen.fillRect(x, y, wide, high);
  if (!isBubble || wide < 3 || high < 8) return;
  pen.strokeStyle = look.border;
  pen.lineWidth = 1;
  pen.strokeRect(x + 0.5, y + 0.5, wide - 1, high - 1);
}
