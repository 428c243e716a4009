/** The window of a heatmap: the visible lines and columns, and how the pointer moves it. No DOM. */

/** Lines from low to high and columns from left to right, ends exclusive. */
/** @typedef {readonly [low: number, high: number, left: number, right: number]} Window */
/** @typedef {{ line: number, high: number, column: number, right: number }} Bin lines and columns, ends
   exclusive */
/** @typedef {{ lines: number, ranks: number }} Extent of the whole heatmap */

/** Cells around a bin that is opened: as many as can be drawn one by one. */
const OPENED = { lines: 512, ranks: 1024 };

/** Fingers closer than this count as so far from each other. */
const LEAST_APART = 12;

/**
 * Read a span of an address, such as 120-240, the last included; all where it is wrong.
 * @param {string | null | undefined} text
 * @param {number} end
 * @returns {[number, number]}
 */
function readSpan(text, end) {
  const [, first, last] = (/^(\d+)-(\d+)$/.exec(text ?? "") ?? []).map(Number);
  return first <= last && last < end ? [first, last + 1] : [0, end];
}

/**
 * Read the window of an address.
 * @param {{ rows?: string | null, cols?: string | null }} view
 * @param {Extent} extent
 * @returns {Window}
 */
export function readWindow({ rows, cols }, { lines, ranks }) {
  return [...readSpan(rows, lines), ...readSpan(cols, ranks)];
}

/**
 * Write a window into an address: nothing where it is all.
 * @param {Window} window
 * @param {Extent} extent
 */
export function writeWindow([low, high, left, right], { lines, ranks }) {
  const span = (/** @type {number} */ from, /** @type {number} */ to, /** @type {number} */ end) => {
    const first = Math.max(0, Math.round(from));
    const last = Math.min(end, Math.max(first + 1, Math.round(to)));
    return first === 0 && last === end ? null : `${first}-${last - 1}`;
  };
  return { rows: span(low, high, lines), cols: span(left, right, ranks) };
}

/**
 * Return the window around a bin that is opened.
 * @param {Bin} bin
 * @param {Extent} extent
 * @returns {Window}
 */
export function windowAround({ line, high, column, right }, { lines, ranks }) {
  const span = (/** @type {number} */ middle, /** @type {number} */ size, /** @type {number} */ end) => {
    const first = Math.min(Math.max(0, Math.floor(middle - size / 2)), end - size);
    return /** @type {const} */ ([first, first + size]);
  };
  return [
    ...span((line + high) / 2, Math.min(OPENED.lines, lines), lines),
    ...span((column + right) / 2, Math.min(OPENED.ranks, ranks), ranks),
  ];
}

/**
 * Return a window that is scaled around a place.
 * @param {Window} window
 * @param {number} factor above 1 shows more
 * @param {{ x: number, y: number }} place shares of the window
 * @param {Extent} extent
 * @returns {Window}
 */
export function scaleWindow([low, high, left, right], factor, { x, y }, { lines, ranks }) {
  const tall = Math.min((high - low) * factor, lines), wide = Math.min((right - left) * factor, ranks);
  const line = low + y * (high - low), column = left + x * (right - left);
  return [line - y * tall, line + (1 - y) * tall, column - x * wide, column + (1 - x) * wide];
}

/**
 * Return a window after a turn of the wheel; null if it is at its end.
 * @param {Window} window
 * @param {number} turn below 0 upwards
 * @param {Extent} extent
 * @returns {Window | null}
 */
export function scrollWindow([low, high, left, right], turn, { lines }) {
  const step = Math.sign(turn) * Math.max(1, Math.round((high - low) / 12));
  const by = Math.min(Math.max(step, -low), lines - high);
  return by ? [low + by, high + by, left, right] : null;
}

/**
 * Where fingers are: their middle, as a share of what is drawn, and how far they are from each other in
 * pixels.
 * @typedef {{ x: number, y: number, apart: number }} Grip
 */

/**
 * Return a window that fingers have moved and scaled.
 * @param {Window} window when they took hold of it
 * @param {Grip} start then
 * @param {Grip} now
 * @param {boolean} isPinch whether there is more than one
 * @param {Extent} extent
 * @returns {Window}
 */
export function dragWindow([low, high, left, right], start, now, isPinch, { lines, ranks }) {
  const closer = isPinch ? Math.max(now.apart, LEAST_APART) / Math.max(start.apart, LEAST_APART) : 1;
  /** @type {(from: number, to: number, begin: number, place: number, end: number) => [number, number]} */
  const span = (from, to, begin, place, end) => {
    const long = Math.min((to - from) / closer, end);
    const held = from + begin * (to - from);
    const first = Math.min(Math.max(Math.round(held - place * long), 0), Math.round(end - long));
    return [first, first + Math.max(1, Math.round(long))];
  };
  return [...span(low, high, start.y, now.y, lines), ...span(left, right, start.x, now.x, ranks)];
}
