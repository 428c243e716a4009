/* A recorded call is one node in several bars: one for each piece of time between the calls that it made. */

import { formatTime, plural } from "../base/format.mjs";
import { AXIS, GUTTER } from "./lanes.mjs";
import { boxOf, drawOverLanes } from "./draw.mjs";

/** @import { Pen } from "../base/canvas.mjs" */
/** @import { Box } from "./draw.mjs" */
/** @import { Scene } from "./scene.mjs" */
/** @import { Bar } from "./timeline.mjs" */
/** @typedef {[number, number, number]} Piece row, start and end */
/** @typedef {{rank: number, row: number, start: number, end: number, pieces?: Piece[]}} Drawn */

const NEAR = 6; /* pixels: outlines of bars that are no farther apart would run into each other */

/**
 * The bars of a node. Who has its one bar alone has one.
 * @param {Drawn} node
 * @returns {Drawn[]}
 */
export function barsOf({ rank, row, start, end, pieces }) {
  if (!pieces) return [{ rank, row, start, end }];
  return pieces.map(([lane, from, to]) => ({ rank, row: lane, start: from, end: to }));
}

/**
 * Boxes that are near to each other in a row as one.
 * @param {Box[]} boxes by time
 * @param {number} [near] pixels
 */
export function joinBoxes(boxes, near = NEAR) {
  /** @type {Box[]} */
  const joined = [];
  for (const box of boxes) {
    const last = joined.at(-1);
    if (last && last.y === box.y && box.left - last.right < near) {
      last.right = Math.max(last.right, box.right);
    } else joined.push({ ...box });
  }
  return joined;
}

/**
 * Where the bars of a node are seen, with those near to each other as one.
 * @param {Scene} scene @param {Drawn[]} bars by time
 */
export function seenBoxes(scene, bars) {
  const { wide, high } = scene.lanes.size;
  const boxes = bars.map((bar) => boxOf(scene, bar)).filter((box) => {
    const isSeen = box && box.right >= GUTTER && box.left <= wide;
    return isSeen && !box.behind && box.y + box.height >= AXIS && box.y <= high;
  });
  return joinBoxes(/** @type {Box[]} */ (boxes));
}

/** How long a node took itself. @param {{start: number, end: number, own?: number}} node */
export function timeOf({ start, end, own }) {
  return own ?? end - start;
}

/**
 * How long a node took: of a recorded call what of the time until it returned was its own, in how many bars.
 * @param {Bar} bar
 */
export function describeTime({ start, end, own, count = 1 }) {
  if (own === undefined) return formatTime(end - start);
  const pieces = count > 1 ? ", one node in " + plural(count, "piece") : "";
  return formatTime(own) + " of its own within " + formatTime(end - start) + pieces;
}

/** The bars of the call under the pointer. */
export class Pieces {
  /** @param {Scene} scene */
  constructor(scene) {
    this.scene = scene;
    /** @type {Bar | null} */
    this.lit = null;
  }

  /** Outline the bars of a node, where it has several. @param {Bar | null} bar */
  light(bar) {
    const lit = bar && (bar.count ?? 1) > 1 ? bar : null, before = this.lit;
    this.lit = lit;
    const isSame = lit?.index === before?.index && lit?.row === before?.row && lit?.ghost === before?.ghost;
    if (isSame) return;
    this.scene.draw();
  }

  /** @param {Pen} pen */
  draw(pen) {
    const { scene, lit } = this;
    if (!lit || lit.ghost) return;
    const bars = lit.pieces ? barsOf(lit) : scene.timeline.findBars(lit);
    drawOverLanes(scene, pen, () => {
      pen.lineWidth = 1.5;
      pen.strokeStyle = scene.look.text;
      for (const { left, right, y, height } of seenBoxes(scene, bars)) {
        pen.strokeRect(left + 0.5, y + 0.5, Math.max(right - left - 1, 2), height - 1);
      }
    });
  }
}
