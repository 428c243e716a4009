/* Counter rows under the lanes: what all ranks have under way, on the same time axis. */

import { Surface } from "../base/canvas.mjs";
import { complain } from "../base/view.mjs";
import { byId, element, setVisible } from "../base/dom.mjs";
import { formatBytes, formatCount } from "../base/format.mjs";
import { openTable } from "../base/export.mjs";
import { GUTTER } from "./lanes.mjs";
import { saveAddress } from "./save.mjs";
import { explain } from "./server.mjs";
import { unpack } from "../base/packed.mjs";

/** @import { Pen } from "../base/canvas.mjs" */
/** @import { Scene } from "./scene.mjs" */
/** @typedef {{title: string, unit: string, most: number, about: string}} Series */
/** @typedef {{series: Series[], bins: number, mean: Float64Array, peak: Float64Array}} CounterTile */

const HIGH = 30; /* pixels of a row */
const ROOM = HIGH - 7;
const KEPT = 400; /* tiles */
const STEP_MS = 45; /* between frames in motion, when the lanes come first */

/** @param {string} unit @param {number} value */
export function formatCounter(unit, value) {
  if (unit === "share") return (100 * value).toFixed(value < 0.0995 ? 2 : value < 0.9995 ? 1 : 0) + " %";
  if (unit === "bytes") return formatBytes(Math.round(value));
  return value >= 100 || Number.isInteger(value) ? formatCount(Math.round(value)) : value.toPrecision(3);
}

/**
 * Shares are drawn to a round number, so that runs can be compared.
 * @param {{unit: string, most: number}} series and the most it reaches where it is shown
 */
export function scaleOf({ unit, most }) {
  if (unit !== "share") return most || 1;
  return [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1].find((round) => round >= most) ?? most;
}

export class Counters {
  /** @param {Scene} scene */
  constructor(scene) {
    this.scene = scene;
    /** @type {Map<string, CounterTile>} */
    this.tiles = new Map();
    /** @type {Set<string>} */
    this.asked = new Set();
    /** @type {Series[] | null} Null until the first tile came. */
    this.series = null;
    this.hasFailed = false;
    this.isShown = true;
    this.drawn = ""; /* what was drawn last, to skip frames without a change */
    this.drawnAt = 0;
    this.isWaiting = false;
    /** @type {Surface | null} */
    this.surface = null;
    byId("timeline-counters")?.replaceChildren();
    const toggle = () => scene.change({ counters: this.isShown ? "off" : null });
    this.keys = { k: toggle };
    this.buttons = {
      "timeline-counts": toggle,
      "timeline-counters-csv": () => this.#save(),
      "timeline-counters-table": () => this.#showTable(),
    };
  }

  /** @param {import("../base/view.mjs").View} view */
  apply(view) {
    this.isShown = view.counters !== "off";
    byId("timeline-counts")?.setAttribute("aria-pressed", String(this.isShown));
    setVisible(byId("timeline-counters"), this.isShown);
    this.drawn = "";
  }

