/**
 * The frame around all pages: keeps Dash's stores in step with the address, and the controls of the header.
 */

import {
  bringLibraries, changedIds, notifyNavigation, noUpdate, onNavigation, propsOf, setProps,
} from "../base/dash.mjs";
import { byId } from "../base/dom.mjs";
import {
  announce, changeView, copyText, goTo, isChosen, noteDrawn, onViewChange, publishView, readView, timeUnit,
  visit,
} from "../base/view.mjs";
import { viewOfJob } from "./jumps.mjs";
import { pointNavigation } from "./links.mjs";
import { changedParts, PARTS } from "./parts.mjs";
import { pinnedNode, withPin } from "./pin.mjs";
import { report } from "./report.mjs";
import { toggleTheme } from "./theme.mjs";

/** @import { View } from "../base/view.mjs" */

const POLL_MS = 100;
/**
 * Polls without a callback under way after which a page counts as complete: before the first callback, and
 * after.
 */
const QUIET_AT_FIRST = 10, QUIET = 2;

const takeChanged = changedParts();
let awaiting = 0;
let shownPath = window.location.pathname;
/** Navigations that were told, so that one that waited knows whether another has taken its place. */
let navigations = 0;
/** Whether the navigation that is told again is a step back. */
let wasReturn = false;
/** The pin of the view, as it was published last. @type {string | undefined} */
let pin;

/** Give Dash the view, and those parts of it that have changed. */
function publish() {
  const view = readView();
  pin = view.pin;
  pointNavigation(view);
  setProps("view", { data: view });
  const changed = takeChanged(view, window.location.pathname);
  if ("job" in changed) dimUntilComplete();
  for (const [store, data] of Object.entries(changed)) setProps(store, { data });
}

/** Dim what still shows the previous job, until the callbacks have answered. */
function dimUntilComplete() {
  const content = byId("content");
  let quiet = 0, enough = QUIET_AT_FIRST;
  content?.setAttribute("data-awaited", "");
  window.clearInterval(awaiting);
  awaiting = window.setInterval(() => {
    if (document.querySelector("._dash-loading-callback")) {
      quiet = 0;
      enough = QUIET;
    } else quiet += 1;
    if (quiet < enough) return;
    window.clearInterval(awaiting);
    content?.removeAttribute("data-awaited");
  }, POLL_MS);
}

/**
 * Within a page the view is followed; Dash would draw the page anew, empty. Another page is drawn by Dash,
 * and the view comes with it: see `viewFromAddress`. A pin goes along, but for steps back. Dash hears of a
 * page once the libraries it draws with are there.
 *
 * @param {boolean} isReturn
 * @param {boolean} isOurs
 */
function followAddress(isReturn, isOurs) {
  const { pathname, search } = window.location;
  const next = isReturn || wasReturn ? search : withPin(search, pin);
  if (next !== search) window.history.replaceState(null, "", next);
  // Where Dash puts back the address of the page it is drawing, that takes nothing's place.
  if (isReturn || isOurs || pathname !== shownPath) navigations++;
  const count = navigations;
  if (pathname !== shownPath) {
    const coming = bringLibraries(pathname);
    void coming?.then((hasCome) => {
      if (hasCome && count === navigations) navigateAgain(pathname + next, isReturn);
    });
    if (!coming) shownPath = pathname;
    return Boolean(coming);
  }
  window.setTimeout(publishView, 0);
  return true;
}

/**
 * Tell of a navigation whose libraries have come. Dash may have put back the address that it was told last.
 *
 * @param {string} address
 * @param {boolean} isReturn
 */
function navigateAgain(address, isReturn) {
  const { pathname, search } = window.location;
  if (pathname + search !== address) window.history.replaceState(null, "", address);
  wasReturn = isReturn;
  notifyNavigation();
  wasReturn = false;
}

/** Keep Dash in step with the address from now on. */
export function followView() {
  onNavigation(followAddress);
  onViewChange(publish);
}

/** What clears a message about one job when another is shown. */
const clear = () => null;

/**
 * Called once the page of the address is in the document: callbacks of the page before it hear nothing of the
 * new view.
 *
 * @returns {unknown[]} the view, then the parts of it in the order of PARTS
 */
function viewFromAddress() {
  const view = readView(), changed = takeChanged(view, window.location.pathname);
  noteDrawn();
  pointNavigation(view);
  pin = view.pin;
  return [view, ...Object.keys(PARTS).map((store) => (store in changed ? changed[store] : noUpdate))];
}

/** @type {(job: string | null, view: View) => unknown} */
function switchJob(job, view) {
  const path = window.location.pathname;
  if (job && job !== view.job && isChosen("job-pick", view.job)) {
    goTo(path === "/" ? "/overview" : path, viewOfJob(path, readView(), job));
  }
  return noUpdate;
}

/** @type {(run: string | null, known: string | null) => unknown} */
function switchRun(run, known) {
  // A window of one run says nothing of another.
  if (run && known && run !== known && isChosen("run-pick", known)) {
    changeView({ run, from: null, to: null, mark: null });
  }
  return noUpdate;
}

/**
 * Hand what the bar heard of the background tasks on to the stores of the shown page, where it brings some.
 *
 * @type {(known: string | null, ticks: number | null) => void}
 */
function tellTasks(known, ticks) {
  const changed = changedIds();
  const page = window.location.pathname.slice(1) || "home";
  for (const [from, to, data] of /** @type {const} */ ([
    ["activity-known", `${page}-tasks-changed`, known],
    ["activity-poll", `${page}-tasks-ticked`, ticks],
  ])) {
    if (changed?.includes(from) !== false && propsOf(to)) setProps(to, { data });
  }
}

/** @type {(clicks: number | null) => unknown} */
function share(clicks) {
  if (clicks) {
    const refused = "The browser refused to copy; copy the link from the address bar.";
    copyText(window.location.href)
      .then(() => announce("Link to this view copied."), () => announce(refused));
  }
  return noUpdate;
}

/** @type {(unit: string | null) => unknown} */
function switchTime(unit) {
  const now = timeUnit();
  if (!unit) return now;
  if (unit !== now) {
    document.cookie = `studio-time=${unit}; path=/; max-age=31536000; samesite=strict`;
    window.location.reload();
  }
  return noUpdate;
}

/** @type {(view: View, aside: { collapsed: { desktop: boolean } }) => unknown} */
function showInspector(view, aside) {
  const isClosed = !(view.job && view.node) && !pinnedNode(view.pin);
  if (aside.collapsed.desktop === isClosed) return noUpdate; // all that the frame holds would be drawn anew
  return { ...aside, collapsed: { desktop: isClosed, mobile: isClosed } };
}

/**
 * Open the page that a mark of a figure leads to: the last of its custom data. The click is forgotten, so
 * that the same mark can be clicked again.
 *
 * @param {{ points?: { customdata?: unknown[] }[] } | null} click
 */
function visitMark(click) {
  const address = click?.points?.[0]?.customdata?.at(-1);
  if (typeof address === "string" && address.startsWith("/")) visit(address);
  return click ? null : noUpdate;
}

export const callbacks = {
  clear, viewFromAddress, switchJob, switchRun, tellTasks, toggleTheme, share, report, switchTime,
  showInspector, visitMark,
  /** @type {(times: number | null) => unknown} */
  lookAgain: (times) => times ?? noUpdate,
};
