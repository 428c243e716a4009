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

const DRAWN_AT_MOST = 4000; /* pieces in a picture; narrower ones are joined by their lines alone */

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
    drawOverLanes(scene, pen, () => {
      const { look, axis } = scene, boxes = [];
      pen.beginPath();
      /** @type {{x: number, y: number} | null} */
      let before = null;
      let drawn = 0;
      for (let at = Math.max(firstAfter(pieces, axis.shown.from) - 1, 0); at < pieces.row.length; at++) {
        const start = pieces.start[at], end = pieces.end[at];
        if (start > axis.shown.to || drawn > DRAWN_AT_MOST) break;
        const box = boxOf(scene, { rank: pieces.rank[at], row: pieces.row[at], start, end });
        if (!box) {
          before = null;
          continue;
        }
        const left = limit(scene, box.left), right = limit(scene, box.right), y = box.y + box.height / 2;
        if (before && before.y === y && right - before.x < 1) continue;
        if (before && before.y !== y) {
          pen.moveTo(before.x, before.y);
          pen.lineTo(left, y);
        }
        drawn++;
        if (pieces.gap[at]) {
          pen.moveTo(left, y);
          pen.lineTo(right, y);
        } else if (right > GUTTER && left < wide) {
          boxes.push([left, box.y, Math.max(right - left, 1), box.height]);
        }
        before = { x: right, y };
      }
      for (const [x, y, width, height] of boxes) pen.rect(x + 0.5, y + 0.5, width - 1, height - 1);
      pen.setLineDash([]);
      pen.strokeStyle = look.bg;
      pen.lineWidth = 4.5;
      pen.stroke();
      pen.strokeStyle = look.text;
      pen.lineWidth = 2;
      pen.stroke();
      pen.lineWidth = 1;
    });
  }
}
