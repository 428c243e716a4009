/* The picture of a comparison: a pane for each run, or one for all of them lane by lane. */

import { formatTime } from "../base/format.mjs";
import { drawWithin } from "../timeline/draw.mjs";
import { formatSigned } from "../timeline/ghost.mjs";
import { barsOf, joinBoxes } from "../timeline/pieces.mjs";
import { textWidth } from "../timeline/text.mjs";
import { AXIS, GAP, GUTTER, HEAD, LETTERS, judge, placeLane } from "./layout.mjs";

/** @import { Pen } from "../base/canvas.mjs" */
/** @import { Tick } from "../timeline/axis.mjs" */
/** @import { Comparison } from "./comparison.mjs" */
/** @import { Pane } from "./layout.mjs" */

const BARS_FROM = 8; /* pixels of a lane in which bars are drawn one by one */

/**
 * @param {Pen} pen @param {string} fill @param {number} x @param {number} y @param {number} wide
 * @param {number} high
 */
function fillBox(pen, fill, x, y, wide, high) {
  pen.fillStyle = fill;
  pen.fillRect(x, y, wide, high);
}

/**
 * Write a text, and say how wide it is.
 * @param {Pen} pen @param {string} fill @param {string} text @param {number} x @param {number} y
 */
function write(pen, fill, text, x, y) {
  pen.fillStyle = fill;
  pen.fillText(text, x, y);
  return textWidth(pen, text, pen.font + "\n" + text);
}

/**
 * Draw everything with a pen: that of the canvas, or one that writes SVG.
 * @param {Comparison} comparison @param {Pen} pen
 */
export function drawComparison(comparison, pen) {
  const { surface: { wide, high }, look, sides } = comparison, ticks = comparison.axis.makeTicks();
  fillBox(pen, look.bg, 0, 0, wide, high);
  pen.textBaseline = "middle";
  for (const { timeline } of sides) timeline.begin(look);
  for (const pane of comparison.listPanes()) {
    drawWithin(pen, 0, pane.top, wide, pane.high, () => {
      drawGround(comparison, pen, pane, ticks);
      drawLanes(comparison, pen, pane);
      drawRings(comparison, pen, pane);
      drawNames(comparison, pen, pane);
      drawHead(comparison, pen, pane);
      drawFinishes(comparison, pen, pane);
    });
    fillBox(pen, look.border, 0, pane.top, wide, 1);
  }
  drawAxis(comparison, pen, ticks);
}

/**
 * Before its beginning and after its finish a run is not under way: the ground says so.
 * @param {Comparison} comparison @param {Pen} pen @param {Pane} pane @param {Tick[]} ticks
 */
function drawGround(comparison, pen, pane, ticks) {
  const { axis, look, surface: { wide } } = comparison, { top, high } = pane;
  if (!comparison.isOverlay) {
    const { timeline } = comparison.sides[pane.sides[0]];
    const begin = timeline.x(0), end = Math.max(timeline.x(timeline.chart.span), GUTTER);
    if (end < wide) fillBox(pen, look.raised, end, top, wide - end, high);
    if (begin > GUTTER) fillBox(pen, look.raised, GUTTER, top, begin - GUTTER, high);
  }
  for (const { ns } of ticks) fillBox(pen, look.raised, axis.x(ns), top, 1, high);
  for (const entry of comparison.listVisible(pane).slice(1)) {
    fillBox(pen, look.raised, 0, comparison.yOf(pane, entry) - GAP / 2, wide, 1);
  }
}

/** @param {Comparison} comparison @param {Pen} pen @param {Pane} pane */
function drawLanes(comparison, pen, pane) {
  const lanes = pane.sides.length, { wide } = comparison.surface;
  drawWithin(pen, GUTTER, pane.top + HEAD, wide - GUTTER, pane.high - HEAD, () => {
    for (const [lane, side] of pane.sides.entries()) {
      const { timeline, slots } = comparison.sides[side];
      for (const entry of comparison.listVisible(pane)) {
        const { y, tall } = placeLane(entry, lanes, lane), rows = slots.get(entry.rank);
        const height = Math.max(tall - (lanes > 1 ? 0.5 : 0), 1), top = comparison.yOf(pane, entry) + y;
        for (const [place, slot] of entry.slots.entries()) {
          const row = rows?.get(slot);
          if (row === undefined) continue;
          timeline.drawRow(pen, row, { y: top + place * entry.pitch, height, thin: height < BARS_FROM });
        }
      }
      timeline.fillBars(pen);
    }
  });
}

