/**
 * Numbers as text, the same as studio/units.py writes them (tests/data/formats.json checks both).
 *
 * Three significant digits, whole numbers below 1,000 exactly; the unit is chosen after rounding.
 */

import { isNumeric } from "./csv.mjs";

/** @typedef {ReadonlyArray<readonly [string, number]>} Units names and sizes, smallest first */

/** @type {Units} */
export const TIMES = [["ns", 1], ["µs", 1e3], ["ms", 1e6], ["s", 1e9], ["min", 60e9], ["h", 3600e9]];

const NAMES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
/** @type {Units} */
export const SIZES = NAMES.map((unit, power) => [unit, 1024 ** power]);

/** Sizes are bytes per nanosecond. @type {Units} */
export const RATES = [
  ["B/s", 1e-9], ["kB/s", 1e-6], ["MB/s", 1e-3], ["GB/s", 1], ["TB/s", 1e3], ["PB/s", 1e6],
];

/** How many of the largest unit are written out. */
const FAR = 1e7;

/** Stands where a number would: 0 bytes in 0 ns have no rate. */
const UNDEFINED = "–";

/**
 * Units of time the user can choose: name, nanoseconds, most decimals.
 *
 * @type {Record<string, [string, number, number]>}
 */
const CHOSEN = { s: ["s", 1e9, 9], ms: ["ms", 1e6, 6], us: ["µs", 1e3, 3], ns: ["ns", 1, 0] };

/**
 * The unit the user chose for all times ("s", "ms", "us", "ns"), or "auto". The server reads the same cookie.
 *
 * @returns {string}
 */
export function timeUnit() {
  const cookie = typeof document === "undefined" ? "" : document.cookie;
  const match = /(?:^|; )studio-time=(s|ms|us|ns)(?:;|$)/.exec(cookie);
  return match?.[1] ?? "auto";
}

/**
 * Write a number with a fixed count of decimals and commas, rounding ties to even as Python does.
 *
 * @param {number} value
 * @param {number} [places]
 * @returns {string}
 */
export function formatFixed(value, places = 0) {
  const size = Math.abs(value);
  let digits = size.toFixed(places);
  // toFixed rounds ties away from zero. A tie is an odd multiple of 2^-(places + 1).
  const halves = size * 2 ** (places + 1);
  const isTie = Number.isInteger(halves) && halves % 2 === 1;
  if (isTie && Number(digits.at(-1)) % 2 === 1) digits = (size - 10 ** -(places + 3)).toFixed(places);
  const [whole = "", decimals] = digits.split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return (value < 0 ? "-" : "") + (decimals === undefined ? grouped : `${grouped}.${decimals}`);
}

/**
 * Write a size with three significant digits, never fewer than its whole part has.
 *
 * @param {number} size at least 0
 * @returns {string}
 */
export function formatDigits(size) {
  for (const [places, limit] of /** @type {[number, number][]} */ ([[2, 10], [1, 100]])) {
    const text = formatFixed(size, places);
    if (Number(text.replaceAll(",", "")) < limit) return text;
  }
  return formatFixed(size, 0);
}

/**
 * Write a value in the first unit that keeps it, rounded, below the next one.
 *
 * @param {number} value
 * @param {Units} units
 * @returns {string}
 */
function formatScaled(value, units) {
  if (!Number.isFinite(value)) return UNDEFINED;
  const size = Math.abs(value), sign = value < 0 ? "-" : "";
  const [smallest, scale] = units[0] ?? ["", 1];
  // Nanoseconds and bytes are counted, not measured: 12 ns, not 12.0 ns. Nothing is 0, not 0.00.
  if (size === 0 || (scale === 1 && size < (units[1]?.[1] ?? 0) && Number.isInteger(size))) {
    return `${sign}${formatFixed(size)} ${smallest}`;
  }
  for (let index = 0; ; index++) {
    const [unit, factor] = units[index] ?? ["", 1], next = units[index + 1];
    const digits = formatDigits(size / factor);
    // What lies far beyond the largest unit is a mistake somewhere; it need not break the line as well.
    if (!next && size >= FAR * factor) {
      return `${sign}${(size / factor).toExponential(2).replace(/e([+-])(\d)$/, "e$10$2")} ${unit}`;
    }
    const isBelowNext = !next || Number(digits.replaceAll(",", "")) < Math.round(next[1] / factor);
    if (isBelowNext) return `${sign}${digits} ${unit}`;
  }
}

