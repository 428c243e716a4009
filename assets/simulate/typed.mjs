/**
 * What is typed into the form while a button's answer is under way: the answer draws the form anew, without
 * it.
 */

import { onAnswer, requestUnderWay } from "../base/asked.mjs";
import { propsOf, setProps } from "../base/dash.mjs";

/** @import { Request } from "../base/asked.mjs" */

const STORE = "sim-edit";
/** Buttons after which every field means what it meant; others replace the whole system. */
const KEEPING = new Set(["add", "fit", "replay", "compute", "recompute", "remove", "inwards", "outwards"]);

/** Texts by the name of the field. @type {Map<string, string>} */
const texts = new Map();
/**
 * The field of the last letter, and where in it the next one goes.
 *
 * @type {{ key: string, at: number | null } | null}
 */
let last = null;

/**
 * The name that a field has after a button was carried out; "" where it has gone, or is of another system.
 *
 * @param {string} key as in `bandwidth[1]`, or without a dimension
 * @param {Pick<Request, "verb" | "of">} request
 */
export function nameAfter(key, { verb, of }) {
  if (!KEEPING.has(verb)) return "";
  const [, name = "", place = ""] = /^(.*)\[(\d+)\]$/.exec(key) ?? [];
  if (!name) return key;
  const index = Number(place), moved = Number.parseInt(of, 10);
  let after = index;
  if (verb === "remove") {
    if (index === moved) return "";
    after = index > moved ? index - 1 : index;
  } else if (verb === "inwards" || verb === "outwards") {
    const other = verb === "inwards" ? moved - 1 : moved + 1;
    if (index === moved) after = other;
    else if (index === other) after = moved;
  }
  return `${name}[${after}]`;
}

/** @param {Event} event */
function note(event) {
  const field = event.target;
  if (!(field instanceof HTMLInputElement) || !field.id.startsWith("{")) return;
  if (!field.closest("#sim-page") || !requestUnderWay(STORE)) return;
  const { sim: key } = JSON.parse(field.id);
  if (typeof key !== "string" || !field.matches(".mantine-TextInput-input")) return;
  texts.set(key, field.value);
  last = { key, at: field.selectionStart };
}

/** @param {Request} request the one that was answered */
function putBack(request) {
  for (const [key, text] of texts) {
    const name = nameAfter(key, request), props = name ? propsOf({ sim: name }) : null;
    if (props && (props.value ?? "") !== text) setProps({ sim: name }, { value: text });
  }
  const from = last, name = from ? nameAfter(from.key, request) : "";
  texts.clear();
  last = null;
  if (from && name) requestAnimationFrame(() => requestAnimationFrame(() => goOn(name, from.at)));
}

/**
 * Give the hand its field back, if the new form has taken it away.
 *
 * @param {string} name
 * @param {number | null} at
 */
function goOn(name, at) {
  if (document.activeElement && document.activeElement !== document.body) return;
  const field = document.getElementById(JSON.stringify({ sim: name }));
  if (!(field instanceof HTMLInputElement)) return;
  field.focus();
  if (at !== null) field.setSelectionRange(at, at);
}

/** Keep what is typed from now on. */
export function keepTyped() {
  document.addEventListener("input", note, true);
  onAnswer(STORE, putBack);
}
