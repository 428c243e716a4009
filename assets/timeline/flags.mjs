/* Pins that keep ranks in sight, and marks ("flags" in the address) that keep moments. */

import { formatTime } from "../base/format.mjs";
import { AXIS, GUTTER } from "./lanes.mjs";
import { drawTag, placeTag } from "./draw.mjs";
import { textWidth } from "./text.mjs";

/** @import { Pen } from "../base/canvas.mjs" */
/** @import { Scene } from "./scene.mjs" */

const AT_MOST = 26; /* one for each letter */
const NEAR = 5; /* pixels */

/** @param {number[]} numbers */
function sortRising(numbers) {
  return [...numbers].sort((a, b) => a - b);
}

/** Moments as the address holds them, rising. @param {string | undefined} text */
export function readFlags(text) {
  const parts = (text || "").split(",").filter((part) => /^\d+$/.test(part));
  return sortRising(parts.map(Number)).slice(0, AT_MOST);
}

/**
 * Set a flag at a moment; those near to it go instead.
 * @param {number[]} flags
 * @param {number} at ns
 * @param {number} near ns
 */
export function toggleFlag(flags, at, near) {
  const left = flags.filter((flag) => Math.abs(flag - at) > near);
  return sortRising(left.length < flags.length ? left : [...left, at]);
}

export class Flags {
  /** @param {Scene} scene */
  constructor(scene) {
    this.scene = scene;
    /** @type {number[]} ns, rising */
    this.flags = [];
    this.keys = {
      p: () => this.#pinHere(),
      /** @param {KeyboardEvent} event */
      m: (event) => (event.shiftKey ? this.#markSelected() : this.#toggleHere()),
    };
  }

  /** @param {import("../base/view.mjs").View} view */
  apply(view) {
    this.flags = readFlags(view.flags);
  }

  /** @param {number} rank */
  pin(rank) {
    const { pins } = this.scene;
    const next = pins.includes(rank) ? pins.filter((other) => other !== rank) : [...pins, rank];
    this.scene.change({ pin: next.join(",") || null });
  }

  #pinHere() {
    const { pointer, selection } = this.scene, place = pointer && this.scene.rowAt(pointer[1]);
    if (place) this.pin(place.group.rank);
    else if (selection.bar) this.pin(selection.bar.rank);
  }

  #markSelected() {
    const { bar } = this.scene.selection;
    if (bar) this.scene.change({ mark: bar.start + "-" + Math.max(bar.end, bar.start + 1) });
  }

  /** At the pointer, else at the beginning of the selected node. */
  #toggleHere() {
    const { aim, axis, selection, chart } = this.scene;
    const at = aim !== null ? Math.round(axis.ns(aim)) : selection.bar?.start;
    if (at === undefined) return;
    const flags = toggleFlag(this.flags, Math.min(Math.max(at, 0), chart.span), axis.nsPerPixel * NEAR);
    this.scene.change({ flags: flags.join(",") || null });
  }

  /** @param {Pen} pen @param {number} wide @param {number} high */
  draw(pen, wide, high) {
    pen.strokeStyle = this.scene.look.text;
    pen.lineWidth = 1;
    pen.setLineDash([5, 3]);
    pen.beginPath();
    for (const flag of this.flags) {
      const x = Math.round(this.scene.axis.x(flag)) + 0.5;
      if (x < GUTTER || x > wide) continue;
      pen.moveTo(x, AXIS);
      pen.lineTo(x, high);
    }
    pen.stroke();
    pen.setLineDash([]);
  }

  /** @param {Pen} pen @param {number} wide */
  drawAxis(pen, wide) {
    const { scene } = this;
    pen.font = scene.look.font;
    for (const [place, flag] of this.flags.entries()) {
      const x = scene.axis.x(flag);
      if (x < GUTTER || x > wide) continue;
      const text = this.#letter(place) + " " + (place ? "+" + this.#gap(place) : scene.formatMoment(flag));
      const room = textWidth(pen, text) + 12;
      const next = place + 1 < this.flags.length ? scene.axis.x(this.flags[place + 1]) : wide;
      const least = Math.max(x - room, GUTTER), most = Math.min(x, wide - room);
      /* On the side where the next flag leaves room. */
      const wanted = x + room > next ? least : most;
      drawTag(scene, pen, text, placeTag(scene.tags, wanted, room, least, most), room);
    }
  }

  /** @param {number} place */
  #letter(place) {
    return String.fromCharCode(65 + place);
  }

  /** How long after the flag before. @param {number} place */
  #gap(place) {
    return formatTime(this.flags[place] - this.flags[place - 1]);
  }

  describe() {
    const words = this.flags.map((flag, place) => {
      const gap = place ? " (+" + this.#gap(place) + ")" : "";
      return this.#letter(place) + " " + this.scene.formatMoment(flag) + gap;
    });
    return words.join(" · ");
  }
}
