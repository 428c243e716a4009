/* Colours and fonts of the lanes in the theme that is shown. */

import { formatRgb, makeHatch, mixRgb, parseRgb, pickInk, readScheme, readTokens } from "../base/canvas.mjs";
import { COLLECTIVE, RECEIVE, SEND, SHADES } from "./chart.mjs";

/** @typedef {ReturnType<typeof makeLook>} Look */

const COLOURS = /** @type {const} */ ([
  "compute", "collective", "p2p", "p2p", "memory", "host", "copy", "border",
]);
const TOKENS = /** @type {const} */ ([
  "bg", "panel", "raised", "border", "text", "dim", "accent", "font", "better", "worse",
  "compute", "collective", "p2p", "memory", "host", "copy",
]);

/**
 * The look of now: the one of before where nothing changed, so that pictures made with it can be kept.
 * @param {Look | null} before
 * @param {readonly boolean[]} hidden categories
 */
export function freshLook(before, hidden) {
  const name = [readScheme(), window.devicePixelRatio || 1, ...hidden].join("/");
  return before && before.name === name ? before : makeLook(name, hidden);
}

/** @param {string} name @param {readonly boolean[]} hidden */
function makeLook(name, hidden) {
  const token = readTokens(...TOKENS), text = parseRgb(token.text);
  const colours = COLOURS.map((colour, category) => {
    const base = parseRgb(token[colour]);
    return SHADES.map((share) => (category === COLLECTIVE ? mixRgb(base, text, share) : base));
  });
  return {
    ...token,
    name,
    hidden,
    ratio: window.devicePixelRatio || 1,
    family: token.font,
    font: "11px " + token.font,
    bold: "600 12px " + token.font,
    /** Colours by category and shade. */
    colours,
    /** What bars are filled with: messages are hatched by their direction. */
    fills: colours.map((shades, category) => shades.map((colour) => {
      if (category !== SEND && category !== RECEIVE) return formatRgb(colour);
      return makeHatch(formatRgb(colour), pickInk(colour), category === RECEIVE);
    })),
    inks: colours.map((shades) => shades.map(pickInk)),
    inkOf: colours.map((shades) => shades.map((colour) => parseRgb(pickInk(colour)))),
    /** Over what waits for others; and in its place where a pipeline does, which is idle. */
    waiting: makeHatch("rgb(0 0 0 / 0%)", token.bg, false, 0.75),
    bubble: makeHatch("rgb(0 0 0 / 0%)", token.p2p, true, 0.4),
  };
}
