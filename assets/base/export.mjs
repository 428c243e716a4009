/** Saving figures as PNG and SVG, and the tables behind them as CSV: see studio/pages/base/export.py. */

import { makeBlob, penOf } from "./canvas.mjs";
import { parseCsv, writeCsv } from "./csv.mjs";
import { plotly } from "./dash.mjs";
import { byId, targetOf, token } from "./dom.mjs";
import { complainOfSaving, copyTable, readPageTable, showTable } from "./numbers.mjs";

/** @import { Table } from "./csv.mjs" */

/**
 * How a script draws its figure and returns the numbers in it.
 * @typedef {{ png: () => Promise<Blob>, svg: () => Promise<string>, table?: () => Promise<Table> }} Drawer
 */

/**
 * The table of numbers to show or save, and the figure: what a bar of buttons carries as data attributes.
 * @typedef {{ name?: string, title?: string, figure?: string, source?: string, table?: string }} Saved
 */

/** Pixels of a PNG for one of the page. */
const SHARP = 2;

/** What a drawing takes along from the stylesheets of its page. */
const STYLES = [
  "fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "opacity",
  "font-family", "font-size", "font-weight", "text-anchor", "dominant-baseline", "paint-order", "display",
  "visibility",
];

/** By id of the figure. @type {Map<string, Drawer>} */
const drawers = new Map();

/**
 * Say how a figure is drawn that is neither plotly's nor an SVG.
 *
 * @param {string} id
 * @param {Drawer} drawer
 */
export function registerFigure(id, drawer) {
  drawers.set(id, drawer);
}

/**
 * Save a file.
 *
 * @param {string} name
 * @param {Blob} blob
 */