  /** @param {number} level @param {number} index */
  #ask(level, index) {
    const key = level + "/" + index;
    if (this.asked.has(key) || this.hasFailed || index < 0) return;
    this.asked.add(key);
    this.scene.askBytes("/counters", { level, tile: index }).then((buffer) => {
      /** @type {CounterTile} */
      const tile = unpack(buffer);
      if (this.tiles.size > KEPT) {
        this.tiles.clear();
        this.asked.clear();
      }
      this.tiles.set(key, tile);
      this.series = tile.series;
      this.drawn = "";
      this.scene.draw();
    }, () => {
      this.hasFailed = true;
    });
  }

  /** @param {number} level @param {number} index */
  #find(level, index) {
    return this.tiles.get(level + "/" + index);
  }

  /** Draw what the frame shows, once the lanes have all they need. @param {boolean} isComplete */
  afterFrame(isComplete) {
    const { scene } = this, { chart, axis, look } = scene, box = byId("timeline-counters");
    if (!box || !this.isShown) return;
    const level = scene.timeline.pickLevel(look), span = chart.tileSpan(level);
    const low = Math.max(0, Math.floor(axis.shown.from / span));
    const last = Math.max(low, Math.floor(Math.min(axis.shown.to, chart.own) / span));
    if (isComplete) {
      if (!this.series) this.#ask(chart.top, 0);
      for (let index = low; index <= last; index++) this.#ask(level, index);
    }
    if (!this.series) return;
    const surface = this.#fit(box, this.series), isMoving = scene.hands.isDragging();
    const at = scene.aim !== null && !isMoving ? axis.ns(scene.aim) : null;
    const now = [axis.shown.from, axis.shown.to, surface.wide, look.name, at, this.tiles.size].join();
    if (now === this.drawn) return;
    if ((isMoving || scene.motion.glide) && performance.now() - this.drawnAt < STEP_MS) {
      return scene.later("counters", STEP_MS + 15, () => this.follow());
    }
    this.drawnAt = performance.now();
    this.drawn = now;
    this.#draw(surface, this.series, level, low, last, at);
  }

  /** The pointer has moved over the lanes, and nothing else has. */
  follow() {
    if (this.isWaiting || !this.series || !this.isShown) return;
    this.isWaiting = true;
    window.requestAnimationFrame(() => {
      this.isWaiting = false;
      if (this.scene.isLive()) this.afterFrame(false);
    });
  }

  /** @param {HTMLElement} box @param {Series[]} series */
  #fit(box, series) {
    const { scene } = this;
    if (!this.surface) {
      const titles = series.map(({ title }) => title).join(", ");
      const canvas = element("canvas", { role: "img", "aria-label": "Counters over time: " + titles });
      const surface = new Surface(canvas, () => this.follow());
      this.surface = surface;
      canvas.addEventListener("pointermove", (event) => {
        const [x, y] = surface.locate(event);
        scene.pointer = [x, -1];
        this.#tell(x, y);
        scene.draw();
      });
      canvas.addEventListener("pointerleave", () => {
        scene.pointer = null;
        scene.words.repeat();
        scene.draw();
      });
      box.replaceChildren(canvas);
    }
    this.surface.fit(scene.lanes.size.wide, HIGH * series.length);
    return this.surface;
  }

  /**
   * Mean and peak of a row at a moment.
   * @param {number} row
   * @param {number} at ns
   * @returns {[number, number] | null}
   */
  #valueAt(row, at) {
    const { chart, timeline, look } = this.scene, level = timeline.pickLevel(look);
    const span = chart.tileSpan(level);
    const tile = this.#find(level, Math.floor(at / span));
    if (at < 0 || at > chart.own || !tile) return null;
    const bin = row * tile.bins + Math.min(tile.bins - 1, Math.floor((at % span) / 2 ** level));
    return [tile.mean[bin], tile.peak[bin]];
  }

  /** @param {number} x @param {number} y */
  #tell(x, y) {
    const row = Math.floor(y / HIGH), series = this.series?.[row], at = this.scene.axis.ns(x);
    const value = this.#valueAt(row, at);
    if (!series || !value) return;
    const [mean, peak] = value.map((number) => formatCounter(series.unit, number));
    const figures = mean + " on average, at most " + peak;
    this.scene.say([series.title, this.scene.formatMoment(at), figures, series.about].join(" · "));
  }

  /**
   * @param {Surface} surface @param {Series[]} all @param {number} level @param {number} low
   * @param {number} last
   * @param {number | null} at ns under the pointer
   */
  #draw({ pen, wide, high }, all, level, low, last, at) {
    const { look, axis, chart } = this.scene;
    pen.fillStyle = look.bg;
    pen.fillRect(0, 0, wide, high);
    const reached = all.map((series, row) => this.#mostShown(series, row, level, low, last));
    for (const [row, series] of all.entries()) {
      const floor = (row + 1) * HIGH - 2, most = scaleOf({ unit: series.unit, most: reached[row] });
      for (let index = low; index <= last; index++) {
        const from = index * chart.tileSpan(level), to = from + chart.tileSpan(level);
        const tile = this.#find(level, index), whole = tile ? undefined : this.#find(chart.top, 0);
        if (tile) this.#drawBins(pen, tile, row, from, 2 ** level, floor, most, from, to);
        else if (whole) this.#drawBins(pen, whole, row, 0, 2 ** chart.top, floor, most, from, to);
      }
      if (series.unit !== "share" || most <= 1) continue;
      pen.fillStyle = look.dim;
      pen.fillRect(GUTTER, floor - ROOM / most, wide - GUTTER, 0.7);
    }
    pen.fillStyle = look.panel;
    pen.fillRect(0, 0, GUTTER, high);
    pen.textBaseline = "middle";
    pen.font = look.font;
    for (const [row, { title, unit }] of all.entries()) {
      const now = at === null ? null : this.#valueAt(row, at);
      pen.fillStyle = look.text;
      pen.fillText(title, 12, row * HIGH + 10);
      pen.fillStyle = look.dim;
      const words = now ? formatCounter(unit, now[0]) : "at most " + formatCounter(unit, reached[row]);
      pen.fillText(words, 12, row * HIGH + 22);
      pen.fillStyle = look.border;
      pen.fillRect(0, row * HIGH, wide, 1);
    }
    pen.fillRect(GUTTER - 1, 0, 1, high);
    if (at === null) return;
    pen.fillStyle = look.text;
    pen.globalAlpha = 0.5;
    pen.fillRect(Math.round(axis.x(at)), 0, 1, high);
    pen.globalAlpha = 1;
  }

  /**
   * The most a row reaches in the window that is shown: rows are as high as what is seen of them.
   * @param {Series} series @param {number} row @param {number} level @param {number} low @param {number} last
   */
  #mostShown(series, row, level, low, last) {
    const { chart, axis: { shown } } = this.scene;
    let most = 0;
    for (let index = low; index <= last; index++) {
      const tile = this.#find(level, index), begin = index * chart.tileSpan(level), width = 2 ** level;
      if (!tile) return series.most;
      const first = Math.max(0, Math.floor((shown.from - begin) / width));
      const end = Math.min(tile.bins, Math.ceil((shown.to - begin) / width));
      for (let bin = first; bin < end; bin++) most = Math.max(most, tile.peak[row * tile.bins + bin]);
    }
    return most;
  }

  /**
   * The mean as an area, the peak as a line above it.
   * @param {Pen} pen @param {CounterTile} tile @param {number} row
   * @param {number} begin of the tile, in ns
   * @param {number} width of a bin, in ns
   * @param {number} floor in pixels
   * @param {number} most
   * @param {number} from ns
   * @param {number} to ns
   */
  #drawBins(pen, tile, row, begin, width, floor, most, from, to) {
    const { axis, look } = this.scene, { mean, peak, bins } = tile;
    const first = Math.max(0, Math.floor((Math.max(from, axis.shown.from) - begin) / width));
    const last = Math.min(bins, Math.ceil((Math.min(to, axis.shown.to) - begin) / width));
    /* Whole pixels: thousands of these are drawn at every step of a pan. */
    const grain = look.ratio, wide = width / axis.nsPerPixel, x0 = axis.x(begin);
    /** @param {Float64Array} values @param {number} alpha @param {boolean} isArea */
    function drawColumns(values, alpha, isArea) {
      pen.globalAlpha = alpha;
      for (let bin = first; bin < last; bin++) {
        const high = (values[row * bins + bin] / most) * ROOM;
        if (!high) continue;
        const left = Math.round((x0 + bin * wide) * grain);
        const right = Math.round((x0 + (bin + 1) * wide) * grain);
        const y = floor - (isArea ? high : Math.max(high, 0.7));
        if (right > left) pen.fillRect(left / grain, y, (right - left) / grain, isArea ? high : 1);
      }
    }
    pen.fillStyle = look.text;
    drawColumns(mean, 0.42, true);
    drawColumns(peak, 0.85, false);
    pen.globalAlpha = 1;
  }

  /** The window that is marked, else the one in sight. */
  #query() {
    const { marked, axis: { shown }, chart } = this.scene;
    const inSight = [shown.from, Math.min(shown.to, chart.own)];
    const [low, high] = marked && marked[1] > marked[0] ? marked : inSight;
    const from = Math.max(0, Math.floor(low));
    return { from, to: Math.max(from + 1, Math.ceil(high)) };
  }

  #save() {
    const { chart, timeline } = this.scene;
    saveAddress(timeline.address("/counters/course.csv", this.#query()), "counters-" + chart.job + ".csv");
  }

  #showTable() {
    const { chart, marked } = this.scene;
    const title = "Counters in " + (marked ? "the marked window" : "the visible window");
    this.scene.askJson("/counters/window", this.#query()).then(
      (table) => openTable({ name: "counters-" + chart.job, title, table: JSON.stringify(table) }),
      (error) => complain(explain(error)),
    );
  }
}
