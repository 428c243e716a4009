/* Texts that fit. Widths are asked for at every bar of every frame, so they are kept. */

/** @typedef {Pick<import("../base/canvas.mjs").Pen, "measureText">} Ruler */

const KEPT = 20000;

/** @type {Map<string, number>} */
const widths = new Map();
/** @type {Map<string, string>} */
const cuts = new Map();

/**
 * @template Value
 * @param {Map<string, Value>} kept
 * @param {string} key
 * @param {() => Value} make
 */
function recall(kept, key, make) {
  let value = kept.get(key);
  if (value === undefined) {
    if (kept.size > KEPT) kept.clear();
    kept.set(key, (value = make()));
  }
  return value;
}

/**
 * How wide a text is. One font is used for all texts but titles, which are kept apart by a key of their own.
 * @param {Ruler} pen @param {string} text @param {string} [key]
 */
export function textWidth(pen, text, key = text) {
  return recall(widths, key, () => pen.measureText(text).width);
}

/**
 * The function of a kernel, without its return type and the arguments of templates and calls; other names as
 * they are.
 * @param {string} name
 */
export function functionName(name) {
  const end = name.search(/[<(]/);
  if (end < 1 || !/[<*,]/.test(name) || !/[)>]$/.test(name)) return name;
  return name.slice(0, end).replace(/^(?:void|static|inline|__global__)\s+/, "") || name;
}

/**
 * Shorten a hierarchical name to whole words at its end, which says more than its beginning; of a single word
 * the beginning stays.
 * @param {Ruler} pen @param {string} text
 * @param {number} room in pixels, of which whole fours count
 */
export function cutStart(pen, text, room) {
  const whole = (room >> 2) * 4;
  return recall(cuts, text + "\n" + whole, () => {
    const wide = textWidth(pen, text);
    if (wide <= whole) return text;
    const count = Math.floor((text.length * (whole - 8)) / wide);
    if (count < 3) return "";
    if (!/[./:]/.test(text)) return count < 5 ? "" : text.slice(0, count) + "…";
    const tail = text.slice(text.length - count), word = tail.search(/[./:]/);
    if (word >= 0 && tail.length - word > 3) return "…" + tail.slice(word).replace(/^[./:]+/, "");
    return count < 10 ? "" : "…" + tail;
  });
}

/**
 * What fits of the beginning of a name.
 * @param {Ruler} pen @param {string} text
 * @param {number} room in pixels
 */
export function cutEnd(pen, text, room) {
  const wide = textWidth(pen, text), count = Math.max(1, Math.floor((text.length * (room - 8)) / wide));
  return wide <= room ? text : text.slice(0, count) + "…";
}

/**
 * What fits of both ends of a name: threads of a pool differ at the end alone.
 * @param {Ruler} pen @param {string} text
 * @param {number} room in pixels
 */
export function cutMiddle(pen, text, room) {
  const wide = textWidth(pen, text), count = Math.max(2, Math.floor((text.length * (room - 8)) / wide));
  return wide <= room ? text : text.slice(0, count - (count >> 1)) + "…" + text.slice(-(count >> 1));
}
