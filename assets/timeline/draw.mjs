/* The picture of the Timeline page: grid, lanes, gutter, axis, and what the features draw over them. */

import { plural } from "../base/format.mjs";
import { AXIS, BAR, GUTTER, PAD } from "./lanes.mjs";
import { cutEnd, cutMiddle, textWidth } from "./text.mjs";

/** @import { Pen } from "../base/canvas.mjs" */
/** @import { Tick } from "./axis.mjs" */
/** @import { Group } from "./chart.mjs" */
/** @import { Scene } from "./scene.mjs" */

const APART = 2; /* pixels between labels of the axis */
const FAR = 5000; /* pixels beyond the edge: nothing there is seen, and canvases err with numbers too large */

/**
 * Draw everything with a pen: that of the canvas, or one that writes SVG.
 * @param {Scene} scene @param {Pen} pen
 */
export function drawPicture(scene, pen) {
  const { wide, high } = scene.lanes.size;
  pen.fillStyle = scene.look.bg;
  pen.fillRect(0, 0, wide, high);
  const ticks = scene.axis.makeTicks().filter((tick) => tick.ns >= 0);
  drawGrid(scene, pen, ticks, high);
  drawLanes(scene, pen);
  drawMarked(scene, pen, high);
  for (const feature of scene.features) feature.draw?.(pen, wide, high);
  scene.selection.drawArrows(pen);
  scene.selection.drawRing(pen);
  drawGutter(scene, pen, wide, high);
  drawAxis(scene, pen, wide);
  scene.tags = [];
  for (const feature of scene.features) feature.drawAxis?.(pen, wide);
  drawTicks(scene, pen, ticks, wide);
}

/**
 * Draw only within a box.
 * @param {Pen} pen @param {number} left @param {number} top @param {number} wide @param {number} high
 * @param {() => void} draw
 */
export function drawWithin(pen, left, top, wide, high, draw) {
  pen.save();
  pen.beginPath();
  pen.rect(left, top, wide, high);
  pen.clip();
  draw();
  pen.restore();
}

/** Draw only over the lanes. @param {Scene} scene @param {Pen} pen @param {() => void} draw */
export function drawOverLanes(scene, pen, draw) {
  const { wide, high } = scene.lanes.size;
  drawWithin(pen, GUTTER, AXIS, wide - GUTTER, high - AXIS, draw);
}

/**
 * Draw the ranks in sight: those that scroll, then those that are pinned, each where it may be.
 * @param {Scene} scene @param {Pen} pen @param {number} left
 * @param {(groups: Group[], isPinned: boolean) => void} draw
 */
function drawInParts({ lanes }, pen, left, draw) {
  const { wide, high } = lanes.size, fold = AXIS + lanes.pinHeight;
  drawWithin(pen, left, fold, wide - left, high - fold, () => draw(lanes.listScrolled(), false));
  if (!lanes.pinHeight) return;
  const pinned = lanes.list.slice(0, lanes.pinned);
  drawWithin(pen, left, AXIS, wide - left, lanes.pinHeight, () => draw(pinned, true));
}

/** A pixel near enough to the picture to be drawn to. @param {Scene} scene @param {number} px */
export function limit(scene, px) {
  return Math.min(Math.max(px, GUTTER - FAR), scene.lanes.size.wide + FAR);
}

/** @typedef {{left: number, right: number, y: number, height: number, behind: boolean}} Box */

/**
 * Where a bar is drawn; null where its rank is not.
 * @param {Scene} scene @param {{rank: number, row: number, start: number, end: number}} bar
 * @returns {Box | null}
 */
export function boxOf(scene, bar) {
  if (!scene.chart.groups.has(bar.rank)) return null;
  const { y, height, behind } = scene.lanes.placeOfRow(bar.row), left = scene.axis.x(bar.start);
  return { left, right: Math.max(scene.axis.x(bar.end), left + 1.5), y, height, behind };
}

/** @param {Scene} scene @param {Pen} pen */
function drawLanes(scene, pen) {
  const { timeline, lanes, chart } = scene, { high } = lanes.size;
  timeline.begin(scene.look);
  drawInParts(scene, pen, GUTTER, (groups) => {
    for (const group of groups) {
      for (let row = group.first; row < group.first + group.count; row++) {
        const place = lanes.placeOfRow(row);
        if (place.y + group.pitch < AXIS || place.y > high || place.behind) continue;
        timeline.drawRow(pen, row, place);
        if (timeline.ghost) timeline.drawRow(pen, row + chart.count, lanes.ghostPlace(place));
      }
    }
    timeline.fillBars(pen);
  });
}

