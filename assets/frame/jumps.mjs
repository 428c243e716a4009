/** Where a choice in the palette and a link of the navigation lead. No page is needed here. */

import { addressOf } from "../base/view.mjs";

/** @import { Patch, View } from "../base/view.mjs" */
/**
 * An entry; `press` is the id of a button that is pressed in place of a jump.
 *
 * @typedef {{ kind: string, title: string, about: string, path?: string, view: View, press?: string }} Item
 */
/** @typedef {{ path: string, view: Patch } | { patch: Patch }} Jump another page, or a change of the view */

/**
 * What is kept on the way to another page: job, run and selection. What only one page knows stays behind.
 *
 * @param {View} view
 * @returns {Patch}
 */
const keptParts = ({ job, run, rank, node }) => ({ job, run, rank, node });

/**
 * Parts of a page's view that say how to look, not at what of a job: they stay when another job is shown.
 *
 * @type {Record<string, readonly string[]>}
 */
const LOOKS = {
  "/collectives": ["tab", "metric", "rel", "scale", "by", "sort", "order"],
  "/compare": ["layout", "basis", "settings"],
  "/graph": ["show", "by", "depth", "dir", "deps", "colour", "crit", "wide"],
  "/nodes": ["sort"],
  "/sql": ["sql"],
  "/timeline": ["counters", "order", "per", "by", "hide"],
  "/validate": ["tables", "machine", "system", "curve"],
};
/** Drawings of the graph between nodes that are named: another job has others. */
const OF_NODES = ["path", "gate"];

/**
 * Return the view of a page that shows another job in the same way.
 *
 * @param {string} path of the page that is shown
 * @param {View} view
 * @param {string} job
 * @returns {Patch}
 */
export function viewOfJob(path, view, job) {
  const kept = (LOOKS[path] ?? []).filter((part) => part in view && !OF_NODES.includes(view[part]));
  return { job, ...Object.fromEntries(kept.map((part) => [part, view[part]])) };
}

/**
 * Return the address of a page of the navigation.
 *
 * @param {string} path
 * @param {View} view of the page that is shown
 */
export const pageAddress = (path, view) => addressOf(path, keptParts(view));

/**
 * @param {Item} item
 * @param {string} path of the page that is shown
 * @param {View} view
 * @returns {Jump}
 */
export function jumpTo(item, path, view) {
  if (item.path) return { path: item.path, view: keptParts(view) };
  if (item.kind === "rank") return jumpToRank(item.view, path, view);
  const isHome = path === "/";
  if (!isHome && item.kind !== "job") return { patch: item.view };
  if (!isHome) return { path, view: { ...viewOfJob(path, view, item.view.job), ...item.view } };
  const home = item.kind === "node" ? "/graph" : "/overview";
  return { path: home, view: item.kind === "job" ? item.view : { ...view, ...item.view } };
}

/**
 * A rank is seen where its lanes, its nodes or its graph are; other pages lead to its graph.
 *
 * @param {View} found
 * @param {string} path
 * @param {View} view
 * @returns {Jump}
 */
function jumpToRank(found, path, view) {
  if (path === "/timeline") return { patch: { top: found.rank, ...found } };
  if (path === "/graph") return { patch: found };
  if (path !== "/nodes") return { path: "/graph", view: { job: view.job, run: view.run, ...found } };
  const filters = { ...parseFilters(view.f), rank: ["matches", found.rank] };
  return { patch: { f: JSON.stringify(filters), ...found } };
}

/** @param {string | undefined} text @returns {object} */
function parseFilters(text) {
  try {
    return JSON.parse(text || "{}");
  } catch {
    return {};
  }
}
