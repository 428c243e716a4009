/** Where the parts of a heatmap stand, and what its lines are called. No DOM. */

import { formatBytes, formatDigits, formatRate, formatTime, plural } from "../base/format.mjs";

/** @import { Bin, Window } from "./windows.mjs" */

/**
 * What the server packs: studio/server/collectives.py, and traffic.py for pairs of ranks.
 * @typedef {object} HeatData
 * @property {readonly [number, number]} shape lines and columns of bins
 * @property {Window} window what the bins cover
 * @property {number} down lines of the heatmap in a bin
 * @property {number} across columns of the heatmap in a bin
 * @property {number} lines of the whole heatmap
 * @property {number} ranks of the whole heatmap
 * @property {Float32Array} values by bin
 * @property {Int32Array} numbers of the ranks in the window
 * @property {Int32Array} name index into names, by line, negative between sections
 * @property {Int32Array} type index into types, by line
 * @property {Int32Array} nth how often it came before, by line; negative if it is the only one
 * @property {Int32Array} group index into groups, by line; negative for none
 * @property {Int32Array} section index into sections, by line
 * @property {string[]} names
 * @property {string[]} types
 * @property {string[]} groups
 * @property {string[]} sections
 * @property {boolean} folded whether each line adds up a section
 * @property {boolean} [pairs] whether lines are ranks too
 * @property {"ratio" | "bytes" | "ns" | "bytes_per_ns"} unit
 * @property {Float32Array} [figures] what ratios are of, by bin: each group of a line has a mean of its own
 * @property {"bytes" | "ns" | "bytes_per_ns"} measured unit of these figures
 * @property {Float64Array} max over the mean, by line
 * @property {Float64Array} variation by line
 * @property {Float64Array} gini by line
 * @property {Float64Array} excess by line
 * @property {Float64Array} sum by line, of pairs
 * @property {import("./scale.mjs").Range} range
 * @property {Record<"sequential" | "diverging", Record<string, string[]>>} colours by theme
 * @property {string} metric
 * @property {boolean} relative
 * @property {boolean} timed whether the job has times
 */

/** @typedef {"max" | "variation" | "gini" | "excess" | "sum"} Measure */
/** @typedef {{ line: number, column: number }} Place */

/** Pixels above the cells. */
export const TOP = 30;

/** Pixels that a line with a label takes at least. */
export const LEAST_LABEL = 14;

const GUTTER = 330;
const STRIP = 58;
const SECTION = 92;
const WIDEST_CELL = 96;
const HIGHEST_CELL = 26;

/** Pixels of a cell from which there is a gap between two. */
const GAP_FROM = 7;

/**
 * Where the parts stand, in pixels of the page.
 * @typedef {object} Box
 * @property {number} wide of all
 * @property {number} high of all
 * @property {number} x where cells begin
 * @property {number} y where cells begin
 * @property {number} w of all cells
 * @property {number} h of all cells
 * @property {number} cw of a cell
 * @property {number} ch of a cell
 * @property {number} lines
 * @property {number} columns
 * @property {number} sections width of the names of sections
 * @property {number} strip width of the bars beside the cells
 */

/**
 * Lay a heatmap out.
 * @param {HeatData} data
 * @param {number} wide
 * @param {number} high
 * @param {object} options
 * @param {boolean} options.narrow without sections and bars
 * @param {number} options.lines of a heatmap beside it: lines stand at the same height
 * @param {number} options.widest pixels of the longest name
 * @returns {Box}
 */
export function layOut({ shape: [lines, columns], folded, sections: names }, wide, high, options) {
  const { narrow } = options;
  const sections = !narrow && !folded && names.length > 1 ? SECTION : 0;
  const strip = narrow ? 0 : STRIP;
  /* What tells names apart stands at either end of them: they have room before the cells do. */
  const x = Math.min(Math.max(options.widest, 90), GUTTER, wide * (narrow ? 0.45 : 0.4)) + sections;
  const room = Math.max(high - TOP - 2, 20);
  const count = Math.max(lines, options.lines);
  const w = Math.min(Math.max(wide - x - strip - 12, 40), columns * WIDEST_CELL);
  const ch = Math.min(room, count * HIGHEST_CELL) / count;
  return {
    wide, high, x, y: TOP, w, h: ch * lines, cw: w / columns, ch, lines, columns, sections, strip,
  };
}

/**
 * Return the gap after a cell of a size.
 * @param {number} size
 */
export function gapOf(size) {
  return size >= GAP_FROM ? 1 : 0;
}

/**
 * Return which bin is under a point; null beside the cells.
 * @param {Box} box
 * @param {number} x
 * @param {number} y
 * @returns {Place | null}
 */
export function binUnder(box, x, y) {
  if (x < box.x || y < box.y || x >= box.x + box.w || y >= box.y + box.h) return null;
  return {
    line: Math.min(Math.floor((y - box.y) / box.ch), box.lines - 1),
    column: Math.min(Math.floor((x - box.x) / box.cw), box.columns - 1),
  };
}

/**
 * Return the lines and columns of the heatmap in a bin.
 * @param {HeatData} data
 * @param {Place} place
 * @returns {Bin}
 */
export function cellsIn({ window: [low, end, left, last], down, across }, { line, column }) {
  const first = low + line * down, start = left + column * across;
  return {
    line: first,
    high: Math.min(first + down, end),
    column: start,
    right: Math.min(start + across, last),
  };
}

