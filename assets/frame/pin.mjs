/** The pinned node: what the inspector stays on while the selection moves, also to other pages. */

/** @import { View } from "../base/view.mjs" */

/** What a pin names, in the order of its address: see `format_pin` in `studio/pages/frame/inspector.py`. */
const NAMED = ["job", "run", "rank", "node"];

/**
 * The node that a pin names, as parts of a view; null where it names none.
 *
 * @param {string | undefined} pin
 * @returns {View | null}
 */
export function pinnedNode(pin) {
  const parts = (pin ?? "").split("/");
  if (parts.length !== NAMED.length || parts.some((part) => !part)) return null;
  return Object.fromEntries(NAMED.map((name, index) => [name, parts[index]]));
}

/**
 * The query of another address with the pin of the view before: links do not know of it.
 *
 * @param {string} query
 * @param {string | undefined} pin
 * @returns {string}
 */
export function withPin(query, pin) {
  const parts = new URLSearchParams(query);
  if (!pin || parts.has("pin")) return query;
  parts.set("pin", pin);
  return `?${parts}`;
}
