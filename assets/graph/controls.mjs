/* The controls of the Graph page and the address: each follows the other. */

import { noUpdate } from "../base/dash.mjs";
import { byId } from "../base/dom.mjs";
import { changeView, isChosen } from "../base/view.mjs";

/** @import { Patch, View } from "../base/view.mjs" */
/** @import { Drawn } from "./cytoscape.mjs" */

/** In the order of the callbacks in studio/pages/graph/page.py. */
const CONTROLS = ["rank", "show", "by", "depth", "dir", "deps", "q", "colour", "with"];

/** Selects whose choices the server lists: whenever these change they report a value that nobody chose. */
const LISTED = ["rank", "by", "with"];

/**
 * What controls show where the address says nothing.
 * @type {Record<string, string>}
 */
const DEFAULTS = { depth: "2", dir: "both", deps: "both", q: "", colour: "type" };

/**
 * Return what controls show of a view; a control that is missing stays as it is.
 * @param {View} view
 * @param {Drawn} drawn
 * @param {readonly string[]} ranks
 * @returns {Record<string, string | null | undefined>}
 */
export function valuesOf(view, { mode, by, against }, ranks) {
  const isRunNamed = view.with !== undefined && view.with !== view.run;
  return {
    ...DEFAULTS,
    ...Object.fromEntries(CONTROLS.flatMap((name) => (name in view ? [[name, view[name]]] : []))),
    rank: view.rank ?? ranks[0] ?? null,
    show: mode,
    by: mode === "fold" ? by : undefined,
    /* Where the address names none, the first that there is. */
    with: isRunNamed ? view.with : (against ?? undefined),
  };
}

/**
 * Return how the address changes when a control does.
 * @param {string} name
 * @param {string} value
 * @returns {Patch}
 */
export function patchOf(name, value) {
  return {
    [name]: value === DEFAULTS[name] ? null : value,
    ...(value === "whole" ? { at: null } : {}),
    ...(name === "colour" ? { hide: null } : {}),
    ...(name === "by" ? { open: null, block: null } : {}),
    /* Ids mean other nodes on other ranks. */
    ...(name === "rank" ? { at: null, anchor: null, open: null, block: null, node: null } : {}),
  };
}

/**
 * Grey out the field of a control that means nothing now.
 * @param {string} name
 * @param {boolean} isOff
 */
function setOff(name, isOff) {
  byId(`graph-${name}`)?.closest(".cs-graph-field")?.toggleAttribute("data-off", isOff);
}

export class Controls {
  /** Values last shown by the controls. @type {Record<string, string | null | undefined>} */
  #given = {};
  /** What was typed into the search. @type {string | null} */
  #typed = null;
  /** The search field whose page was updated last. @type {HTMLElement | null} */
  #field = null;

  /**
   * Return the values of all controls; only what changes: a control that is told what it holds costs as
   * much as one that
   * changes.
   * @param {View} view
   * @param {Drawn} drawn
   * @param {readonly string[]} ranks
   */
  follow(view, drawn, ranks) {
    for (const name of ["crit", "wide"]) {
      byId(`graph-${name}`)?.setAttribute("aria-pressed", String(Boolean(view[name])));
    }
    setOff("with", drawn.colour !== "difference");
    setOff("depth", drawn.mode !== "near");
    setOff("dir", drawn.mode !== "near");
    setOff("by", drawn.mode !== "fold");
    const values = valuesOf(view, drawn, ranks);
    const field = byId("graph-q");
    /* What is being typed is newer than the view it leads to. */
    if (field && document.activeElement === field && this.#typed === values.q) values.q = undefined;
    if (this.#field !== field) this.#given = {};
    this.#field = field;
    return CONTROLS.map((name) => {
      const value = values[name];
      if (value === undefined || value === this.#given[name]) return noUpdate;
      this.#given[name] = value;
      return value;
    });
  }

  /**
   * Write into the address what the user chose.
   * @param {readonly (string | null | undefined)[]} values of all controls
   * @param {readonly string[] | null} changed ids of the controls that changed, if that is known
   */
  write(values, changed) {
    CONTROLS.forEach((name, index) => {
      const value = values[index];
      if (changed && !changed.includes(`graph-${name}`)) return;
      /* What the view gave to a control is no wish of the user; by now the view may have gone on. */
      if (value === null || value === undefined || value === this.#given[name]) return;
      if (LISTED.includes(name) && !isChosen(`graph-${name}`, this.#given[name])) return;
      this.#given[name] = value;
      if (name === "q") this.#typed = value;
      /* Arrows walk the graph next, not the control that was clicked. */
      if (name === "show") byId("graph-canvas")?.focus();
      changeView(patchOf(name, value), { replace: name === "q" });
    });
  }
}