/** The selected node. @param {Comparison} comparison @param {Pen} pen @param {Pane} pane */
function drawRings(comparison, pen, pane) {
  const { look, surface: { wide } } = comparison;
  for (const side of pane.sides) {
    const choice = comparison.selected[side], { timeline } = comparison.sides[side];
    const place = choice && choice.row !== null && comparison.placeOf(pane, side, choice.row);
    if (!place || choice.start === null || place.y < pane.top + HEAD - place.tall) continue;
    const { y, tall: height } = place;
    const bars = barsOf({ ...choice, row: choice.row ?? 0, start: choice.start });
    const boxes = bars.map(({ start, end }) => {
      return { left: Math.max(timeline.x(start), GUTTER), right: timeline.x(end), y, height, behind: false };
    });
    pen.strokeStyle = look.accent;
    pen.lineWidth = 2;
    for (const { left, right } of joinBoxes(boxes.filter((box) => box.right >= GUTTER && box.left <= wide))) {
      pen.strokeRect(left - 1.5, y - 1.5, Math.max(right - left, 2) + 3, Math.max(height, 3) + 3);
    }
  }
}

/** The names of the ranks. @param {Comparison} comparison @param {Pen} pen @param {Pane} pane */
function drawNames(comparison, pen, pane) {
  const { look } = comparison;
  fillBox(pen, look.panel, 0, pane.top, GUTTER, pane.high);
  pen.font = look.font;
  for (const entry of comparison.listVisible(pane)) {
    const y = comparison.yOf(pane, entry) + Math.min(entry.height, 13) / 2;
    const title = (entry.folded ? "▸ " : "▾ ") + "rank " + entry.rank;
    if (y > pane.top + HEAD + 4) write(pen, look.dim, title, 8, y);
  }
}

/**
 * Which runs a pane shows, when they finish, and how much later that is than in A.
 * @param {Comparison} comparison @param {Pen} pen @param {Pane} pane
 */
function drawHead(comparison, pen, pane) {
  const { look, names, sides, surface: { wide } } = comparison, first = sides[0].timeline.chart.span;
  const y = pane.top + HEAD / 2 + 0.5, bold = "600 11px " + look.family;
  fillBox(pen, look.panel, 0, pane.top, wide, HEAD);
  pen.font = look.font;
  if (pane.sides.length > 1) {
    const text = "in each lane, from above: " + pane.sides.map((side) => LETTERS[side]).join(", ");
    write(pen, look.dim, text, wide - 10 - textWidth(pen, text), y);
  }
  /* Where names of several sides do not fit beside each other, letters do: whose they are stands above. */
  const needed = pane.sides.reduce((sum, side) => sum + (names[side] || "").length * 6.6 + 210, 8);
  const isLettered = comparison.isOverlay && needed > wide - 200;
  let left = 8;
  for (const side of pane.sides) {
    const { span } = sides[side].timeline.chart, isApart = comparison.unranked[side];
    const verdict = isApart ? "same" : judge(span, first);
    pen.font = bold;
    const title = LETTERS[side] + (isLettered ? "" : "  " + (names[side] || ""));
    left += write(pen, look.text, title, left, y) + 14;
    pen.font = look.font;
    const than = isApart ? "not ranked" : verdict === "same" ? "= A" : formatSigned(span - first);
    const more = side ? "  " + than : "";
    const colour = verdict === "same" ? look.dim : look[verdict];
    left += write(pen, colour, "finish " + formatTime(span) + more, left, y) + 26;
  }
}

/** @param {Comparison} comparison @param {Pen} pen @param {Pane} pane */
function drawFinishes(comparison, pen, pane) {
  const { look, sides, surface: { wide } } = comparison, first = sides[0].timeline.chart.span;
  for (const side of pane.sides) {
    const { timeline } = sides[side], { span } = timeline.chart;
    const end = timeline.x(span), verdict = comparison.unranked[side] ? "same" : judge(span, first);
    if (end < GUTTER || end > wide) continue;
    fillBox(pen, verdict === "same" ? look.dim : look[verdict], end, pane.top + HEAD, 1, pane.high - HEAD);
    if (!comparison.isOverlay) continue;
    pen.font = "600 11px " + look.family;
    write(pen, look.text, LETTERS[side], end + 4, pane.top + HEAD + 8);
  }
}

/** @param {Comparison} comparison @param {Pen} pen @param {Tick[]} ticks */
function drawAxis(comparison, pen, ticks) {
  const { look, axis, pointer, surface: { wide, high } } = comparison;
  fillBox(pen, look.panel, 0, 0, wide, AXIS);
  pen.font = look.font;
  write(pen, look.dim, comparison.offsets.some(Boolean) ? "time of A" : "time", 8, AXIS / 2);
  for (const { ns, text } of ticks) {
    const x = axis.x(ns);
    if (x < GUTTER) continue;
    fillBox(pen, look.border, x, AXIS - 5, 1, 5);
    if (x + 4 + textWidth(pen, text) < wide) write(pen, look.dim, text, x + 4, AXIS / 2);
  }
  if (pointer && pointer[0] > GUTTER && !comparison.hands.isDragging()) {
    fillBox(pen, look.dim, pointer[0], AXIS, 1, high - AXIS);
  }
}
