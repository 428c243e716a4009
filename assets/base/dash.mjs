/** The only edge to Dash: what it leaves untyped, and the one private name of it that is used. */

/** Dash has no types of what it puts into the page. @type {any} */
const page = globalThis;

/**
 * What a client-side callback returns to leave its output as it is. Dash makes it at its first call of one,
 * unless it is there: modules come before.
 *
 * @type {any}
 */
export const noUpdate = page.dash_clientside?.no_update ?? { description: "leave the output as it is" };
// Dash's own cannot be written.
if (page.dash_clientside && !page.dash_clientside.no_update) page.dash_clientside.no_update = noUpdate;

/** Sent by dcc.Link, heard by dcc.Location: Dash has no public way to visit a page without loading it. */
const NAVIGATED = "_dashprivate_pushstate";
/** What our own such events say: dcc.Location sends it, too, where it puts an address back. */
const OURS = "studio";

/**
 * Set properties of a component, as the answer of a callback would.
 *
 * @param {string | Record<string, unknown>} id
 * @param {Record<string, unknown>} props
 */
export function setProps(id, props) {
  page.dash_clientside.set_props(id, props);
}

/**
 * Properties of a component as Dash has them; null if there is no such component.
 *
 * @param {string | Record<string, unknown>} id
 * @returns {Record<string, any> | null}
 */
export function propsOf(id) {
  try {
    return page.dash_component_api.getLayout(id)?.props ?? null;
  } catch {
    return null; // Dash fails on an id that is nowhere.
  }
}

/** Tell Dash that the address has changed, as its own links do. */
export function notifyNavigation() {
  page.dispatchEvent(new CustomEvent(NAVIGATED, { detail: OURS }));
}

/** @type {Set<(isReturn: boolean, isOurs: boolean) => boolean | void>} */
const navigated = new Set();

/**
 * Call a function whenever the address changes: by a link, by `notifyNavigation`, or by going back and forth,
 * which is told as `isReturn`; what `notifyNavigation` told as `isOurs`. All are called, before Dash hears of
 * it; where one returns true Dash does not, and leaves the page as it is.
 *
 * @param {(isReturn: boolean, isOurs: boolean) => boolean | void} listener
 */
export function onNavigation(listener) {
  navigated.add(listener);
}

/** @param {Event} event */
function navigate(event) {
  const isReturn = event.type === "popstate", isOurs = event instanceof CustomEvent && event.detail === OURS;
  const answers = [...navigated].map((listener) => listener(isReturn, isOurs));
  if (answers.includes(true)) event.stopImmediatePropagation();
}

// Captured, hence before dcc.Location's own listeners, whichever came first.
for (const name of ["popstate", NAVIGATED]) page.addEventListener?.(name, navigate, true);

/** The library behind dcc.Graph. @returns {any} */
export function plotly() {
  return page.Plotly;
}

/**
 * The interface of a table of dash-ag-grid; undefined while it is not there.
 *
 * @param {string} id
 * @returns {any}
 */
export function gridOf(id) {
  try {
    return page.dash_ag_grid?.getApi(id);
  } catch {
    return undefined;
  }
}

/**
 * Addresses of scripts that pages other than the one that was opened draw with, by path; what the server put
 * off.
 *
 * @type {Record<string, string[]> | null}
 */
let later = null;

/** @type {Map<string, Promise<unknown>>} */
const bringing = new Map();

/** @type {(address: string) => Promise<unknown>} */
function bring(address) {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.onload = resolve;
    script.onerror = reject;
    script.src = address;
    document.head.append(script);
  });
}

/**
 * Bring the libraries that a page draws with; null where all are there. If one does not come, that is said on
 * the page, and it is asked for again next time.
 *
 * @param {string} path
 * @returns {Promise<boolean> | null} whether all have come
 */
export function bringLibraries(path) {
  later ??= /** @type {Record<string, string[]>} */ (
    JSON.parse(document.getElementById("studio-later")?.textContent || "{}")
  );
  const shown = `/${path.replace(/^\/+|\/+$/g, "")}`, addresses = later[shown];
  if (!addresses) return null;
  for (const address of addresses) if (!bringing.has(address)) bringing.set(address, bring(address));
  return Promise.all(addresses.map((address) => bringing.get(address))).then(
    () => {
      page.studioLoader.quietLibraries();
      delete later?.[shown];
      return true;
    },
    () => {
      for (const address of addresses) bringing.delete(address);
      page.studioLoader.showFailure();
      return false;
    },
  );
}

/** @typedef {Record<string, (...values: any[]) => unknown>} Callbacks by name */

/**
 * Give the loader the client-side callbacks by namespace, those of a page as a function that loads them.
 *
 * @param {Record<string, Callbacks | (() => Promise<Callbacks>)>} callbacks
 */
export function bringCallbacks(callbacks) {
  page.studioLoader.ready(callbacks);
}

/**
 * Load the callbacks of a namespace before Dash asks for them; does nothing where there is no such namespace.
 *
 * @param {string} namespace
 */
export function loadCallbacks(namespace) {
  page.studioLoader.load(namespace);
}

/**
 * Put values where the browser tests find them: `window.studio`.
 *
 * @param {Record<string, unknown>} hooks
 */
export function showTests(hooks) {
  page.studio = { ...page.studio, ...hooks };
}

/**
 * Ids of the components whose change a client-side callback answers; null where Dash no longer says, as
 * after waiting.
 *
 * @returns {string[] | null}
 */
export function changedIds() {
  /** @type {{ prop_id: string }[] | undefined} */
  const triggered = page.dash_clientside.callback_context?.triggered;
  return triggered?.map(({ prop_id: id }) => id.slice(0, id.lastIndexOf("."))) ?? null;
}
