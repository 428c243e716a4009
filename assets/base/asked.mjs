/**
 * Buttons that ask the server for something, also inside of what callbacks re-render: see
 * studio/pages/base/asked.py.
 *
 * `<button data-ask="sim-order" data-verb="start" data-of="2">` puts its request into the store "sim-
 * order". Requests to a store wait in line until the previous one is answered, so that Dash drops none.
 */

import { noUpdate, propsOf, setProps } from "./dash.mjs";
import { byId, targetOf } from "./dom.mjs";
import { readView, visit } from "./view.mjs";

/** @typedef {{ verb: string, of: string, text: string }} Request */
/** @typedef {{ request: Request, page: string }} Waiting */
/** @typedef {{ waiting: Waiting[], busy: number, now: Request | null, home: Element | null }} Line */

/** An answer that does not come, as when the studio was stopped, holds the next request only for so long. */
const PATIENCE_MS = 20000;
/** Fields report to Dash some 0.2 s after the last letter. */
const TYPED_MS = 3000;
const STEP_MS = 30;
const RETRY_MS = 200;

/** By store. @type {Map<string, Line>} */
const lines = new Map();
let count = 0;
let retry = 0;
/** The field of the last letter. @type {HTMLInputElement | null} */
let typed = null;

/** @param {string} store @returns {Line} */
function lineOf(store) {
  const line = lines.get(store) ?? { waiting: [], busy: 0, now: null, home: null };
  lines.set(store, line);
  return line;
}

/** Whether Dash knows what was typed last: it counts if it was typed before a click. */
function isReported() {
  if (!typed?.isConnected || !typed.id.startsWith("{")) return true;
  const props = propsOf(JSON.parse(typed.id));
  return !props || (props.value || "") === typed.value;
}

/** A request belongs to the page and the job it was made on. */
function currentPage() {
  return `${window.location.pathname} ${readView().job ?? ""}`;
}

/** @param {string} store */
function sendNext(store) {
  const line = lineOf(store);
  // Nobody hears the answer to a request of a page that was left.
  if (line.busy && !line.home?.isConnected) line.busy = 0;
  if (line.busy) {
    retryLater();
    return;
  }
  while (line.waiting[0] && line.waiting[0].page !== currentPage()) line.waiting.shift();
  const next = line.waiting.shift();
  if (!next) return;
  count += 1;
  line.busy = count;
  line.now = next.request;
  line.home = byId(`${store}-heard`);
  window.setTimeout(release, PATIENCE_MS, store, line.busy);
  send(store, next.page, { number: line.busy, ...next.request }, TYPED_MS / STEP_MS);
}

/** Look again while requests wait: if the page is left with an answer under way, no answer brings them on. */
function retryLater() {
  const isWaiting = [...lines.values()].some((line) => line.waiting.length);
  if (retry || !isWaiting) return;
  retry = window.setTimeout(() => {
    retry = 0;
    for (const store of lines.keys()) sendNext(store);
  }, RETRY_MS);
}

/**
 * @param {string} store
 * @param {string} page
 * @param {Request & { number: number }} request
 * @param {number} tries
 */
function send(store, page, request, tries) {
  const line = lineOf(store);
  if (line.busy !== request.number) return;
  if (tries > 0 && !isReported()) window.setTimeout(send, STEP_MS, store, page, request, tries - 1);
  else if (page === currentPage() && line.home?.isConnected) setProps(store, { data: request });
  else release(store, request.number);
}

/**
 * @param {string} store
 * @param {number} number of the request that is answered
 */
function release(store, number) {
  const line = lineOf(store);
  if (line.busy !== number) return;
  line.busy = 0;
  sendNext(store);
}

/**
 * @param {string} store
 * @param {Request} request
 */
function put(store, request) {
  lineOf(store).waiting.push({ request, page: currentPage() });
  sendNext(store);
}

/** @param {HTMLElement} button */
function ask(button) {
  const { ask: store = "", verb = "", of = "" } = button.dataset;
  put(store, { verb, of, text: button.closest(".cs-renaming")?.querySelector("input")?.value ?? "" });
}

/** Carry out clicks on such buttons from now on. */
export function watchButtons() {
  document.addEventListener("click", (event) => {
    const button = targetOf(event, "[data-ask]");
    if (button instanceof HTMLButtonElement && !button.disabled) ask(button);
  });
  document.addEventListener("input", (event) => {
    const field = event.target;
    typed = field instanceof HTMLInputElement && field.matches(".mantine-TextInput-input") ? field : null;
  }, true);
  // In the field beside such a button Enter is a click on it; Escape leaves all as it was.
  document.addEventListener("keydown", (event) => {
    if (event.isComposing || !(event.target instanceof HTMLInputElement)) return;
    const button = event.target.closest(".cs-renaming")?.querySelector("[data-ask]");
    if (!(button instanceof HTMLElement)) return;
    if (event.key === "Enter") ask(button);
    if (event.key === "Escape") put(button.dataset.ask ?? "", { verb: "rename", of: "", text: "" });
  });
}

/** By store. @type {Map<string, (request: Request) => void>} */
const hearing = new Map();

/**
 * The request to a store that has no answer yet; null where there is none.
 *
 * @param {string} store
 * @returns {Request | null}
 */
export function requestUnderWay(store) {
  const line = lines.get(store);
  return line?.busy ? line.now : null;
}

/**
 * Call a function once the answer to a request is in the page.
 *
 * @param {string} store
 * @param {(request: Request) => void} listener
 */
export function onAnswer(store, listener) {
  hearing.set(store, listener);
}

/** @param {{ store: string, number: number, go: string | null } | null} answer */
function answered(answer) {
  if (answer) {
    const { busy, now } = lineOf(answer.store);
    if (now && busy === answer.number) hearing.get(answer.store)?.(now);
    release(answer.store, answer.number);
  }
  if (answer?.go) visit(answer.go);
  return noUpdate;
}

export const callbacks = { answered };
