/** What callbacks of the frame listen to: parts of the view, as texts. */

import { pinnedNode } from "./pin.mjs";

/** @import { View } from "../base/view.mjs" */

/**
 * Stores by id: what of a view each holds. Dash calls who listens to a store when its text changes, not at
 * every step.
 *
 * @type {Record<string, (view: View, path: string) => string | null>}
 */
export const PARTS = {
  job: (view) => view.job || null,
  "shown-run": (view) => JSON.stringify([view.job || null, view.run || null]),
  selection: (view) => {
    const pinned = pinnedNode(view.pin), pin = pinned ? view.pin : undefined;
    const { job, run, rank, node, crit } = { ...view, ...pinned };
    return JSON.stringify(job && node ? { job, run, rank, node, crit, pin } : {});
  },
  searched: (view) => JSON.stringify(view.q ? view : {}),
  // What the server looks up, to say what of it does not exist; null where there is nothing to look up.
  named: (view, path) => {
    const { job, run, rank, with: others, ghost, sweep } = view;
    const looked = [run, rank, others, ghost, sweep].map((part) => part ?? null);
    return looked.some((part) => part !== null) ? JSON.stringify([path, job ?? null, ...looked]) : null;
  },
};

/** What these hold at first, with nothing selected and named: who listens to them need not be called then. */
const NOTHING = { selection: "{}", named: null };

/**
 * Make a function that gives the stores whose text is another than when it was called last, or than with
 * nothing selected and named.
 *
 * @returns {(view: View, path: string) => Record<string, string | null>}
 */
export function changedParts() {
  /** @type {Record<string, string | null>} */
  const known = { ...NOTHING };
  return (view, path) => {
    /** @type {Record<string, string | null>} */
    const changed = {};
    for (const [store, write] of Object.entries(PARTS)) {
      const text = write(view, path);
      if (known[store] !== text) changed[store] = text;
    }
    Object.assign(known, changed);
    return changed;
  };
}