/**
 * Whether a bin holds several cells.
 * @param {Bin} bin
 */
export function isBinned({ line, high, column, right }) {
  return high - line > 1 || right - column > 1;
}

/**
 * Return the bin that a cell of the heatmap is in; null if it is not in the window.
 * @param {HeatData} data
 * @param {Place} cell
 * @returns {Place | null}
 */
export function binOf({ window: [low, high, left, right], down, across }, { line, column }) {
  if (line < low || line >= high || column < left || column >= right) return null;
  return { line: Math.floor((line - low) / down), column: Math.floor((column - left) / across) };
}

/**
 * Return what a line is called.
 * @param {HeatData} data
 * @param {number} line
 */
export function nameOf(data, line) {
  if (data.folded) return data.sections[data.section[line]] || "all collectives";
  if (data.name[line] < 0) return "";
  const name = data.names[data.name[line]] || data.types[data.type[line]] || "";
  return data.nth[line] >= 0 ? `${name} #${data.nth[line] + 1}` : name;
}

/**
 * Write a figure with its unit.
 * @param {number} value
 * @param {"ratio" | "bytes" | "ns" | "bytes_per_ns"} unit
 */
export function formatFigure(value, unit) {
  if (unit === "ns") return formatTime(value);
  if (unit === "bytes") return formatBytes(value);
  if (unit === "bytes_per_ns") return formatRate(value);
  if (!Number.isFinite(value)) return "–";
  return `${value === 0 ? "0" : formatDigits(value)}×`;
}

/**
 * Return the lines of the tooltip of a bin.
 * @param {HeatData} data
 * @param {Place} place
 */
export function describeBin(data, place) {
  const { numbers, across, shape, unit, pairs } = data;
  const { line, high, column, right } = cellsIn(data, place);
  const bin = place.line * shape[1] + place.column, value = data.values[bin];
  const first = place.column * across, last = Math.min(first + across, numbers.length) - 1;
  const ranks = right - column > 1 ? `${numbers[first]} to ${numbers[last]}` : String(numbers[first]);
  const group = data.group[place.line] >= 0 ? data.groups[data.group[place.line]] || "all ranks" : "";
  let figure = formatFigure(value, unit);
  if (value !== value) figure = pairs ? "nothing between them" : "takes no part";
  else if (unit === "ratio") {
    figure += " the mean";
    if (data.figures) figure += `, ${formatFigure(data.figures[bin], data.measured)}`;
  }
  return [
    nameOf(data, place.line),
    (pairs ? "to rank " : "rank ") + ranks + (group && ` · group ${group}`),
    figure,
    (data.down > 1 || across > 1) &&
      `the largest of ${high - line} × ${right - column} cells; click to open`,
  ].filter(Boolean);
}

/**
 * Say how much of a heatmap is in sight.
 * @param {HeatData} data
 */
export function describeWindow(data) {
  const { window: [low, high, left, right], lines, ranks, down, across, folded, pairs } = data;
  const shown = high - low, noun = pairs ? "rank" : folded ? "row" : "collective";
  const part = shown < lines ? `${shown.toLocaleString("en")} of ` : "";
  const nouns = shown === 1 ? noun : `${noun}s`;
  const rows = part ? `${part}${lines.toLocaleString("en")} ${nouns}` : plural(shown, noun);
  const columns = `${(right - left).toLocaleString("en")} ${ranks === 1 ? "rank" : "ranks"}`;
  const binned = down > 1 || across > 1 ? `; a cell is the largest of ${down} × ${across}` : "";
  return `${rows} × ${columns}${binned}`;
}

/**
 * Return every how many ranks a number has room: a power of two, as nodes and groups of neighbours have.
 * @param {number} widest pixels that a number needs
 * @param {number} width pixels of a rank
 */
export function labelStep(widest, width) {
  return 2 ** Math.ceil(Math.log2(Math.max(1, Math.ceil(widest / width))));
}

/**
 * Cut a text to a width, at its beginning or its end.
 * @param {string} text
 * @param {number} room
 * @param {boolean} keepsEnd
 * @param {(text: string) => number} measure
 */
export function cutText(text, room, keepsEnd, measure) {
  if (measure(text) <= room) return text;
  const part = (/** @type {number} */ length) =>
    keepsEnd ? `…${text.slice(text.length - length)}` : `${text.slice(0, length)}…`;
  let low = 0, high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (measure(part(middle)) <= room) low = middle;
    else high = middle - 1;
  }
  return low ? part(low) : "";
}

/**
 * Shorten a name to a width, its first words first: numbers and the first letters of words tell names apart,
 * wherever in them they stand.
 * @param {string} name
 * @param {number} room
 * @param {(text: string) => number} measure
 */
export function shortenName(name, room, measure) {
  if (measure(name) <= room) return name;
  const parts = name.split(/(\p{L}+)/u);
  for (const letters of [3, 1]) {
    for (let word = 1; word < parts.length; word += 2) {
      parts[word] = parts[word].slice(0, letters);
      const short = parts.join("");
      if (measure(short) <= room) return short;
    }
  }
  return cutText(parts.join(""), room, true, measure);
}

/**
 * Say why there is no figure to draw.
 * @param {Pick<HeatData, "pairs">} data
 */
export function describeNothing({ pairs }) {
  return pairs
    ? "This job has neither messages nor all-to-alls; of others the system decides who sends to whom."
    : "No collective of this job has this figure: show another one.";
}