/** @param {Scene} scene @param {Pen} pen @param {Tick[]} ticks @param {number} high */
function drawGrid(scene, pen, ticks, high) {
  pen.strokeStyle = scene.look.border;
  pen.globalAlpha = 0.55;
  pen.lineWidth = 1;
  pen.beginPath();
  for (const { ns } of ticks) {
    const x = Math.round(scene.axis.x(ns)) + 0.5;
    if (x < GUTTER) continue;
    pen.moveTo(x, AXIS);
    pen.lineTo(x, high);
  }
  pen.stroke();
  pen.globalAlpha = 1;
}

/** @param {Scene} scene @param {Pen} pen @param {number} high */
function drawMarked(scene, pen, high) {
  const { marked, axis } = scene;
  if (!marked) return;
  const [left, right] = marked.map((ns) => Math.max(axis.x(ns), GUTTER));
  pen.fillStyle = scene.look.accent;
  pen.globalAlpha = marked[0] > axis.shown.from || marked[1] < axis.shown.to ? 0.1 : 0;
  pen.fillRect(left, AXIS, right - left, high - AXIS);
  pen.globalAlpha = 0.8;
  for (const ns of marked) {
    if (axis.x(ns) >= GUTTER) pen.fillRect(Math.round(axis.x(ns)), AXIS, 1, high - AXIS);
  }
  pen.globalAlpha = 1;
}

/** @param {Scene} scene @param {Pen} pen @param {number} wide */
function drawAxis(scene, pen, wide) {
  const { look, axis, marked, chart } = scene;
  pen.fillStyle = look.panel;
  pen.fillRect(0, 0, wide, AXIS);
  pen.font = look.font;
  pen.textBaseline = "middle";
  pen.fillStyle = look.border;
  pen.fillRect(0, AXIS - 1, wide, 1);
  /* Where the window lies in the whole. */
  const room = wide - GUTTER;
  const from = Math.max(0, axis.shown.from / chart.span), to = Math.min(1, axis.shown.to / chart.span);
  if (to - from < 0.999) {
    pen.fillStyle = look.raised;
    pen.fillRect(GUTTER, 0, room, 4);
    pen.fillStyle = look.dim;
    pen.fillRect(GUTTER + from * room, 0, Math.max(3, (to - from) * room), 4);
  }
  if (marked) {
    const left = Math.max(axis.x(marked[0]), GUTTER), right = Math.min(axis.x(marked[1]), wide);
    pen.fillStyle = look.accent;
    if (right > left) pen.fillRect(left, AXIS - 4, right - left, 3);
  }
  pen.fillStyle = look.dim;
  pen.fillText(plural(scene.lanes.list.length, "rank"), 12, AXIS / 2 + 2);
}

/**
 * Name the moments of the axis, but for those that a tag lies over.
 * @param {Pick<Scene, "look" | "axis" | "tags">} scene @param {Pen} pen
 * @param {Tick[]} ticks @param {number} wide
 */
export function drawTicks({ look, axis, tags }, pen, ticks, wide) {
  pen.fillStyle = look.dim;
  pen.font = look.font;
  pen.textBaseline = "middle";
  for (const { ns, text } of ticks) {
    const x = axis.x(ns), room = 4 + textWidth(pen, text);
    if (x < GUTTER - 1 || x + room > wide || !isFree(tags, x, room)) continue;
    pen.fillText(text, x + 4, AXIS / 2 + 2);
    pen.fillRect(Math.round(x), AXIS - 6, 1, 6);
  }
}

/** @typedef {{left: number, right: number}} Tag pixels of the axis that a label takes */

/** @param {Tag[]} tags @param {number} left @param {number} room */
function isFree(tags, left, room) {
  return tags.every((tag) => left >= tag.right + APART || left + room + APART <= tag.left);
}

/**
 * The place nearest to the wanted one where a label lies over no other; the wanted one if there is none.
 * @param {Tag[]} tags @param {number} wanted left @param {number} room
 * @param {number} least left @param {number} most left
 */
export function placeTag(tags, wanted, room, least, most) {
  const beside = tags.flatMap(({ left, right }) => [left - APART - room, right + APART]);
  const inside = [wanted, ...beside].filter((left) => left >= least && left <= most);
  const places = inside.filter((left) => isFree(tags, left, room));
  return places.sort((one, other) => Math.abs(one - wanted) - Math.abs(other - wanted))[0] ?? wanted;
}

/**
 * A label on the axis, in the colours of the text the other way round.
 * @param {Scene} scene @param {Pen} pen @param {string} text @param {number} left @param {number} room
 */
