/* Keys of the Graph page. */

import { byId } from "../base/dom.mjs";
import { changeView } from "../base/view.mjs";
import { fitAll, zoomBy } from "./camera.mjs";
import { findBeside, findNearest } from "./geometry.mjs";

/** @import { Cy, Elements } from "./cytoscape.mjs" */
/** @import { Drawing } from "./drawing.mjs" */

const ZOOM_STEP = 1.3;

/**
 * Return the places of nodes.
 * @param {Elements} nodes
 */
function placesOf(nodes) {
  return nodes.map((node) => node.position());
}

/**
 * Return where an arrow leads from a node, if anywhere: along dependencies, or to what stands beside it.
 * @param {Cy} cy
 * @param {Elements} node
 * @param {string} key
 */
function followArrow(cy, node, key) {
  if (key === "ArrowLeft" || key === "ArrowRight") {
    const index = findBeside(placesOf(cy.nodes()), node.position(), key === "ArrowLeft" ? -1 : 1);
    return index < 0 ? null : cy.nodes().eq(index);
  }
  const along = key === "ArrowUp" ? node.incomers("node") : node.outgoers("node");
  const others = along.filter((other) => other.id() !== node.id());
  return others.length ? others.eq(findNearest(placesOf(others), node.position())) : null;
}

/**
 * Walk by an arrow key; the first step selects something.
 * @param {Drawing} drawing
 * @param {Cy} cy
 * @param {string} key
 */
function walk(drawing, cy, key) {
  const selected = drawing.selectedIn(cy);
  if (selected.length) {
    const next = followArrow(cy, selected, key);
    if (next) drawing.selectElement(next);
    else if ((selected.data("hidden") ?? 0) > 0 && (key === "ArrowUp" || key === "ArrowDown")) {
      changeView({ at: null });
    }
    return;
  }
  const { mode, centre } = drawing.drawn;
  const blocks = cy.nodes('[kind = "block"]');
  if (mode === "fold" && blocks.length) drawing.selectElement(blocks.eq(0));
  else if (mode !== "fold" && centre) drawing.select(centre);
  else if (cy.nodes().length) drawing.select(cy.nodes().eq(0).id());
}

/** @param {string} id */
const press = (id) => byId(id)?.click();

/** @param {string} id */
export const dialog = (id) => /** @type {HTMLDialogElement | null} */ (byId(id));

/** @typedef {(drawing: Drawing, cy: Cy, event: KeyboardEvent) => boolean | void} Act false leaves the key
   to others */

/** @type {Act} */
const walkByKey = (drawing, cy, { key }) => walk(drawing, cy, key);
/** @type {Act} */
const closer = (_drawing, cy) => zoomBy(cy, ZOOM_STEP);

/**
 * What each key does. Letters do the same with Shift, but for n.
 * @type {Record<string, Act>}
 */
const KEYS = {
  ArrowUp: walkByKey,
  ArrowDown: walkByKey,
  ArrowLeft: walkByKey,
  ArrowRight: walkByKey,
  Enter: (drawing, cy, { target }) => {
    if (target instanceof Element && target.closest("button, a, [role=radiogroup]")) return false;
    drawing.enter(cy);
    return true;
  },
  Backspace: (drawing, cy) => drawing.closeAround(cy),
  Escape: () => changeView({ node: null, block: null }),
  "+": closer,
  "=": closer,
  "-": (_drawing, cy) => zoomBy(cy, 1 / ZOOM_STEP),
  0: (_drawing, cy) => zoomBy(cy, 1 / cy.zoom()),
  "?": () => dialog("graph-help-list")?.showModal(),
  "/": () => {
    const field = /** @type {HTMLInputElement | null} */ (byId("graph-q"));
    field?.focus();
    field?.select();
  },
  c: () => press("graph-crit"),
  f: (_drawing, cy) => fitAll(cy),
  n: () => press("graph-next"),
  N: () => press("graph-previous"),
  p: ({ view: { node } }) => {
    if (node) changeView({ anchor: node, at: null, show: "path" });
  },
  w: () => press("graph-wide"),
};

/** @param {EventTarget | null} target */
function isTyping(target) {
  const fields = "input, textarea, select, [contenteditable], [role=listbox]";
  return target instanceof Element && target.closest(fields) !== null;
}

/**
 * Whether a key is meant for the graph: arrows scroll what has the focus, and walk only from the page
 * itself.
 * @param {EventTarget | null} target
 */
function isOnGraph(target) {
  if (target === document.body || !(target instanceof Element)) return target === document.body;
  return target.id === "content" || target.closest("#graph-page, #graph-canvas") !== null;
}

/**
 * Do what a key of the page does.
 * @param {Drawing} drawing
 * @param {Cy} cy
 * @param {KeyboardEvent} event
 */
export function pressKey(drawing, cy, event) {
  if (isTyping(event.target) || !isOnGraph(event.target)) return;
  const act = KEYS[event.key] ?? (event.key.length === 1 ? KEYS[event.key.toLowerCase()] : undefined);
  if (act && act(drawing, cy, event) !== false) event.preventDefault();
}
