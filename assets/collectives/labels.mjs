/* What stands around the cells of a heatmap: numbers of ranks, names of lines and sections, bars. */

import { LEAST_LABEL, TOP, cutText, gapOf, labelStep, nameOf, shortenName } from "./layout.mjs";

/** @import { Pen } from "../base/canvas.mjs" */
/** @import { Box, HeatData, Measure, Place } from "./layout.mjs" */
/** @typedef {Record<"text" | "dim" | "border" | "accent" | "bg" | "collective" | "font", string>} Look */

/** What bars are called, by their measure. @type {Record<Measure, string>} */
const BARS = {
  max: "max/mean",
  variation: "var. coeff.",
  gini: "Gini",
  excess: "to move",
  sum: "sent",
};

/** @param {Pen} pen @returns {(text: string) => number} the width of a text in the pen's font */
const ruler = (pen) => (text) => pen.measureText(text).width;

/**
 * Write the numbers of the ranks above the cells, as many as there is room for.
 * @param {Pen} pen @param {Look} look @param {Box} box @param {HeatData} data
 * @param {Place | null} ringed cell
 */
export function drawRanks(pen, look, box, { numbers, across, pairs, window: [, , left] }, ringed) {
  const y = TOP - 10, width = box.cw / across;
  let largest = 0;
  for (const number of numbers) largest = Math.max(largest, number);
  pen.textAlign = "right";
  pen.fillStyle = look.dim;
  pen.fillText(pairs ? "to rank" : "rank", box.x - 8, y);
  pen.textAlign = "center";
  const wide = ruler(pen)(String(largest)), step = labelStep(wide + 12, width);
  for (let index = 0; index < numbers.length; index += step) {
    pen.fillStyle = ringed?.column === index + left ? look.accent : look.dim;
    /* The last one ends with the cells: beside them stands what the bars are called. */
    const x = Math.min(box.x + (index + 0.5) * width, box.x + box.w - wide / 2);
    pen.fillText(String(numbers[index]), x, y);
  }
}

/**
 * Return the pixels that the longest name takes, by a sample of the lines.
 * @param {Pen} pen @param {HeatData} data
 */
export function measureNames(pen, data) {
  const lines = data.shape[0], step = Math.max(1, Math.floor(lines / 400)), measure = ruler(pen);
  let most = 0;
  for (let line = 0; line < lines; line += step) most = Math.max(most, measure(nameOf(data, line)));
  return most + (data.down > 1 ? 52 : 28);
}

/**
 * Write the names of lines beside the cells, as many as there is room for.
 * @param {Pen} pen @param {Look} look @param {Box} box @param {HeatData} data
 * @param {Place | null} pointed bin
 */
export function drawNames(pen, look, box, data, pointed) {
  const room = box.x - box.sections - 16;
  const every = data.pairs
    ? labelStep(LEAST_LABEL, box.ch)
    : Math.max(1, Math.ceil(LEAST_LABEL / box.ch));
  const { down, window: [low, high] } = data, measure = ruler(pen);
  let last = -Infinity;
  pen.textAlign = "right";
  for (let line = 0; line < box.lines; line += every) {
    /* Whole at either end, where a line is lower than its name. */
    const y = Math.min(Math.max(box.y + (line + 0.5) * box.ch, box.y + 6), box.high - LEAST_LABEL / 2 - 1);
    if (y < last + LEAST_LABEL - 0.5) continue;
    last = y;
    if (every > 1 && line) {
      pen.fillStyle = look.border;
      pen.fillRect(box.x - 5, y, 4, 1);
    }
    pen.fillStyle = pointed?.line === line ? look.accent : look.text;
    const more = down > 1 ? ` +${Math.min(down, high - low - line * down) - 1}` : "";
    const left = room - (more ? measure(more) : 0);
    pen.fillText(shortenName(nameOf(data, line), left, measure) + more, box.x - 9, y);
  }
}

/**
 * Write the names of sections at the left, with lines between them.
 * @param {Pen} pen @param {Look} look @param {Box} box @param {HeatData} data
 */
export function drawSections(pen, look, box, { section, sections }) {
  pen.textAlign = "left";
  pen.fillStyle = look.dim;
  for (let line = 1, start = 0; line <= box.lines; line++) {
    if (line < box.lines && section[line] === section[start]) continue;
    const y = box.y + start * box.ch, high = (line - start) * box.ch;
    if (start) {
      pen.fillRect(6, Math.round(y) - 0.5, box.sections - 10, 1);
      pen.fillRect(box.x - 5, Math.round(y) - 0.5, box.w + 5, 1);
    }
    if (high >= LEAST_LABEL - 1) {
      const name = cutText(sections[section[start]] || "", box.sections - 6, false, ruler(pen));
      pen.fillText(name, 6, y + Math.min(high / 2, 9));
    }
    start = line;
  }
}

/**
 * Draw how uneven each line is, as bars beside the cells.
 * @param {Pen} pen @param {Look} look @param {Box} box @param {HeatData} data
 * @param {Measure} measure
 */
export function drawBars(pen, look, box, data, measure) {
  const values = data[measure], least = measure === "max" ? 1 : 0;
  let most = 0;
  for (let line = 0; line < box.lines; line++) if (values[line] > most) most = values[line];
  const x = box.x + box.w + 8, width = box.strip - 14;
  const high = Math.max(1, Math.min(box.ch - gapOf(box.ch), 26));
  pen.fillStyle = look.dim;
  pen.textAlign = "left";
  pen.fillText(BARS[measure], x, TOP - 10);
  pen.fillStyle = look.collective;
  pen.globalAlpha = 0.85;
  for (let line = 0; line < box.lines; line++) {
    if (!(values[line] > least)) continue;
    const share = (values[line] - least) / Math.max(most - least, 1e-12);
    pen.fillRect(x, box.y + line * box.ch, Math.max(1, width * share), high);
  }
  pen.globalAlpha = 1;
}

/**
 * Draw a ring around a bin.
 * @param {Pen} pen @param {Look} look @param {Box} box @param {Place} place
 */
export function drawRing(pen, look, box, { line, column }) {
  const w = Math.max(box.cw, 7), h = Math.max(box.ch, 7);
  const x = box.x + (column + 0.5) * box.cw - w / 2, y = box.y + (line + 0.5) * box.ch - h / 2;
  for (const [width, colour] of /** @type {const} */ ([[4, look.bg], [2, look.accent]])) {
    pen.lineWidth = width;
    pen.strokeStyle = colour;
    pen.strokeRect(x - 1, y - 1, w + 1, h + 1);
  }
  pen.lineWidth = 1;
}

/**
 * Draw the rectangle that is being marked.
 * @param {Pen} pen @param {Look} look
 * @param {{ x: number, y: number, toX: number, toY: number }} drag
 */
export function drawMarked(pen, look, { x, y, toX, toY }) {
  /** @type {[number, number, number, number]} */
  const box = [Math.min(x, toX), Math.min(y, toY), Math.abs(toX - x), Math.abs(toY - y)];
  pen.fillStyle = look.accent;
  pen.globalAlpha = 0.15;
  pen.fillRect(...box);
  pen.globalAlpha = 1;
  pen.strokeStyle = look.accent;
  pen.strokeRect(...box);
}
