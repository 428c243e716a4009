/* The controls of the Collectives page and the address: each follows the other. */

import { noUpdate, setProps } from "../base/dash.mjs";
import { byId } from "../base/dom.mjs";
import { changeView, isTouched, readView, takeTouch } from "../base/view.mjs";

/** @import { Patch } from "../base/view.mjs" */
/** @typedef {Record<string, string | null | undefined>} Values by control */
/** @typedef {{ key?: string, controls?: Values }} Settled what the server made of the address */

/** In the order of the callbacks in studio/pages/collectives/page.py. */
export const CONTROLS = ["tab", "metric", "rel", "scale", "by", "fold", "sort", "order", "with"];

/**
 * What an address that names nothing means: chosen, it needs no place in the address.
 * @type {Record<string, string>}
 */
const DEFAULTS = { tab: "heat", by: "none", fold: "0", sort: "max", order: "number" };

/** Controls that put other lines, or the same in another order: a window of them means nothing then. */
const MOVES_LINES = ["tab", "metric", "rel", "by", "fold", "sort"];

/**
 * Return how the address changes with controls.
 * @param {Values} chosen what was chosen, by control
 * @returns {Patch}
 */
export function patchOf(chosen) {
  const isChosen = (/** @type {string} */ name) => name in chosen;
  /** @type {Patch} */
  const patch = {};
  for (const [name, value] of Object.entries(chosen)) patch[name] = DEFAULTS[name] === value ? null : value;
  if (isChosen("rel") && !isChosen("scale")) patch.scale = null;
  if (isChosen("metric")) Object.assign(patch, { rel: null, scale: null });
  if (MOVES_LINES.some(isChosen)) patch.rows = null;
  if (isChosen("by")) patch.only = null;
  if (isChosen("order") || isChosen("tab")) patch.cols = null;
  return patch;
}

export class Controls {
  /** Values last written to the controls. @type {Values} */
  #told = {};
  /** What they have to show: the last value settled, or chosen since. @type {Values} */
  #held = {};
  /** A control of the page that was updated last. @type {HTMLElement | null} */
  #page = null;

  /**
   * Return the values of all controls; only what changes.
   * @param {Settled | null} settled
   * @param {readonly { value: string }[] | null} others runs and jobs to compare with
   * @param {readonly (string | null)[]} values that they have
   */
  follow(settled, others, values) {
    const wanted = settled?.controls ?? {}, view = readView(), page = byId("collectives-tab");
    if (this.#page !== page) [this.#told, this.#held] = [{}, {}];
    this.#page = page;
    return CONTROLS.map((name, index) => {
      const before = this.#told[name], value = wanted[name];
      this.#told[name] = value;
      if (value === undefined) return noUpdate;
      /* What was chosen a moment ago and is on its way to the address is not taken back. */
      const isChosen = value === before && values[index] !== (view[name] || DEFAULTS[name] || null);
      if (value !== values[index] && name !== "with" && isChosen) return noUpdate;
      /* A choice that is not yet among the others would be given up by its control. */
      const isThere = name !== "with" || !value || others?.some((other) => other.value === value);
      this.#held[name] = (isThere ? value : values[index]) || null;
      if (value === values[index] || !isThere) return noUpdate;
      /* What the control tells next is this value. */
      takeTouch(`collectives-${name}`);
      return value;
    });
  }

  /**
   * Write into the address what the user chose. Controls also tell what they were given, and late: by then
   * they may have to show the next value, which they are then given again.
   * @param {Settled | null} settled
   * @param {readonly (string | null)[]} values
   */
  write(settled, values) {
    const wanted = settled?.controls ?? {};
    /** @type {Values} */
    const chosen = {};
    CONTROLS.forEach((name, index) => {
      const id = `collectives-${name}`, value = values[index] || null, held = this.#held[name];
      if (value === held || held === undefined || wanted[name] === undefined) return;
      if (isTouched(id) && (value || name === "with")) {
        chosen[name] = this.#held[name] = value;
      } else setProps(id, { value: held });
    });
    if (Object.keys(chosen).length) changeView(patchOf(chosen));
  }
}
