/** The Validate page: its choices live in the address. */

import { changeView, isFilledIn, readView } from "../base/view.mjs";

/**
 * @param {string | null} set tables that are kept
 * @param {string | null} machine
 * @param {string | null} system "" stands for the one that the hardware names
 * @param {string} curve whether residual curves correct
 * @param {(string | null)[] | null} filled the same as the server filled it in
 * @returns {unknown}
 */
function choose(set, machine, system, curve, filled) {
  const view = readView();
  const other = (set ?? "") !== (view.tables ?? "");
  const plain = curve === "without" ? curve : null;
  const patch = { tables: set, machine: other ? null : machine, system, curve: plain };
  changeView(patch, { replace: isFilledIn(filled, [set, machine, system, curve]) });
  return "";
}

/**
 * Show tables that were just kept.
 *
 * @param {{ tables: string } | null} kept
 * @returns {unknown}
 */
function showKept(kept) {
  if (kept?.tables) changeView({ tables: kept.tables, machine: null });
  return "";
}

export const callbacks = { choose, showKept };
