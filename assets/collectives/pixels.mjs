/** From cells to pixels: where cells are smaller than pixels, a pixel shows the strongest of them. No
   DOM. */

import { NONE } from "./scale.mjs";

/**
 * Cells by lines.
 * @typedef {object} Cells
 * @property {Uint8Array} codes
 * @property {number} lines
 * @property {number} columns
 * @property {boolean} isDiverging whether the strongest is the one farthest from the middle, not the
 *   largest
 */

/**
 * Return the stronger of two codes.
 * @param {number} one
 * @param {number} other
 * @param {boolean} isDiverging
 */
function stronger(one, other, isDiverging) {
  if (one === NONE) return other;
  if (other === NONE) return one;
  if (isDiverging) return Math.abs(other - 127) > Math.abs(one - 127) ? other : one;
  return other > one ? other : one;
}

/**
 * Make one line of several.
 * @param {Cells} cells
 * @param {number} low
 * @param {number} high exclusive
 * @param {Uint8Array} line that is written
 */
function mergeLines({ codes, columns, isDiverging }, low, high, line) {
  line.set(codes.subarray(low * columns, (low + 1) * columns));
  for (let place = (low + 1) * columns, column = 0; place < high * columns; place++, column++) {
    if (column === columns) column = 0;
    if (codes[place] !== NONE) line[column] = stronger(line[column], codes[place], isDiverging);
  }
}

/**
 * Paint cells into pixels. Lines that share a row of pixels are first made one, so each cell and pixel is
 * seen once.
 * @param {Cells} cells
 * @param {Uint32Array} table pixel of each code
 * @param {Uint32Array} out wide × high pixels, empty
 * @param {{ wide: number, high: number, gapX: number, gapY: number }} size in pixels; gaps stay empty
 *   after each cell
 */
export function paintCells(cells, table, out, { wide, high, gapX, gapY }) {
  const { lines, columns, isDiverging } = cells;
  const line = new Uint8Array(columns);
  const starts = Int32Array.from({ length: wide + 1 }, (_, x) =>
    Math.min(columns, Math.floor((x * columns) / wide)),
  );
  let painted = -1, paintedAt = 0;
  for (let y = 0; y < high; y++) {
    const low = Math.floor((y * lines) / high);
    const end = Math.max(low + 1, Math.floor(((y + 1) * lines) / high));
    if (gapY && Math.floor(((y + gapY) * lines) / high) > low) continue;
    if (low === painted && end === low + 1) {
      out.copyWithin(y * wide, paintedAt, paintedAt + wide);
      continue;
    }
    mergeLines(cells, low, end, line);
    for (let x = 0; x < wide; x++) {
      const from = starts[x], to = Math.max(from + 1, starts[x + 1]);
      if (gapX && Math.floor(((x + gapX) * columns) / wide) > from) continue;
      let code = line[from];
      for (let column = from + 1; column < to; column++) code = stronger(code, line[column], isDiverging);
      if (code !== NONE) out[y * wide + x] = table[code];
    }
    painted = low;
    paintedAt = y * wide;
  }
}
