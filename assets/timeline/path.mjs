/* The critical path through all ranks: outlines of what is on it, and lines from one lane to the next. */

import { byId, setText } from "../base/dom.mjs";
import { formatTime } from "../base/format.mjs";
import { unpack } from "../base/packed.mjs";
import { boxOf, drawOverLanes, limit } from "./draw.mjs";
import { GUTTER } from "./lanes.mjs";

/** @import { Pen } from "../base/canvas.mjs" */
/** @import { Scene } from "./scene.mjs" */

/**
 * Pieces by time, each in a row of a rank; times are ns after the beginning of the timeline.
 * @typedef {object} Pieces
 * @property {string} sentence what it consists of
 * @property {number} length ns
 * @property {number} dropped pieces too short to be sent
 * @property {ArrayLike<number>} rank
 * @property {ArrayLike<number>} row
 * @property {ArrayLike<number>} start
 * @property {ArrayLike<number>} end
 * @property {ArrayLike<number>} gap whether it lies between nodes
 */

const DRAWN_AT_MOST = 4000; /* lines in a picture */
const BOXED_FROM = 7; /* pixels: outlines of narrower bars would run into one */

/**
 * The first piece that ends after a moment. Pieces of different ranks may overlap a little, as clocks do.
 * @param {Pieces} pieces @param {number} ns
 */
export function firstAfter({ end }, ns) {
  let low = 0, high = end.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (end[middle] > ns) high = middle;
    else low = middle + 1;
  }
  return low;
}

export class Path {
  /** @param {Scene} scene */
  constructor(scene) {
    this.scene = scene;
    this.isOn = false;
    this.wasAsked = false;
    /** @type {Pieces | null} */
    this.pieces = null;
    const toggle = () => scene.change({ crit: this.isOn ? null : "1" });
    this.keys = { x: toggle };
    this.buttons = { "timeline-path": toggle };
  }

  /** @param {import("../base/view.mjs").View} view */
  apply(view) {
    this.isOn = view.crit === "1";
    byId("timeline-path")?.setAttribute("aria-pressed", String(this.isOn));
    if (this.isOn && !this.wasAsked) this.#ask();
    this.#tell();
  }

  #ask() {
    const { scene } = this;
    this.wasAsked = true;
    scene.askBytes("/path").then((buffer) => {
      this.pieces = /** @type {Pieces} */ (/** @type {unknown} */ (unpack(buffer)));
      this.#tell();
      scene.draw();
    }, () => {
      this.wasAsked = false;
      setText("timeline-path-words", "The critical path could not be read.");
    });
  }

  #tell() {
    const { pieces } = this;
    if (!this.isOn) return setText("timeline-path-words", "");
    if (!pieces) return setText("timeline-path-words", "Reading the critical path…");
    const rest = pieces.dropped ? " The shortest pieces are not drawn." : "";
    const words = "Critical path, " + formatTime(pieces.length) + ": " + pieces.sentence + "." + rest;
    setText("timeline-path-words", words);
  }

  /** @param {Pen} pen @param {number} wide */
  draw(pen, wide) {
    const { scene, pieces } = this;
    if (!this.isOn || !pieces) return;
    const { look } = scene, { boxes, strips, lines } = this.#arrange(pieces, wide);
    drawOverLanes(scene, pen, () => {
      pen.setLineDash([]);
      pen.beginPath();
      for (const [x0, y0, x1, y1] of lines) {
        pen.moveTo(x0, y0);
        pen.lineTo(x1, y1);
      }
      stroke(pen, look.bg, 3, 0.7);
      stroke(pen, look.text, 1.2, 0.75);
      pen.beginPath();
      for (const [x, y, width, height] of boxes) pen.rect(x + 0.5, y + 0.5, width - 1, height - 1);
      for (const [x0, y, x1] of strips) {
        pen.moveTo(x0, y);
        pen.lineTo(x1, y);
      }
      stroke(pen, look.bg, 4, 1);
      stroke(pen, look.text, 2, 1);
      pen.lineWidth = 1;
    });
  }

  /**
   * Where the pieces in sight are drawn: boxes around bars, strips on top of narrow ones, lines between.
   * @param {Pieces} pieces @param {number} wide
   */
  #arrange(pieces, wide) {
    const { scene } = this, { axis } = scene;
    /** @type {number[][]} */
    const boxes = [], strips = [], lines = [];
    /** @type {{x: number, y: number} | null} */
    let before = null;
    const first = Math.max(firstAfter(pieces, axis.shown.from) - 1, 0);
    for (let at = first; at < pieces.row.length && lines.length < DRAWN_AT_MOST; at++) {
      const start = pieces.start[at], end = pieces.end[at];
      if (start > axis.shown.to) break;
      const box = boxOf(scene, { rank: pieces.rank[at], row: pieces.row[at], start, end });
      if (!box) {
        before = null;
        continue;
      }
      const left = limit(scene, box.left), right = limit(scene, box.right), y = box.y + box.height / 2;
      if (before && before.y !== y) lines.push([before.x, before.y, left, y]);
      if (pieces.gap[at]) lines.push([left, y, right, y]);
      else if (right > GUTTER && left < wide) {
        if (right - left >= BOXED_FROM) boxes.push([left, box.y, right - left, box.height]);
        else strips.push([left, box.y, right]);
      }
      before = { x: right, y };
    }
    return { boxes, strips, lines };
  }
}

/** @param {Pen} pen @param {string} colour @param {number} width @param {number} alpha */
function stroke(pen, colour, width, alpha) {
  pen.globalAlpha = alpha;
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.stroke();
  pen.globalAlpha = 1;
}
