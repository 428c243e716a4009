/* Pointers on a heatmap: a mouse points, marks and scrolls; one finger moves the window, two scale it. */

import { cellsIn, isBinned } from "./layout.mjs";
import { dragWindow, scaleWindow, scrollWindow } from "./windows.mjs";

/** @import { Heatmap } from "./heatmap.mjs" */
/** @import { Place } from "./layout.mjs" */
/** @import { Window } from "./windows.mjs" */
/** @typedef {{ x: number, y: number, apart: number }} Middle of fingers, and how far apart they are */

/** Pixels from which a press is a drag. */
const DRAGGED = 6;

/** How often fingers ask for another window at most. */
const STEP_MS = 120;

export class HeatmapPointer {
  /** What a mouse is marking. */
  #drag = /** @type {{ x: number, y: number, toX: number, toY: number, from: Place } | null} */ (null);
  #isDragged = false;
  /** Where fingers are. @type {Map<number, [number, number]>} */
  #fingers = new Map();
  /** The window that fingers took hold of, and where. */
  #grip = /** @type {{ start: Middle, window: Window, shown: string } | null} */ (null);
  #isMoved = false;
  #lastStep = 0;

  /** @param {Heatmap} heatmap */
  constructor(heatmap) {
    this.heatmap = heatmap;
    const { canvas } = heatmap;
    canvas.addEventListener("pointerdown", (event) => this.#press(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    canvas.addEventListener("pointerup", (event) => this.#release(event));
    canvas.addEventListener("pointercancel", (event) => {
      this.#touch(event);
      this.#drag = null;
      heatmap.draw();
    });
    canvas.addEventListener("pointerleave", () => heatmap.pointAt(null));
    canvas.addEventListener("dblclick", () => {
      const { data } = heatmap;
      if (data) heatmap.hands.zoom([0, data.lines, 0, data.ranks], true);
    });
    canvas.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
  }

  /** The rectangle that is being marked, if any. */
  get marked() {
    return this.#isDragged ? this.#drag : null;
  }

  /* ---- mouse ---- */

  /** @param {PointerEvent} event */
  #press(event) {
    if (this.#touch(event)) return;
    const [x, y] = this.heatmap.surface.locate(event);
    const from = this.heatmap.binAt(x, y);
    if (!from || event.button) return;
    this.#drag = { x, y, toX: x, toY: y, from };
    this.#isDragged = false;
    this.heatmap.canvas.setPointerCapture(event.pointerId);
  }

  /** @param {PointerEvent} event */
  #move(event) {
    if (this.#touch(event)) return;
    const { heatmap } = this, { box } = heatmap, drag = this.#drag;
    const [x, y] = heatmap.surface.locate(event);
    if (!drag || !box) {
      heatmap.pointAt(heatmap.binAt(x, y), x, y);
      return;
    }
    drag.toX = Math.min(Math.max(x, box.x), box.x + box.w - 0.01);
    drag.toY = Math.min(Math.max(y, box.y), box.y + box.h - 0.01);
    if (Math.abs(drag.toX - drag.x) + Math.abs(drag.toY - drag.y) > DRAGGED) this.#isDragged = true;
    heatmap.tip.hidden = true;
    heatmap.draw();
  }

  /** @param {PointerEvent} event */
  #release(event) {
    if (this.#touch(event) || !this.#drag) return;
    const { heatmap } = this, { data } = heatmap, { x, y, toX, toY, from } = this.#drag;
    const isDragged = this.#isDragged;
    this.#drag = null;
    this.#isDragged = false;
    heatmap.draw();
    if (!isDragged) {
      this.#choose(from);
      return;
    }
    const start = heatmap.binAt(Math.min(x, toX), Math.min(y, toY));
    const end = heatmap.binAt(Math.max(x, toX), Math.max(y, toY));
    if (!data || !start || !end) return;
    const first = cellsIn(data, start), last = cellsIn(data, end);
    heatmap.hands.zoom([first.line, last.high, first.column, last.right], true);
  }

  /**
   * Open a bin of several cells, or choose its only one.
   * @param {Place} place
   */
  #choose(place) {
    const { data, hands } = this.heatmap;
    if (!data) return;
    const bin = cellsIn(data, place);
    if (isBinned(bin)) hands.open(bin);
    else hands.choose({ line: bin.line, column: bin.column });
  }

