/** The Ranks page: draws the mesh of ranks as it is, and as it would be. */

import { noUpdate } from "../base/dash.mjs";
import { byId, setText } from "../base/dom.mjs";
import { drawShapes } from "../base/shapes.mjs";
import { changeView } from "../base/view.mjs";

/** @typedef {import("../base/shapes.mjs").Drawing & { caption: string }} Ranks */

/** @param {{ before: Ranks | null, after: Ranks | null } | null} drawings */
function draw(drawings) {
  show("ranks-before", drawings?.before ?? null);
  show("ranks-after", drawings?.after ?? null);
  // What stands below the form is shown from now on: before, every part that came would have moved it.
  if (drawings) byId("ranks-said")?.setAttribute("data-drawn", "");
  return noUpdate;
}

/**
 * @param {string} name
 * @param {Ranks | null} drawing
 */
function show(name, drawing) {
  const box = byId(name);
  if (!box) return;
  setText(`${name}-caption`, drawing?.caption ?? "");
  if (!drawing) {
    box.replaceChildren();
    return;
  }
  const svg = drawShapes(drawing);
  svg.setAttribute("width", String(drawing.width));
  svg.setAttribute("height", String(drawing.height));
  box.parentElement?.style.setProperty("--rk-wide", `${drawing.width}px`);
  box.replaceChildren(svg);
}

/** @param {string | null} form what of it is no longer as it began */
function remember(form) {
  if (form !== null) changeView({ form: form || null }, { replace: true });
  return noUpdate;
}

export const callbacks = { draw, remember };
