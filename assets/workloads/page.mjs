/** The Workloads page: draws the mesh of ranks, keeps the address as the form is, and opens what was made. */

import { noUpdate } from "../base/dash.mjs";
import { byId, setText } from "../base/dom.mjs";
import { drawShapes } from "../base/shapes.mjs";
import { changeView } from "../base/view.mjs";

/** @typedef {import("../base/shapes.mjs").Drawing & { caption: string }} Ranks */

/** Who types on wants no simulation of what has been typed so far. */
const SETTLED_MS = 250;
let last = 0;

/**
 * What the form says, once nobody types.
 *
 * @param {unknown} asked
 */
async function settle(asked) {
  last += 1;
  const mine = last;
  await new Promise((resolve) => { window.setTimeout(resolve, SETTLED_MS); });
  return mine === last ? asked : noUpdate;
}

/** @param {Ranks | null} drawing */
function draw(drawing) {
  const box = byId("workload-mesh");
  if (!box || !drawing) return noUpdate;
  setText("workload-mesh-caption", drawing.caption);
  const svg = drawShapes(drawing);
  svg.setAttribute("width", String(drawing.width));
  svg.setAttribute("height", String(drawing.height));
  box.replaceChildren(svg);
  return noUpdate;
}

/** @param {string | null} text what the form says */
function remember(text) {
  if (text !== null && window.location.pathname === "/workloads") {
    changeView({ workload: text }, { replace: true });
  }
  return noUpdate;
}

/** @param {string | null} job the job that was made */
function open(job) {
  if (job) changeView({ job, run: null, rank: null, node: null });
  return noUpdate;
}

export const callbacks = { draw, settle, remember, open };
