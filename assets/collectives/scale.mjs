/** How figures become colours. No DOM. */

/**
 * The least and the largest figure of a heatmap, and the least above 0; null where it has none. Where few
 * figures lie far beyond the others, `usual` is up to which of them, or of ratios how far from 1, colours
 * are told apart.
 * @typedef {{ least: number | null, most: number | null, positive: number | null,
 *   usual?: number | null }} Range
 */

/** Code of a cell without a figure; all others are places on the scale. */
export const NONE = 255;

const TOP = NONE - 1;

/** Where a logarithmic scale has zero, as a share, if it has it: apart from the least figure above it. */
const ZERO_APART = 0.06;

/**
 * A scale from figures to shares of its length.
 * @typedef {object} Scale
 * @property {number} low figure at its beginning
 * @property {number} middle
 * @property {number} high
 * @property {boolean} isLinear
 * @property {boolean} [isCutLow] whether figures lie below its beginning
 * @property {boolean} [isCutHigh] whether figures lie beyond its end
 * @property {(value: number) => number} shareOf from 0 to 1
 */

/**
 * Return the range of two heatmaps that share a scale.
 * @param {Range} one
 * @param {Range | null} other
 * @param {boolean} isRatio whether figures are shares of the mean
 * @returns {Range}
 */
export function joinRanges(one, other, isRatio) {
  if (!other || other.most === null) return one;
  const least = (/** @type {number | null} */ a, /** @type {number | null} */ b) =>
    a === null || b === null ? (a ?? b) : Math.min(a, b);
  const far = (/** @type {Range} */ range) => range.usual ?? (isRatio ? farthest(range) : (range.most ?? 0));
  const isWhole = (one.usual ?? null) === null && (other.usual ?? null) === null;
  return {
    least: least(one.least, other.least),
    most: Math.max(one.most ?? other.most, other.most),
    positive: least(one.positive, other.positive),
    usual: isWhole ? null : Math.max(far(one), far(other)),
  };
}

/** How far from the mean figures lie. @param {Range} range */
const farthest = ({ least, most }) => Math.max((most ?? 1) - 1, 1 - (least ?? 1));

/**
 * Return the scale of shares of the mean: 1 in its middle, and as far down as up, but never below nothing.
 * @param {Range} range
 * @param {boolean} isLog
 * @returns {Scale}
 */
function makeRatioScale(range, isLog) {
  const least = range.least ?? 1, most = range.most ?? 1, positive = range.positive ?? most;
  const usual = range.usual ?? null;
  /** @param {number} low @param {number} high */
  const ends = (low, high) => ({
    low,
    middle: 1,
    high,
    isCutLow: least < low * (1 - 1e-9),
    isCutHigh: most > high * (1 + 1e-9),
  });
  if (!isLog) {
    const far = Math.max(usual ?? farthest(range), 0.01);
    const shareOf = (/** @type {number} */ value) => 0.5 + (value - 1) / (2 * far);
    return { ...ends(Math.max(0, 1 - far), 1 + far), isLinear: true, shareOf };
  }
  const whole = Math.max(Math.log2(Math.max(most, 1)), -Math.log2(Math.min(positive, 1)));
  const fold = Math.max(usual === null ? whole : Math.log2(1 + usual), 0.015);
  const shareOf = (/** @type {number} */ value) => (value > 0 ? 0.5 + Math.log2(value) / (2 * fold) : 0);
  return { ...ends(2 ** -fold, 2 ** fold), isLinear: false, shareOf };
}

/**
 * Return the scale of a range.
 * @param {Range} range that has figures
 * @param {boolean} isRatio whether figures are shares of the mean
 * @param {boolean} isLog
 * @returns {Scale}
 */
export function makeScale(range, isRatio, isLog) {
  const least = range.least ?? 0, most = range.most ?? 0, positive = range.positive ?? most;
  if (isRatio) return makeRatioScale(range, isLog);
  if (isLog && positive > 0 && most > positive) {
    const bottom = Math.log(positive), width = Math.log(most) - bottom;
    const zero = least <= 0 ? ZERO_APART : 0;
    const shareOf = (/** @type {number} */ value) =>
      value > 0 ? zero + ((1 - zero) * (Math.log(value) - bottom)) / width : 0;
    const low = least <= 0 ? 0 : positive;
    return { low, middle: Math.exp(bottom + width / 2), high: most, isLinear: false, shareOf };
  }
  if (most === least) return { low: least, middle: most, high: most, isLinear: false, shareOf: () => 0.75 };
  /* Small differences stay visible: the scale begins at zero only if values come near it. */
  const high = Math.max(range.usual ?? most, least);
  const from = least > 0 && least / high > 0.5 && least < high ? least : Math.min(0, least);
  const shareOf = (/** @type {number} */ value) => (value - from) / (high - from);
  return { low: from, middle: (from + high) / 2, high, isLinear: true, isCutHigh: most > high, shareOf };
}

/**
 * Return figures as codes: places on the scale, NONE where there is no figure.
 * @param {Float32Array | Float64Array} values
 * @param {Scale} scale
 */
export function codeValues(values, { isLinear, shareOf }) {
  const codes = new Uint8Array(values.length);
  /* Most of the time of a large heatmap would go into calls: a linear scale needs none for each figure. */
  const slope = isLinear ? TOP * (shareOf(1) - shareOf(0)) : 0;
  const base = isLinear ? TOP * shareOf(0) : 0;
  for (let index = 0; index < values.length; index++) {
    const value = values[index];
    const place = (isLinear ? value * slope + base : TOP * shareOf(value)) + 0.5;
    codes[index] = value !== value ? NONE : place < 0 ? 0 : place > TOP ? TOP : place;
  }
  return codes;
}

/**
 * Return the colour of each code, as a pixel in memory: alpha, blue, green, red from the highest byte down.
 * @param {readonly (readonly [number, number, number])[]} stops evenly along the scale
 */
export function makeRamp(stops) {
  const table = new Uint32Array(NONE + 1);
  for (let code = 0; code < NONE; code++) {
    const place = (code / TOP) * (stops.length - 1);
    const before = Math.min(Math.floor(place), stops.length - 2), share = place - before;
    const [red, green, blue] = stops[before].map((part, index) =>
      Math.round(part + (stops[before + 1][index] - part) * share),
    );
    table[code] = ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  }
  return table;
}

/**
 * Write a pixel as CSS does.
 * @param {number} pixel
 */
export function pixelToCss(pixel) {
  return `rgb(${pixel & 255},${(pixel >> 8) & 255},${(pixel >> 16) & 255})`;
}
