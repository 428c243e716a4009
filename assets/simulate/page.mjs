/**
 * The Simulate page: the address follows the form and the form the address; simulations under way show
 * progress.
 */

import { noUpdate, setProps } from "../base/dash.mjs";
import { byId, setText } from "../base/dom.mjs";
import { changeView, readView } from "../base/view.mjs";
import { drawTopology } from "./drawing.mjs";
import { keepTyped } from "./typed.mjs";

/** @import { View } from "../base/view.mjs" */
/** @typedef {{ job: string, config: string, turn: number, replace: boolean }} Step a state of the form */
/** @typedef {{ id: string, said: string, done: number, total: number | null }} Progress */

const POLL_MS = 400;

/** Job and configuration of the address when the form last agreed with it. @type {string | null} */
let seen = null;
/** How often the address changed other than by the form: by a link, or back in the history. */
let turn = 0;
let timer = 0;

/** @param {{ job?: string, config?: string }} view */
const placeOf = ({ job = "", config = "" }) => `${job} ${config}`;

const isShown = () => window.location.pathname === "/simulate";

/** @param {string} job */
function recall(job) {
  try {
    return window.sessionStorage.getItem(`sim-config ${job}`) ?? "";
  } catch {
    return "";
  }
}

/**
 * @param {string} job
 * @param {string} config
 */
function remember(job, config) {
  try {
    window.sessionStorage.setItem(`sim-config ${job}`, config);
  } catch {
    // Without storage the address alone knows the system.
  }
}

/**
 * Ask for the form of an address.
 *
 * @param {View} view
 */
function wanted(view) {
  const { job = "", config, run = "" } = view;
  seen = placeOf(view);
  turn += 1;
  return { job, config: config || (job ? recall(job) : ""), run, turn };
}

/**
 * Ask for the form where the address changed by itself; where it followed the form, that is there already.
 *
 * @param {View} _view
 * @param {{ job: string } | null} form
 */
function follow(_view, form) {
  const view = readView();
  if (!isShown() || (form && form.job === view.job && placeOf(view) === seen)) return noUpdate;
  return wanted(view);
}

/**
 * Put a state of the form into the address: a step of the history, but for letters typed into one field.
 *
 * @param {Step | null} step
 */
function go(step) {
  const view = readView();
  if (!step || !isShown()) return noUpdate;
  if (step.turn !== turn) {
    // The address has changed meanwhile, so the form has to follow. Dash does not call `follow` again by
    // itself.
    setProps("sim-show", { data: wanted(view) });
  } else if (placeOf(view) === seen) {
    remember(step.job, step.config);
    seen = placeOf(step);
    changeView({ config: step.config }, { replace: step.replace });
  } // Otherwise Dash is about to call `follow`.
  return noUpdate;
}

/**
 * The run and the job the page shows, when they change.
 *
 * @param {View} _view
 * @param {{ job: string } | null} form
 * @param {{ job: string, run: string } | null} known
 */
function which(_view, form, known) {
  const view = readView(), job = form && form.job === view.job ? view.job : "";
  const run = job ? view.run ?? "" : "";
  return known && known.job === job && known.run === run ? noUpdate : { job, run };
}

/** @param {Progress[] | null} items */
function progress(items) {
  window.clearTimeout(timer);
  for (const { id, said, done, total } of items ?? []) {
    const row = document.querySelector(`[data-progress='${CSS.escape(id)}']`);
    const bar = row?.querySelector("progress");
    setText(row?.querySelector(".sim-stand"), said);
    if (!bar || !total) continue;
    bar.max = total;
    bar.value = done;
  }
  if (items?.length) {
    timer = window.setTimeout(() => {
      if (byId("sim-active")) setProps("sim-tick", { data: Date.now() });
    }, POLL_MS);
  }
  return noUpdate;
}

/** @param {{ job: string, run: string } | null} run */
function finished(run) {
  if (run && run.job === readView().job) changeView({ run: run.run }, { replace: true });
  return noUpdate;
}

/** @param {import("../base/shapes.mjs").Drawing | null} drawing */
function draw(drawing) {
  const box = byId("sim-drawing");
  if (!box) return noUpdate;
  if (!drawing?.shapes) {
    box.replaceChildren();
    return "";
  }
  box.replaceChildren(drawTopology(drawing));
  return drawing.sentence;
}

keepTyped();

export const callbacks = { follow, go, which, progress, finished, draw };
