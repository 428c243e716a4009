/* Moves the window of an axis: pan, zoom, the glide to a new window, and the window in the address. */

/** @import { Patch, View } from "../base/view.mjs" */
/** @import { Axis, Span } from "./axis.mjs" */

const GLIDE_MS = 110;
const REST_MS = 250; /* after which a window goes into the address */
const GESTURE_MS = 1200; /* windows written within it are one step back */

export class Motion {
  /**
   * @param {Axis} axis @param {object} page @param {() => void} page.draw
   * @param {() => boolean} page.isHeld whether a pointer drags the window
   * @param {(patch: Patch, options: {replace: boolean}) => void} page.change the address
   * @param {(name: string, waitMs: number, act: () => void) => void} page.later
   */
  constructor(axis, page) {
    this.axis = axis;
    this.page = page;
    /** @type {{from: Span, to: Span, began: number} | null} */
    this.glide = null;
    /** @type {string | null} The window the address holds, as it was last read or written. */
    this.written = null;
    this.writtenAt = 0;
  }

  /**
   * Take the window from the address. That may be behind the pointer: only a window that is new counts.
   * @param {View} view
   */
  follow(view) {
    const key = (view.from || "") + "/" + (view.to || ""), from = Number(view.from), to = Number(view.to);
    if (key === this.written) return;
    this.written = key;
    this.glide = null;
    const isWindow = view.to !== undefined && to > from;
    this.axis.shown = isWindow ? this.axis.clamp(from, to) : this.axis.measureWhole();
  }

  /** Take the window from the address again: what there is has changed. */
  forget() {
    this.written = null;
  }

  /** Where the window is or glides to. */
  get target() {
    return this.glide ? this.glide.to : this.axis.shown;
  }

  /**
   * @param {number} from @param {number} to
   * @param {boolean} [atOnce] without a glide
   */
  go(from, to, atOnce = false) {
    const target = this.axis.clamp(from, to);
    if (atOnce || window.matchMedia("(prefers-reduced-motion: reduce)").matches) {
      this.glide = null;
      this.axis.shown = target;
    } else this.glide = { from: this.axis.shown, to: target, began: performance.now() };
    this.page.draw();
    this.rest();
  }

  /** Glide on, in a frame. @param {number} now */
  step(now) {
    if (!this.glide) return;
    const { from, to, began } = this.glide, done = Math.min(1, Math.max(0, (now - began) / GLIDE_MS));
    const ease = 1 - (1 - done) ** 3, start = from.from + (to.from - from.from) * ease;
    this.axis.shown = { from: start, to: from.to + (to.to - from.to) * ease };
    if (done < 1) return;
    this.axis.shown = to;
    this.glide = null;
  }

  /**
   * @param {number} share of the window
   * @param {boolean} [atOnce]
   */
  pan(share, atOnce) {
    const { from, to } = this.target, by = (to - from) * share;
    this.go(from + by, to + by, atOnce);
  }

  /**
   * @param {number} factor
   * @param {number | null} px what stays where it is; null is the middle
   * @param {boolean} [atOnce]
   */
  zoom(factor, px, atOnce) {
    const { from, to } = this.axis.zoomWindow(this.target, factor, px);
    this.go(from, to, atOnce);
  }

  fit() {
    const { from, to } = this.axis.measureWhole();
    this.go(from, to);
  }

  /** Write the window into the address when it has come to rest. */
  rest() {
    this.page.later("rest", REST_MS, () => {
      if (this.glide || this.page.isHeld()) return this.rest();
      const { from, to } = this.axis.shown, now = Date.now();
      const isWhole = this.axis.isWhole();
      const patch = { from: isWhole ? null : Math.round(from), to: isWhole ? null : Math.round(to) };
      this.written = (patch.from ?? "") + "/" + (patch.to ?? "");
      this.page.change(patch, { replace: now - this.writtenAt < GESTURE_MS });
      this.writtenAt = now;
    });
  }
}