/**
 * Write a time in the unit that suits its size, or in the one the user chose.
 *
 * @param {number} ns
 * @param {string} [chosen] a key of CHOSEN; anything else leaves it to the size
 * @returns {string}
 */
export function formatTime(ns, chosen = timeUnit()) {
  const unit = CHOSEN[chosen];
  if (!unit || !Number.isFinite(ns)) return formatScaled(ns, TIMES);
  const size = Math.abs(ns) / unit[1];
  const places = Math.max(0, Math.min(unit[2], size ? 2 - Math.floor(Math.log10(size)) : 0));
  return `${ns < 0 ? "-" : ""}${formatFixed(size, places)} ${unit[0]}`;
}

/**
 * Write a moment, with decimals that tell neighbours in a run of `spanNs` apart.
 *
 * @param {number} ns since the start of the run
 * @param {number} spanNs
 * @param {string} [chosen] a key of CHOSEN; anything else leaves it to the span
 * @returns {string}
 */
export function formatMoment(ns, spanNs, chosen = timeUnit()) {
  const isShort = spanNs < 1e7, unit = CHOSEN[chosen];
  const sign = ns < 0 ? "-" : "", size = Math.abs(ns);
  if (unit) {
    const places = Math.max(0, unit[2] - (isShort ? 0 : 3));
    return `${sign}${formatFixed(size / unit[1], places)} ${unit[0]}`;
  }
  const thousandths = Math.floor(isShort ? size + 0.5 : (size + 500) / 1000);
  const rest = String(thousandths % 1000).padStart(3, "0");
  return `${sign}${formatFixed(Math.floor(thousandths / 1000))}.${rest} ${isShort ? "µs" : "ms"}`;
}

/**
 * Write a size in binary units.
 *
 * @param {number} bytes
 * @returns {string}
 */
export function formatBytes(bytes) {
  return formatScaled(bytes, SIZES);
}

/**
 * Write a rate in decimal units, as networks and memories are sold.
 *
 * @param {number} bytesPerNs
 * @returns {string}
 */
export function formatRate(bytesPerNs) {
  return formatScaled(bytesPerNs, RATES);
}

/**
 * Write a whole number of things in full.
 *
 * @param {number} count
 * @returns {string}
 */
export function formatCount(count) {
  return formatFixed(count);
}

/**
 * Write a number of a table as a reader takes it in: whole ones in full, others by four digits. Words stay as
 * they are.
 *
 * @param {unknown} value
 * @returns {string}
 */
export function formatCell(value) {
  const number = Number(value);
  if (!isNumeric(value) || !Number.isFinite(number)) return String(value ?? "");
  const isLarge = Math.abs(number) >= 1e4;
  if (Number.isInteger(number)) {
    return isLarge && Number.isSafeInteger(number) ? formatCount(number) : String(value);
  }
  return isLarge ? formatCount(number) : String(Number(number.toPrecision(4)));
}

/**
 * Write a share as per cent.
 *
 * @param {number} share 1 is all
 * @param {number} [places]
 * @returns {string}
 */
export function formatShare(share, places = 1) {
  return `${formatFixed(100 * share, places)} %`;
}

/**
 * Write a number of things with their noun.
 *
 * @param {number} count
 * @param {string} noun for one of them
 * @param {string} [nouns] for several, if it is not the noun with an s
 * @returns {string}
 */
export function plural(count, noun, nouns = `${noun}s`) {
  return `${formatCount(count)} ${count === 1 ? noun : nouns}`;
}
