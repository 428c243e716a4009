/* Pointer, fingers and wheel on a time axis: dragging pans, two fingers or the wheel with a key zoom. */

/** @import { Surface } from "../base/canvas.mjs" */
/** @import { Axis } from "./axis.mjs" */
/** @import { Motion } from "./motion.mjs" */
/** @typedef {[number, number]} Point on the canvas */

/**
 * What the page does with them.
 * @typedef {object} Acts
 * @property {() => boolean} isReady
 * @property {(at: Point) => void} point the pointer is there, with no button pressed
 * @property {() => void} leave
 * @property {(at: Point) => void} tap
 * @property {() => number} readTop how far the rows are scrolled
 * @property {(top: number, isTouch: boolean) => void} scrollTo
 * @property {(by: number) => boolean} [scrollBy] scroll by the wheel; whether there was anything to scroll
 * @property {(at: Point, event: PointerEvent) => boolean} [startsMark] whether dragging marks a window
 * @property {(from: number, to: number) => void} [mark] ns of the axis
 * @property {() => void} [endMark]
 * @property {() => void} draw
 */

/**
 * @typedef {{at: Point, from: number, to: number, top: number, moved: boolean, marks: boolean,
 *   isTouch: boolean}} Drag
 */

const STILL = 4; /* pixels a pointer may move in a click */

export class Hands {
  /**
   * @param {Surface} surface
   * @param {HTMLElement} host takes the focus
   * @param {Axis} axis @param {Motion} motion @param {Acts} acts
   */
  constructor(surface, host, axis, motion, acts) {
    this.surface = surface;
    this.host = host;
    this.axis = axis;
    this.motion = motion;
    this.acts = acts;
    /** @type {Drag | null} */
    this.drag = null;
    /** @type {Map<number, Point>} */
    this.fingers = new Map();
    const { canvas } = surface;
    canvas.addEventListener("pointerdown", (event) => this.#press(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    canvas.addEventListener("pointerup", (event) => this.#release(event));
    canvas.addEventListener("pointercancel", (event) => this.#release(event));
    canvas.addEventListener("pointerleave", () => acts.leave());
    canvas.addEventListener("wheel", (event) => this.#turn(event), { passive: false });
  }

  isDragging() {
    return Boolean(this.drag?.moved) || this.fingers.size > 1;
  }

  /** The address knows of a window that is being marked when the pointer lets go. */
  isMarking() {
    return Boolean(this.drag?.moved && this.drag.marks);
  }

  /** @param {PointerEvent} event */
  #press(event) {
    if (event.button !== 0 || !this.acts.isReady()) return;
    this.host.focus({ preventScroll: true });
    const at = this.surface.locate(event);
    if (at[0] > this.host.clientWidth) return;
    this.fingers.set(event.pointerId, at);
    if (this.fingers.size === 2) {
      this.drag = null;
      return;
    }
    this.motion.glide = null;
    const marks = Boolean(this.acts.startsMark?.(at, event)), isTouch = event.pointerType === "touch";
    this.drag = { at, ...this.axis.shown, top: this.acts.readTop(), moved: false, marks, isTouch };
  }

  /** @param {PointerEvent} event */
  #move(event) {
    if (!this.acts.isReady()) return;
    const at = this.surface.locate(event), { drag } = this;
    if (this.fingers.has(event.pointerId)) {
      if (this.fingers.size === 2) return this.#pinch(event.pointerId, at);
      this.fingers.set(event.pointerId, at);
    }
    if (!drag) return this.acts.point(at);
    if (!drag.moved) {
      if (Math.hypot(at[0] - drag.at[0], at[1] - drag.at[1]) < STILL) return;
      drag.moved = true;
      this.surface.canvas.setPointerCapture(event.pointerId);
    }
    if (drag.marks) {
      this.acts.mark?.(this.axis.ns(drag.at[0]), this.axis.ns(Math.max(at[0], this.axis.gutter)));
    } else {
      const by = ((at[0] - drag.at[0]) / this.axis.width) * (drag.to - drag.from);
      this.axis.shown = this.axis.clamp(drag.from - by, drag.to - by);
      this.acts.scrollTo(drag.top - (at[1] - drag.at[1]), drag.isTouch);
    }
    this.acts.draw();
  }

  /** Two fingers keep the moments they lie on. @param {number} id @param {Point} at */
  #pinch(id, at) {
    const other = [...this.fingers.keys()].find((finger) => finger !== id);
    const before = this.fingers.get(id), still = other === undefined ? undefined : this.fingers.get(other);
    this.fingers.set(id, at);
    if (!before || !still) return;
    const was = Math.abs(before[0] - still[0]), is = Math.abs(at[0] - still[0]);
    if (was > 8 && is > 8) this.motion.zoom(is / was, (at[0] + still[0]) / 2, true);
  }

  /** @param {PointerEvent} event */
  #release(event) {
    this.fingers.delete(event.pointerId);
    const { drag } = this;
    if (!drag) return;
    this.drag = null;
    if (drag.moved && drag.marks) this.acts.endMark?.();
    else if (drag.moved) this.motion.rest();
    else if (event.type === "pointerup") this.acts.tap(drag.at);
    this.acts.draw();
  }

  /** @param {WheelEvent} event */
  #turn(event) {
    if (!this.acts.isReady()) return;
    const line = event.deltaMode === 1 ? 16 : 1, at = this.surface.locate(event);
    if (event.ctrlKey || event.metaKey || event.shiftKey) {
      event.preventDefault();
      const turn = (event.deltaY || event.deltaX) * line;
      /* Pinching a touch pad arrives as a wheel with Ctrl, in small steps. */
      const pace = event.ctrlKey && Math.abs(turn) < 30 ? 0.012 : 0.0025;
      const factor = Math.exp(-Math.max(-120, Math.min(120, turn)) * pace);
      this.motion.glide = null;
      this.motion.zoom(factor, Math.max(at[0], this.axis.gutter), true);
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      this.motion.glide = null;
      this.motion.pan((event.deltaX * line) / this.axis.width, true);
    } else {
      if (!this.acts.scrollBy?.(event.deltaY * line)) return;
      event.preventDefault();
      this.acts.point(at); /* The pointer rests, and something else lies under it now. */
    }
  }
}
