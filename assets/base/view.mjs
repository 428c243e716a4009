/** The view: the state in the address. Pages read it, change it, and listen to changes. */

import { notifyNavigation, setProps } from "./dash.mjs";

export { timeUnit } from "./format.mjs";

/** @typedef {Record<string, string>} View */
/** @typedef {Record<string, string | number | null | undefined>} Patch null takes a part out */

/**
 * Read the view from the address.
 *
 * @returns {View}
 */
export function readView() {
  return Object.fromEntries(new URLSearchParams(window.location.search));
}

/**
 * The address of a page with a view; parts that are null, undefined or "" are left out.
 *
 * @param {string} path
 * @param {Patch} view
 * @returns {string}
 */
export function addressOf(path, view) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(view)) {
    if (value !== null && value !== undefined && value !== "") query.set(key, String(value));
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

/** @type {Set<() => void>} */
const listeners = new Set();

/**
 * Call a function after every change of the view within a page.
 *
 * @param {() => void} listener
 */
export function onViewChange(listener) {
  listeners.add(listener);
}

/** Tell everybody that the view has changed. */
export function publishView() {
  for (const listener of listeners) listener();
}

/** The path of the page that is in the document; null before the first. @type {string | null} */
let drawnPath = null;

/** Note that the page of the address is in the document. */
export function noteDrawn() {
  drawnPath = window.location.pathname;
}

/**
 * Change parts of the view. A step of the user enters the history; `replace` is for typing and corrections.
 * A page that is being left changes nothing: an answer that comes late speaks of the view before, and the
 * address is that of the next page already.
 *
 * @param {Patch} patch
 * @param {{ replace?: boolean }} [options]
 */
export function changeView(patch, options = {}) {
  const path = window.location.pathname, before = readView();
  if (drawnPath !== null && drawnPath !== path) return;
  const next = addressOf(path, { ...before, ...patch });
  if (next === addressOf(path, before)) return;
  if (options.replace) window.history.replaceState(null, "", next);
  else window.history.pushState(null, "", next);
  publishView();
}

/**
 * Whether a form holds what the server filled in, which takes the place of the address: a step of its own
 * in the history would be taken again after each step back. Before the first answer no choice is the user's.
 *
 * @param {readonly unknown[] | null} filled by the server
 * @param {readonly unknown[]} values
 */
export function isFilledIn(filled, values) {
  return !filled || values.every((value, index) => (value || null) === (filled[index] || null));
}

/**
 * Show another address of the studio without loading it anew.
 *
 * @param {string} href
 */
export function visit(href) {
  window.history.pushState(null, "", href);
  notifyNavigation();
  window.scrollTo(0, 0);
}

/**
 * Show a page with a view.
 *
 * @param {string} path
 * @param {Patch} view
 */
export function goTo(path, view) {
  visit(addressOf(path, view));
}

let announced = 0;

/**
 * Show a short message for some seconds; screen readers read it.
 *
 * @param {string} text
 */
export function announce(text) {
  setProps("said", { children: text });
  window.clearTimeout(announced);
  announced = window.setTimeout(() => setProps("said", { children: "" }), 2500);
}

/**
 * Show an error until another takes its place.
 *
 * @param {string} text
 */
export function complain(text) {
  setProps("toast", { children: text });
}

/**
 * Copy a text; rejects where the browser does not allow it.
 *
 * @param {string} text
 * @returns {Promise<void>}
 */
export async function copyText(text) {
  if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
  // A page from another machine without encryption has no clipboard; the old way still works there.
  const area = document.createElement("textarea");
  area.value = text;
  // An open dialog takes the focus from all that is outside of it.
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  if (!isCopied) throw new Error("the browser refused to copy");
}

/** The element that was touched or typed into last. @type {Element | null} */
let touched = null;

/** @param {Event} event */
function noteTouch(event) {
  if (!(event.target instanceof Element)) return;
  const list = event.target.closest("[role=listbox]");
  touched = (list && document.querySelector(`[aria-controls='${CSS.escape(list.id)}']`)) ?? event.target;
}

/**
 * Whether the user touched a select or a row of choices last: a select reports a new value also when its
 * choices change.
 *
 * @param {string} id
 * @returns {boolean}
 */
export function isTouched(id) {
  const field = document.getElementById(id)?.closest(".mantine-Select-root, .mantine-SegmentedControl-root");
  return Boolean(field && touched && field.contains(touched));
}

/**
 * As `isTouched`, once for each touch: what a select reports next is no choice of the user.
 *
 * @param {string} id
 * @returns {boolean}
 */
export function takeTouch(id) {
  const wasTouched = isTouched(id);
  if (wasTouched) touched = null;
  return wasTouched;
}

/**
 * Whether the user chose a value that a select tells and nobody gave it. A select also tells what a callback
 * gave it, and late: by then another callback may have given it the next value, which it is then given again.
 *
 * @param {string} id
 * @param {string | null | undefined} given by the last callback
 * @returns {boolean}
 */
export function isChosen(id, given) {
  if (takeTouch(id)) return true;
  setProps(id, { value: given ?? null });
  return false;
}

if (typeof document !== "undefined") {
  document.addEventListener("pointerdown", noteTouch, true);
  document.addEventListener("keydown", noteTouch, true);
  // Programs that speak and listen for the user click without a pointer.
  document.addEventListener("click", noteTouch, true);
}