export function saveFile(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  window.setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/**
 * Show a table of numbers.
 *
 * @param {Saved} about `source` or `table` says which
 */
export async function openTable(about) {
  try {
    showTable(about.title ?? "", await readTable(about));
  } catch (error) {
    complainOfSaving(error);
  }
}

/**
 * @param {Element} host
 * @param {string} selector
 * @returns {Element | null} the host, or the first in it that matches
 */
const within = (host, selector) => (host.matches(selector) ? host : host.querySelector(selector));

/** @param {string} id @returns {Promise<string>} */
async function drawSvgOf(id) {
  const host = byId(id), drawer = drawers.get(id);
  if (!host) throw new Error("the figure is not on this page");
  if (drawer) return drawer.svg();
  const plot = within(host, ".js-plotly-plot");
  if (plot) {
    const url = await drawPlot(plot, "svg", 1);
    return decodeURIComponent(url.slice(url.indexOf(",") + 1));
  }
  const drawing = within(host, "svg");
  if (!(drawing instanceof SVGElement)) throw new Error("there is no figure yet");
  return writeDrawing(drawing);
}

/** @param {string} id @returns {Promise<Blob>} */
async function drawPngOf(id) {
  const host = byId(id), drawer = drawers.get(id);
  if (host && drawer) return drawer.png();
  const plot = host && within(host, ".js-plotly-plot");
  if (!plot) return rasterize(await drawSvgOf(id));
  const url = await drawPlot(plot, "png", SHARP);
  // Data URLs cannot be fetched: the page may connect to its own server only.
  const bytes = Uint8Array.from(window.atob(url.slice(url.indexOf(",") + 1)), (sign) => sign.charCodeAt(0));
  return new Blob([bytes], { type: "image/png" });
}

/**
 * A plot with a ground of its own: on the page it is transparent.
 *
 * @param {Element} plot
 * @param {"png" | "svg"} format
 * @param {number} scale
 * @returns {Promise<string>} a data URL
 */
function drawPlot(plot, format, scale) {
  const { data, layout, _context: config } = /** @type {Element & Record<string, object>} */ (plot);
  const ground = token("--cs-panel"), box = plot.getBoundingClientRect();
  const size = { width: Math.round(box.width), height: Math.round(box.height) };
  const opaque = { ...layout, paper_bgcolor: ground, plot_bgcolor: ground };
  return plotly().toImage({ data, layout: opaque, config }, { format, scale, ...size });
}

/**
 * A drawing as a file, which has neither the stylesheets nor the colours of the page: each element takes
 * its own along.
 *
 * @param {SVGElement} drawing
 */
function writeDrawing(drawing) {
  const copy = /** @type {SVGElement} */ (drawing.cloneNode(true));
  const copies = [copy, ...copy.querySelectorAll("*")];
  [drawing, ...drawing.querySelectorAll("*")].forEach((node, index) => {
    const style = getComputedStyle(node);
    const written = STYLES.map((name) => `${name}:${style.getPropertyValue(name)}`);
    copies[index]?.setAttribute("style", written.join(";"));
    copies[index]?.removeAttribute("class");
  });
  const box = drawing.getBoundingClientRect(), width = Math.round(box.width), height = Math.round(box.height);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", String(width));
  copy.setAttribute("height", String(height));
  if (!copy.getAttribute("viewBox")) copy.setAttribute("viewBox", `0 0 ${width} ${height}`);
  copy.style.background = token("--cs-panel");
  return new XMLSerializer().serializeToString(copy);
}

/** @param {string} svg @returns {Promise<Blob>} */
async function rasterize(svg) {
  const url = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  const image = new Image();
  try {
    await new Promise((resolve, reject) => {
      image.onload = resolve;
      image.onerror = () => reject(new Error("the drawing cannot be read back"));
      image.src = url;
    });
    const canvas = document.createElement("canvas");
    canvas.width = image.width * SHARP;
    canvas.height = image.height * SHARP;
    penOf(canvas).drawImage(image, 0, 0, canvas.width, canvas.height);
    return await makeBlob(canvas);
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** @param {Saved} about @returns {Promise<Table>} */
async function readTable({ figure = "", table, source = "" }) {
  const drawer = drawers.get(figure);
  if (drawer?.table) return drawer.table();
  if (table) return JSON.parse(table);
  const answer = await fetch(source);
  const text = await answer.text();
  if (!answer.ok) throw new Error(text.slice(0, 300));
  const [head = [], ...rows] = parseCsv(text);
  return { head, rows };
}

/** What the buttons do, by `data-export`. @type {Record<string, (about: Saved) => Promise<void>>} */
const ACTIONS = {
  png: async ({ name, figure = "" }) => saveFile(`${name}.png`, await drawPngOf(figure)),
  svg: async ({ name, figure = "" }) => {
    saveFile(`${name}.svg`, new Blob([await drawSvgOf(figure)], { type: "image/svg+xml" }));
  },
  csv: async (about) => {
    saveFile(`${about.name}.csv`, new Blob([writeCsv(await readTable(about))], { type: "text/csv" }));
  },
  table: openTable,
};

/** Carry out clicks on the buttons that save and copy, and close their menus, from now on. */
export function watchExports() {
  document.addEventListener("click", (event) => {
    const button = targetOf(event, "[data-export]"), bar = button?.closest(".cs-export");
    if (button && bar instanceof HTMLElement) {
      ACTIONS[button.dataset.export ?? ""]?.(bar.dataset).catch(complainOfSaving);
    }
    const copied = targetOf(event, "[data-copy]");
    const grid = copied?.closest(".cs-copied")?.querySelector("table");
    if (copied && grid) void copyTable(copied, readPageTable(grid));
    closeMenus(event);
  });
  document.addEventListener("keydown", (event) => {
    const menu = event.key === "Escape" && targetOf(event, "details.cs-menu[open]");
    if (!(menu instanceof HTMLDetailsElement)) return;
    menu.open = false;
    menu.querySelector("summary")?.focus();
    event.stopPropagation();
  }, true);
}

/**
 * Close menus when something in them was chosen, or something beside them clicked.
 *
 * @param {MouseEvent} event
 */
function closeMenus(event) {
  const isChoice = Boolean(targetOf(event, ".cs-menu > div button"));
  for (const menu of document.querySelectorAll("details.cs-menu[open]")) {
    if (!(menu instanceof HTMLDetailsElement) || !(event.target instanceof Node)) continue;
    if (isChoice || !menu.contains(event.target)) menu.open = false;
  }
}
