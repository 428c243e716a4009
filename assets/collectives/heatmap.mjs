/* A heatmap on canvas: lines × columns of any size in the pixels there are, so that no cell is lost from
   sight. */

import { Surface, drawPng, makePicture, parseRgb, readScheme, readTokens } from "../base/canvas.mjs";
import { element } from "../base/dom.mjs";
import {
  drawBars, drawMarked, drawNames, drawRanks, drawRing, drawSections, measureNames,
} from "./labels.mjs";
import { binOf, binUnder, cellsIn, describeBin, formatFigure, gapOf, layOut } from "./layout.mjs";
import { paintCells } from "./pixels.mjs";
import { HeatmapPointer } from "./pointer.mjs";
import { NONE, codeValues, makeRamp, pixelToCss } from "./scale.mjs";

/** @import { Pen } from "../base/canvas.mjs" */
/** @import { Box, HeatData, Measure, Place } from "./layout.mjs" */
/** @import { Scale } from "./scale.mjs" */
/** @import { Bin, Window } from "./windows.mjs" */

/**
 * What clicks, pointing and windows do.
 * @typedef {object} Hands
 * @property {() => Measure} measure what bars show
 * @property {(bin: Bin | null) => void} point at cells, or at none
 * @property {(cell: Place) => void} choose a cell
 * @property {(bin: Bin) => void} open a bin of several cells
 * @property {(window: Window, isStep: boolean) => void} zoom to a window; no step is one of many in a row
 * @property {(data: HeatData) => Window} goal window that is asked for, which the drawing may not have yet
 */

/**
 * What is drawn.
 * @typedef {object} Shown
 * @property {HeatData} data
 * @property {Scale} scale
 * @property {Uint32Array} table pixel of each code
 * @property {Uint8Array} codes by bin
 * @property {{ narrow: boolean, lines: number, widest: number }} options of the layout
 */

const FONT_SIZE = 11.5;
const PNG_RATIO = 2;
const RAMP_STOPS = 8;

export class Heatmap {
  /** @type {Shown | null} */
  #shown = null;
  /** Cells as pixels, until data, colours or size change. @type {HTMLCanvasElement | null} */
  #picture = null;
  /** @type {Place | null} cell with the ring */
  #ringed = null;
  /** @type {Place | null} bin that is pointed at */
  #pointed = null;
  /** @type {Box | null} */
  box = null;

  /**
   * @param {HTMLElement} host
   * @param {Hands} hands
   */
  constructor(host, hands) {
    this.host = host;
    this.hands = hands;
    this.canvas = element("canvas");
    this.tip = element("div", { class: "cs-heat-tip", hidden: true, "aria-hidden": "true" });
    host.replaceChildren(this.canvas, this.tip);
    this.surface = new Surface(this.canvas, () => this.#render());
    this.pointer = new HeatmapPointer(this);
    new ResizeObserver(() => {
      this.#picture = null;
      this.draw();
    }).observe(host);
  }

  /** What is drawn. */
  get data() {
    return this.#shown?.data ?? null;
  }

  /** Draw in the next frame. */
  draw() {
    this.surface.draw();
  }

  /**
   * Draw what the server sent.
   * @param {HeatData} data
   * @param {Scale} scale
   * @param {{ narrow?: boolean, lines?: number }} [options] whether without sections and bars; lines of a
   *   heatmap beside
   */
  show(data, scale, { narrow = false, lines = 0 } = {}) {
    const stops = data.colours[data.unit === "ratio" ? "diverging" : "sequential"][readScheme()];
    this.surface.pen.font = `${FONT_SIZE}px ${readTokens("font").font}`;
    this.#shown = {
      data,
      scale,
      table: makeRamp(stops.map(parseRgb)),
      codes: codeValues(data.values, scale),
      options: { narrow, lines, widest: measureNames(this.surface.pen, data) },
    };
    this.#picture = null;
    this.#pointed = null;
    this.tip.hidden = true;
    this.#render();
  }

  /**
   * Draw a ring around a cell, or none.
   * @param {Place | null} cell
   */
  ring(cell) {
    this.#ringed = cell;
    this.draw();
  }

  /** Draw nothing. */
  wipe() {
    this.#shown = null;
    delete this.host.dataset.ready;
    delete this.host.dataset.nothing;
    this.canvas.width = 0;
  }

  /**
   * Return where on the page a cell is; null if it is not in sight.
   * @param {number} line
   * @param {number} column
   */
  pointOf(line, column) {
    const { box } = this, bin = this.data && binOf(this.data, { line, column });
    if (!bin || !box) return null;
    return this.surface.place(box.x + (bin.column + 0.5) * box.cw, box.y + (bin.line + 0.5) * box.ch);
  }

  /**
   * Return which bin is at a point of the canvas, if any.
   * @param {number} x
   * @param {number} y
   */
  binAt(x, y) {
    return this.#shown && this.box ? binUnder(this.box, x, y) : null;
  }

  /**
   * Point at a bin, or at none: its figures are shown beside the pointer.
   * @param {Place | null} bin
   * @param {number} [x]
   * @param {number} [y]
   */
  pointAt(bin, x = 0, y = 0) {
    const { data, tip } = this;
    this.tip.hidden = !bin || !data;
    if (bin && data) {
      tip.replaceChildren(...describeBin(data, bin).map((text) => element("div", {}, String(text))));
      const { clientWidth, clientHeight } = this.host;
      tip.style.left = `${Math.max(0, Math.min(x + 14, clientWidth - tip.offsetWidth - 4))}px`;
      const isBelow = y + 18 + tip.offsetHeight <= clientHeight;
      tip.style.top = `${isBelow ? y + 18 : y - tip.offsetHeight - 10}px`;
    }
    const before = this.#pointed;
    if (before === bin || (before?.line === bin?.line && before?.column === bin?.column)) return;
    this.#pointed = bin;
    this.draw();
    this.hands.point(bin && data && cellsIn(data, bin));
  }