export function drawTag({ look, tags }, pen, text, left, room) {
  tags.push({ left, right: left + room });
  pen.fillStyle = look.text;
  pen.fillRect(left, AXIS - 20, room, 18);
  pen.fillStyle = look.bg;
  pen.font = look.font;
  pen.textBaseline = "middle";
  pen.fillText(text, left + 6, AXIS - 10.5);
}

/* ---- the names of ranks and lanes, left of them ---- */

/** @param {Scene} scene @param {Pen} pen @param {number} wide @param {number} high */
function drawGutter(scene, pen, wide, high) {
  const { look, lanes } = scene;
  pen.fillStyle = look.panel;
  pen.fillRect(0, AXIS, GUTTER, high - AXIS);
  pen.textBaseline = "middle";
  drawInParts(scene, pen, 0, (groups, isPinned) => {
    for (const group of groups) drawNames(scene, pen, wide, group, isPinned);
  });
  pen.fillStyle = look.border;
  pen.fillRect(GUTTER - 1, AXIS, 1, high - AXIS);
  if (!lanes.pinHeight) return;
  pen.fillStyle = look.dim;
  pen.fillRect(0, AXIS + lanes.pinHeight - 1, wide, 1.5);
}

/**
 * @param {Scene} scene @param {Pen} pen @param {number} wide @param {Group} group @param {boolean} isPinned
 */
function drawNames(scene, pen, wide, group, isPinned) {
  const { look, lanes, chart, pointer } = scene, place = lanes.placeOf.get(group.rank) ?? 0;
  const up = AXIS - (isPinned ? 0 : lanes.size.top), ceiling = AXIS + (isPinned ? 0 : lanes.pinHeight);
  const top = up + lanes.y[place], bottom = up + lanes.y[place + 1];
  pen.fillStyle = look.border;
  if (place) pen.fillRect(0, Math.round(top), wide, 1);
  if (scene.chosen === group.rank) {
    pen.fillStyle = look.accent;
    pen.fillRect(0, Math.max(top + 1, ceiling), 3, bottom - Math.max(top + 1, ceiling));
  }
  const y = Math.min(Math.max(top + PAD / 2 + 8, ceiling + 10), Math.max(bottom - 9, top + 9));
  pen.fillStyle = look.dim;
  drawTwisty(pen, 14, y, group.folded);
  pen.font = look.bold;
  pen.fillStyle = look.text;
  const title = "rank " + group.rank;
  pen.fillText(title, 24, y + 0.5);
  group.pinAt = 24 + textWidth(pen, title, title + "\nbold") + 11;
  const holds = scene.pins.includes(group.rank);
  const isNear = pointer && pointer[0] < GUTTER && pointer[1] > top && pointer[1] <= bottom;
  if (holds || isNear) drawPin(pen, group.pinAt, y, holds, holds ? look.accent : look.dim);
  if (group.folded) return;
  pen.font = look.font;
  pen.fillStyle = look.dim;
  for (let row = group.first; row < group.first + group.count; row++) {
    if (chart.rows.level[row]) continue;
    const at = lanes.placeOfRow(row).y + BAR / 2;
    const name = chart.laneName(row), isBeside = Math.abs(at - y) < BAR;
    /* Beside the name of the rank there is room for little more than the number of a stream. */
    const text = isBeside ? cutEnd(pen, name, GUTTER - 18 - group.pinAt) : cutMiddle(pen, name, GUTTER - 24);
    pen.fillText(text, GUTTER - 8 - textWidth(pen, text), at + 0.5);
  }
}

/**
 * A drawing pin; filled where it holds.
 * @param {Pen} pen @param {number} x @param {number} y @param {boolean} holds @param {string} colour
 */
function drawPin(pen, x, y, holds, colour) {
  pen.strokeStyle = pen.fillStyle = colour;
  pen.lineWidth = 1.3;
  pen.beginPath();
  pen.arc(x, y - 2.5, 3.2, 0, 2 * Math.PI);
  if (holds) pen.fill();
  pen.stroke();
  pen.beginPath();
  pen.moveTo(x, y + 0.5);
  pen.lineTo(x, y + 6);
  pen.stroke();
}

/** @param {Pen} pen @param {number} x @param {number} y @param {boolean} folded */
function drawTwisty(pen, x, y, folded) {
  pen.beginPath();
  if (folded) {
    pen.moveTo(x - 2, y - 4);
    pen.lineTo(x + 3, y);
    pen.lineTo(x - 2, y + 4);
  } else {
    pen.moveTo(x - 4, y - 2);
    pen.lineTo(x, y + 3);
    pen.lineTo(x + 4, y - 2);
  }
  pen.fill();
}