  /** @param {WheelEvent} event */
  #wheel(event) {
    const { data, box, hands } = this.heatmap;
    const [x, y] = this.heatmap.surface.locate(event);
    if (!data || !box || !this.heatmap.binAt(x, y)) return;
    const window = hands.goal(data);
    if (event.ctrlKey || event.shiftKey || event.metaKey) {
      event.preventDefault();
      const place = { x: (x - box.x) / box.w, y: (y - box.y) / box.h };
      hands.zoom(scaleWindow(window, 1.002 ** (event.deltaY || event.deltaX), place, data), false);
    } else if (window[1] - window[0] < data.lines) {
      event.preventDefault();
      const next = scrollWindow(window, event.deltaY, data);
      if (next) hands.zoom(next, false);
    }
  }

  /* ---- fingers ---- */

  /** @returns {Middle} */
  #middle() {
    const [one, other = one] = [...this.#fingers.values()];
    const apart = Math.hypot(one[0] - other[0], one[1] - other[1]);
    return { x: (one[0] + other[0]) / 2, y: (one[1] + other[1]) / 2, apart };
  }

  /** Take hold of the window, again when a finger comes or goes. */
  #take() {
    const { data, hands } = this.heatmap;
    if (!data) return;
    this.#isMoved = this.#grip !== null;
    this.#grip = { start: this.#middle(), window: hands.goal(data), shown: "" };
  }

  /**
   * Move the window to where the fingers are.
   * @param {boolean} isLast whether nothing may be left out
   */
  #follow(isLast) {
    const { data, box, hands } = this.heatmap, grip = this.#grip;
    if (!data || !box || !grip) return;
    const share = (/** @type {Middle} */ { x, y, apart }) => ({
      x: (x - box.x) / box.w,
      y: (y - box.y) / box.h,
      apart,
    });
    const isPinch = this.#fingers.size > 1;
    const window = dragWindow(grip.window, share(grip.start), share(this.#middle()), isPinch, data);
    const text = window.join();
    if (text === grip.shown || (!isLast && Date.now() - this.#lastStep < STEP_MS)) return;
    grip.shown = text;
    this.#lastStep = Date.now();
    if (text !== hands.goal(data).join()) hands.zoom(window, false);
  }

  /**
   * Follow fingers.
   * @param {PointerEvent} event
   * @returns {boolean} whether it is one
   */
  #touch(event) {
    const { heatmap } = this, { type, pointerId } = event;
    if (event.pointerType !== "touch" || !heatmap.data) return false;
    if (type === "pointerdown") {
      this.#fingers.set(pointerId, heatmap.surface.locate(event));
      heatmap.canvas.setPointerCapture(pointerId);
      this.#take();
    } else if (this.#grip && this.#fingers.has(pointerId)) {
      if (type === "pointermove") {
        this.#fingers.set(pointerId, heatmap.surface.locate(event));
        const now = this.#middle(), { start } = this.#grip;
        if (Math.hypot(now.x - start.x, now.y - start.y) > DRAGGED) this.#isMoved = true;
      }
      if (this.#isMoved || this.#fingers.size > 1) this.#follow(type !== "pointermove");
      if (type !== "pointermove") this.#lift(event);
    }
    return true;
  }

  /** @param {PointerEvent} event */
  #lift(event) {
    this.#fingers.delete(event.pointerId);
    if (this.#fingers.size) {
      this.#take();
      return;
    }
    this.#grip = null;
    if (this.#isMoved || event.type !== "pointerup") return;
    const place = this.heatmap.binAt(...this.heatmap.surface.locate(event));
    if (place) this.#choose(place);
  }
}