  /* ---- drawing ---- */

  #render() {
    const shown = this.#shown, { clientWidth, clientHeight } = this.host;
    if (!shown || !clientWidth) return;
    this.box = layOut(shown.data, clientWidth, clientHeight, shown.options);
    if (this.surface.fit(clientWidth, clientHeight)) this.#picture = null;
    this.#picture ??= this.#paintCells(shown, this.box, this.surface.ratio);
    this.surface.pen.clearRect(0, 0, clientWidth, clientHeight);
    this.#paint(this.surface.pen, shown, this.box, this.#picture);
    this.host.dataset.ready = "";
  }

  /**
   * Return the cells as a picture.
   * @param {Shown} shown
   * @param {Box} box
   * @param {number} ratio pixels for one of the page
   */
  #paintCells({ data, codes, table }, { w, h, cw, ch, lines, columns }, ratio) {
    const wide = Math.max(1, Math.round(w * ratio)), high = Math.max(1, Math.round(h * ratio));
    const { canvas, pen } = makePicture(wide, high);
    const image = pen.createImageData(wide, high);
    const gap = Math.round(ratio);
    paintCells(
      { codes, lines, columns, isDiverging: data.unit === "ratio" },
      table,
      new Uint32Array(image.data.buffer),
      { wide, high, gapX: gap * gapOf(cw), gapY: gap * gapOf(ch) },
    );
    pen.putImageData(image, 0, 0);
    return canvas;
  }

  /**
   * @param {Pen} pen
   * @param {Shown} shown
   * @param {Box} box
   * @param {HTMLCanvasElement} picture of the cells
   */
  #paint(pen, { data }, box, picture) {
    const look = readTokens("text", "dim", "border", "accent", "bg", "collective", "font");
    pen.font = `${FONT_SIZE}px ${look.font}`;
    pen.textBaseline = "middle";
    pen.drawImage(picture, box.x, box.y, box.w, box.h);
    pen.strokeStyle = look.border;
    pen.lineWidth = 1;
    pen.strokeRect(box.x - 0.5, box.y - 0.5, box.w + 1, box.h + 1);
    drawRanks(pen, look, box, data, this.#ringed);
    drawNames(pen, look, box, data, this.#pointed);
    if (box.sections) drawSections(pen, look, box, data);
    if (box.strip) drawBars(pen, look, box, data, data.pairs ? "sum" : this.hands.measure());
    const ringed = this.#ringed && binOf(data, this.#ringed);
    if (ringed) drawRing(pen, look, box, ringed);
    const { marked } = this.pointer;
    if (marked) drawMarked(pen, look, marked);
  }

  /* ---- legend and pictures ---- */

  /** Return the scale with its colours and figures. */
  makeLegend() {
    if (!this.#shown) return element("span");
    const { data, scale, table } = this.#shown, { low, middle, high } = scale;
    /* The ramp shows the colours between its ends, of which the lower may lie above the scale's own: nothing
       moves less than nothing. */
    const from = Math.max(0, scale.shareOf(low)), to = Math.min(1, scale.shareOf(high));
    const stops = Array.from({ length: RAMP_STOPS + 1 }, (_, index) =>
      pixelToCss(table[Math.round((from + ((to - from) * index) / RAMP_STOPS) * (NONE - 1))]),
    );
    const ramp = element("span", { class: "cs-heat-ramp" });
    ramp.style.background = `linear-gradient(to right, ${stops.join(", ")})`;
    const ends = element("span", { class: "cs-heat-ends" });
    const write = (/** @type {number} */ value) => formatFigure(value, data.unit);
    const last = `${scale.isCutHigh ? "≥ " : ""}${write(high)}`;
    if (low === high) ends.append(element("span", {}, write(low)));
    else {
      const words = data.unit === "ratio" ? "group mean" : write(middle);
      const between = element("span", { class: "cs-heat-middle" }, words);
      const share = to > from ? (scale.shareOf(middle) - from) / (to - from) : 0.5;
      between.style.left = `${100 * Math.min(Math.max(share, 0.3), 0.7)}%`;
      const first = `${scale.isCutLow ? "≤ " : ""}${write(low)}`;
      ends.append(element("span", {}, first), between, element("span", {}, last));
    }
    return element("span", { class: "cs-heat-scale" }, ramp, ends);
  }

  /**
   * Return a function that draws all of it, at a ratio of pixels.
   * @param {number} ratio
   * @returns {(pen: Pen) => void}
   */
  #painter(ratio) {
    const shown = this.#shown, { box } = this;
    if (!shown || !box) throw new Error("there is no figure yet");
    const picture = this.#paintCells(shown, box, ratio);
    return (pen) => this.#paint(pen, shown, box, picture);
  }

  /** Return the heatmap as a PNG. */
  async toPng() {
    const paint = this.#painter(PNG_RATIO), { wide, high } = this.surface;
    return drawPng(wide, high, PNG_RATIO, (pen) => {
      pen.fillStyle = readTokens("bg").bg;
      pen.fillRect(0, 0, wide, high);
      paint(pen);
    });
  }

  /** Return the heatmap as the text of an SVG. */
  async toSvg() {
    return this.surface.toSvg(this.#painter(PNG_RATIO), readTokens("bg").bg);
  }
}
