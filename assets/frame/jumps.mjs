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
  const home = item.kind === "node" ? "/graph" : "/overview";
  return { path: isHome ? home : path, view: item.kind === "job" ? item.view : { ...view, ...item.view } };
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
