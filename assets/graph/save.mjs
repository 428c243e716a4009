/* Saving what the Graph page shows. */

import { readScheme, readTokens } from "../base/canvas.mjs";
import { openTable, saveFile } from "../base/export.mjs";
import { addressOf } from "../base/view.mjs";

/** @import { View } from "../base/view.mjs" */
/** @import { Cy } from "./cytoscape.mjs" */

const PNG = { output: "blob-promise", full: true, scale: 2, maxWidth: 8000, maxHeight: 8000 };

/**
 * Save the drawing as a picture or as data, or show its table.
 * @param {Cy} cy
 * @param {View} view
 * @param {string} kind png, table, or what studio/server/graph.py answers with
 */
export async function saveDrawing(cy, view, kind) {
  const { job, ...parts } = view;
  const name = `graph-${job}`;
  const address = (/** @type {string} */ ending, /** @type {Record<string, string>} */ more = {}) =>
    addressOf(`/api/jobs/${encodeURIComponent(job ?? "")}/graph.${ending}`, { ...more, ...parts });
  if (kind === "table") {
    openTable({ name, title: "The drawn part of the graph", source: address("csv") });
    return;
  }
  const blob =
    kind === "png"
      ? await cy.png({ ...PNG, bg: readTokens("bg").bg })
      : await (await fetch(address(kind, { theme: readScheme() }))).blob();
  saveFile(`${name}.${kind}`, blob);
}
