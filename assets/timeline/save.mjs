/* What the Timeline page shows, saved. */

import { openTable, saveFile } from "../base/export.mjs";
import { element } from "../base/dom.mjs";
import { complain } from "../base/view.mjs";

/** @import { Scene } from "./scene.mjs" */

/**
 * Save what an address answers with.
 * @param {string} href
 * @param {string} download the file's name
 */
export function saveAddress(href, download) {
  const link = element("a", { href, download });
  document.body.append(link);
  link.click();
  link.remove();
}

/**
 * The bars of the window that is marked, else of the one in sight; of the visible ranks.
 * @param {Scene} scene
 */
function spansAddress({ marked, axis, lanes, timeline }) {
  const [from, to] = marked ?? [axis.shown.from, axis.shown.to];
  const rows = lanes.listVisible().map(({ first, count }) => first + "-" + (first + count - 1)).join(",");
  const window = { from: Math.max(0, Math.floor(from)), to: Math.max(1, Math.ceil(to)) };
  return timeline.address("/spans.csv", { ...window, rows });
}

/** What the buttons of the menu do. @type {Record<string, (scene: Scene, button: HTMLElement) => void>} */
export const SAVES = {
  "timeline-png": async (scene) => saveFile(nameOf(scene, "png"), await scene.surface.toPng()),
  "timeline-svg": (scene) => {
    saveFile(nameOf(scene, "svg"), new Blob([scene.toSvg()], { type: "image/svg+xml" }));
  },
  "timeline-csv": (scene) => saveAddress(spansAddress(scene), nameOf(scene, "csv")),
  "timeline-table": (scene) => {
    const title = (scene.marked ? "The marked window" : "The visible window") + ", node by node";
    openTable({ name: "timeline-" + scene.chart.job, title, source: spansAddress(scene) });
  },
  "timeline-json": (scene) => saveAddress(scene.timeline.address("/trace.json"), nameOf(scene, "json")),
  "timeline-perfetto": (scene, button) => {
    const { missing } = button.dataset; /* why the server cannot write it */
    if (missing) complain(missing);
    else saveAddress(scene.timeline.address("/trace.pftrace"), nameOf(scene, "pftrace"));
  },
};

/** @param {Scene} scene @param {string} suffix */
function nameOf(scene, suffix) {
  return "timeline-" + scene.chart.job + "." + suffix;
}
