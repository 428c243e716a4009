/* The Graph page: its drawing, map, controls, keys and what is saved of it. */

import { changedIds, noUpdate } from "../base/dash.mjs";
import { targetOf } from "../base/dom.mjs";
import { complainOfSaving } from "../base/numbers.mjs";
import { changeView } from "../base/view.mjs";
import { fitAll } from "./camera.mjs";
import { Controls } from "./controls.mjs";
import { Drawing } from "./drawing.mjs";
import { HitSteps } from "./hits.mjs";
import { dialog, pressKey } from "./keys.mjs";
import { GraphMap } from "./map.mjs";
import { saveDrawing } from "./save.mjs";

/** @import { View } from "../base/view.mjs" */
/** @import { Cy, Drawn } from "./cytoscape.mjs" */

/**
 * Return what the buttons of the page do, by id.
 * @param {Drawing} drawing
 * @returns {Record<string, (cy: Cy) => void>}
 */
function buttonsOf(drawing) {
  return {
    "graph-fit": fitAll,
    "graph-help": () => dialog("graph-help-list")?.showModal(),
    "graph-help-close": () => dialog("graph-help-list")?.close(),
    "graph-crit": () => changeView({ crit: drawing.view.crit ? null : "1" }),
    "graph-wide": () => changeView({ wide: drawing.view.wide ? null : "1" }),
  };
}

/**
 * Listen to keys and clicks.
 * @param {Drawing} drawing
 * @param {HitSteps} steps
 */
function listen(drawing, steps) {
  const buttons = buttonsOf(drawing);
  for (const name of ["pointerdown", "wheel", "keydown"]) {
    document.addEventListener(name, () => (drawing.isTouched = true), { capture: true, passive: true });
  }
  document.addEventListener("keydown", (event) => {
    const { cy } = drawing;
    if (!cy || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (document.querySelector("dialog[open]")) return;
    drawing.updateView();
    if (event.target instanceof Element && event.target.id === "graph-q") {
      steps.pressKey(event, drawing.view.q);
    } else pressKey(drawing, cy, event);
  });
  document.addEventListener("click", (event) => {
    const { cy } = drawing;
    if (!cy || !(event.target instanceof Element)) return;
    drawing.updateView();
    buttons[event.target.id]?.(cy);
    const { filter } = targetOf(event, "#graph-legend [data-filter]")?.dataset ?? {};
    if (filter) drawing.toggleKind(filter);
    const { graphSave } = targetOf(event, "[data-graph-save]")?.dataset ?? {};
    if (graphSave) saveDrawing(cy, drawing.view, graphSave).catch(complainOfSaving);
  });
}

/**
 * Start what the Graph page does in the browser.
 * @returns what Dash calls: see studio/pages/graph/page.py
 */
export function startGraphPage() {
  const drawing = new Drawing(), controls = new Controls(), steps = new HitSteps();
  const map = new GraphMap(drawing);
  drawing.onShow = () => map.follow();
  drawing.onMove = () => map.markSoon();
  listen(drawing, steps);
  return {
    /**
     * @param {View} view
     * @param {Drawn} drawn
     * @param {string[] | null} ranks
     */
    controls: (view, drawn, ranks) => controls.follow(view, drawn, ranks ?? []),
    /** @param {...(string | null)} values */
    write(...values) {
      controls.write(values, changedIds());
      return noUpdate;
    },
    /**
     * @param {Drawn | null} drawn
     * @param {View | null} view
     * @param {string[] | null} hits
     */
    show(drawn, view, hits) {
      drawing.show(drawn ?? {}, view ?? {}, hits ?? []);
      steps.goOn(view?.q, Boolean(hits?.length));
      return noUpdate;
    },
  };
}
