/* What the Collectives page asks the server. */

import { unpack } from "../base/packed.mjs";
import { addressOf } from "../base/view.mjs";

/** @import { Patch, View } from "../base/view.mjs" */
/** @import { HeatData } from "./layout.mjs" */
/** @typedef {{ message: string, hint?: string }} Refusal */

/** Parts of the view that the picture depends on. */
const SHAPES = [
  "tab", "of", "job", "run", "metric", "rel", "by", "fold", "only", "sort", "order", "rows", "cols",
];

/**
 * Return the parts of a view that its picture depends on.
 * @param {View} view
 * @returns {View}
 */
export function shapeOf(view) {
  return Object.fromEntries(SHAPES.filter((name) => view[name]).map((name) => [name, view[name]]));
}

/**
 * Return an address of the server for what a view shows.
 * @param {View} view
 * @param {string} [path]
 * @param {Patch} [more]
 */
export function heatAddress(view, path = "", more = {}) {
  const { job = "", tab, ...parts } = shapeOf(view);
  const what = tab === "traffic" ? "traffic" : "collectives";
  return addressOf(`/api/jobs/${encodeURIComponent(job)}/${what}${path}`, { ...parts, ...more });
}

/**
 * Return the address of what a heatmap is compared with: the same of another job or run, in the order of
 * the first.
 * @param {View} view
 * @param {Pick<HeatData, "metric" | "relative">} first
 */
export function otherAddress(view, { metric, relative }) {
  const [job, ...run] = view.with.split("/");
  const like = view.job + (view.run ? `/${view.run}` : "");
  const other = { ...view, job, run: run.join("/") };
  return heatAddress(other, "", { metric, rel: relative ? "1" : "0", like });
}

/**
 * Ask the server; throws what it says is wrong.
 * @param {string} address
 */
async function get(address) {
  const answer = await fetch(address);
  if (answer.ok) return answer;
  /** @type {Refusal} */
  const refusal = { message: `The studio refused the request: ${answer.status}`, hint: "" };
  throw await answer.json().then(({ error }) => error, () => refusal);
}

/**
 * @template T
 * @param {string} address
 * @returns {Promise<T>}
 */
export async function getJson(address) {
  return (await get(address)).json();
}

/**
 * @param {string} address
 * @returns {Promise<HeatData>}
 */
export async function getHeat(address) {
  return unpack(await (await get(address)).arrayBuffer());
}
