/* The time axis: which window of time is shown in how many pixels. No DOM. */

import { TIMES } from "../base/format.mjs";

/** @typedef {{from: number, to: number}} Span in ns after the beginning */
/** @typedef {{ns: number, text: string}} Tick */

const MARGIN = 0.01; /* left free at both ends, as a share of everything */
const APART = 96; /* pixels between ticks, at least; in a narrow window less, so that there are some */
const NAMED = 56; /* pixels that the name of a tick takes */

export class Axis {
  /**
   * @param {number} gutter pixels left of the lanes
   * @param {number} narrowest ns that can be shown
   */
  constructor(gutter, narrowest) {
    this.gutter = gutter;
    this.narrowest = narrowest;
    /** Pixels of the lanes. */
    this.width = 1;
    /** @type {Span} What there is. */
    this.bounds = { from: 0, to: 1 };
    /** @type {Span} What is shown. */
    this.shown = { from: 0, to: 1 };
  }

  /** How many ns a pixel shows. */
  get nsPerPixel() {
    return (this.shown.to - this.shown.from) / this.width;
  }

  /** @param {number} ns */
  x(ns) {
    return this.gutter + ((ns - this.shown.from) / (this.shown.to - this.shown.from)) * this.width;
  }

  /** @param {number} px */
  ns(px) {
    return this.shown.from + ((px - this.gutter) / this.width) * (this.shown.to - this.shown.from);
  }

  /** Everything, with a margin. @returns {Span} */
  measureWhole() {
    const margin = (this.bounds.to - this.bounds.from) * MARGIN;
    return { from: this.bounds.from - margin, to: this.bounds.to + margin };
  }

  /**
   * The window nearest to the wanted one that lies in the whole and is not too narrow.
   * @param {number} from @param {number} to @returns {Span}
   */
  clamp(from, to) {
    const all = this.measureWhole();
    const wide = Math.min(Math.max(to - from, this.narrowest), all.to - all.from), middle = (from + to) / 2;
    const start = Math.min(Math.max(middle - wide / 2, all.from), all.to - wide);
    return { from: start, to: start + wide };
  }

  /**
   * A window zoomed about a pixel, or about its middle. What lies under the pixel stays there.
   * @param {Span} window
   * @param {number} factor more than 1 shows less
   * @param {number | null} px @returns {Span}
   */
  zoomWindow({ from, to }, factor, px) {
    const share = px === null ? 0.5 : (px - this.gutter) / this.width, held = from + share * (to - from);
    const wide = Math.max((to - from) / factor, this.narrowest);
    return { from: held - share * wide, to: held + (1 - share) * wide };
  }

  /** Whether everything is shown. */
  isWhole() {
    const all = this.measureWhole();
    return this.shown.to - this.shown.from >= (all.to - all.from) * 0.9999;
  }

  /** Round moments to be named along the axis. @returns {Tick[]} */
  makeTicks() {
    const { from, to } = this.shown;
    const apart = Math.min(APART, Math.max(this.width / 4, NAMED));
    const least = ((to - from) * apart) / Math.max(this.width, 1);
    const power = 10 ** Math.floor(Math.log10(least));
    const step = Math.max(1, ([1, 2, 5, 10].find((digit) => digit * power >= least) ?? 10) * power);
    const farthest = Math.max(Math.abs(from), Math.abs(to), 1);
    const units = TIMES.slice(0, 4).filter(([, size]) => size <= farthest && step >= size / 1000);
    const [name, size] = units.at(-1) ?? TIMES[0];
    const places = Math.max(0, Math.min(3, Math.ceil(-Math.log10(step / size) - 1e-9)));
    const style = { minimumFractionDigits: places, maximumFractionDigits: places };
    /** @type {Tick[]} */
    const ticks = [];
    for (let count = Math.ceil(from / step); count * step <= to; count++) {
      const text = ((count * step) / size).toLocaleString("en", style);
      ticks.push({ ns: count * step, text: count === 0 ? "0" : text + " " + name });
    }
    return ticks;
  }
}
