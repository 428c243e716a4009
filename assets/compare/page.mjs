/* The Compare page: shows the runs the view names, its buttons and keys, and what Dash calls. */

import { noUpdate, showTests } from "../base/dash.mjs";
import { byId, targetOf } from "../base/dom.mjs";
import { pageTimers } from "../base/timers.mjs";
import { changeView, readView } from "../base/view.mjs";
import { Comparison, nameSide } from "./comparison.mjs";
import { AXIS, GUTTER } from "./layout.mjs";

/** @import { View } from "../base/view.mjs" */
/**
 * What to show, see studio/pages/compare/page.py.
 * @typedef {{sides: [string, string][], names?: string[], unranked?: boolean[]}} Source
 */
/** @typedef {{sides: [string, string][], ns: number[]}} Anchors */

const ZOOM = 1 / 0.7;

/** @param {Comparison} comparison */
function readAim({ pointer }) {
  return pointer && pointer[0] > GUTTER ? pointer[0] : null;
}

/** @type {Record<string, (comparison: Comparison) => void>} */
const KEYS = {
  w: (comparison) => comparison.motion.zoom(ZOOM, readAim(comparison)),
  s: (comparison) => comparison.motion.zoom(1 / ZOOM, readAim(comparison)),
  a: ({ motion }) => motion.pan(-0.2),
  d: ({ motion }) => motion.pan(0.2),
  ArrowLeft: ({ motion }) => motion.pan(-0.2),
  ArrowRight: ({ motion }) => motion.pan(0.2),
  ArrowUp: (comparison) => comparison.scrollBy(-40),
  ArrowDown: (comparison) => comparison.scrollBy(40),
  "+": ({ motion }) => motion.zoom(ZOOM, null),
  "-": ({ motion }) => motion.zoom(1 / ZOOM, null),
  0: ({ motion }) => motion.fit(),
  f: (comparison) => comparison.fitSelected(),
  Escape: (comparison) => comparison.clearSelection(),
};

/** @type {Record<string, (comparison: Comparison) => void>} */
const BUTTONS = {
  "compare-fit": KEYS[0],
  "compare-in": KEYS["+"],
  "compare-out": KEYS["-"],
  "compare-beside": () => changeView({ layout: null }),
  "compare-overlay": () => changeView({ layout: "overlay" }),
  "compare-swap": (comparison) => comparison.swap(),
  "compare-pin": (comparison) => comparison.pin(),
};

/** The page, however often it is opened. */
class ComparePage {
  constructor() {
    this.later = pageTimers();
    /** @type {Comparison | null} */
    this.comparison = null;
  }

  /** Listen to buttons and keys, whatever is compared. */
  listen() {
    document.addEventListener("click", (event) => {
      const id = targetOf(event, "button")?.id ?? "";
      if (BUTTONS[id] && this.comparison?.isReady()) BUTTONS[id](this.comparison);
    });
    document.addEventListener("keydown", (event) => {
      if (!this.comparison?.isReady() || event.target !== this.comparison.host) return;
      const act = KEYS[event.key] ?? KEYS[event.key.toLowerCase()];
      if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      act(this.comparison);
    });
  }

  /**
   * Show the runs the server chose for the view.
   * @param {View} view @param {Source | null} source @param {Anchors | null} anchors
   */
  follow(view, source, anchors) {
    const host = byId("compare-canvas");
    if (!host || !source || source.sides.length < 2) return;
    const key = JSON.stringify(source.sides);
    /* Many sides get what the window has: each shows some ranks at once, and all of them are in sight. */
    const each = view.layout === "overlay" ? 190 : 210, most = Math.max(760, window.innerHeight - 150);
    host.style.height = Math.min(most, AXIS + source.sides.length * each) + "px";
    if (this.comparison?.host !== host || JSON.stringify(this.comparison.runs) !== key) {
      this.comparison?.close();
      this.comparison = new Comparison(host, source.sides, this.later);
    }
    this.comparison.names = source.names ?? [];
    this.comparison.unranked = source.unranked ?? [];
    if (anchors && JSON.stringify(anchors.sides) === key) this.comparison.align(anchors.ns);
    /* The link shall open the same run when there are newer ones. Dash's view may be an earlier one. */
    if (!readView().run) changeView({ run: source.sides[0][1] }, { replace: true });
    this.comparison.apply();
  }

  /* For tests. */

  state() {
    const comparison = /** @type {Comparison} */ (this.comparison);
    const { axis: { shown }, sides, isOverlay, offsets, selected } = comparison;
    const mode = isOverlay ? "overlay" : "beside";
    return { shown, sides: sides.length, mode, offsets, selected: selected.length ? selected : null };
  }

  /**
   * Where a moment of a row of a side is drawn.
   * @param {number} side @param {number} row @param {number} ns
   */
  point(side, row, ns) {
    const comparison = /** @type {Comparison} */ (this.comparison), panes = comparison.listPanes();
    const pane = panes[comparison.isOverlay ? 0 : side], place = comparison.placeOf(pane, side, row);
    if (!place) return null;
    return comparison.surface.place(comparison.sides[side].timeline.x(ns), place.y + place.tall / 2);
  }
}

/** Show the page whenever it is opened. Returns what Dash calls. */
export function startComparePage() {
  const page = new ComparePage();
  page.listen();
  showTests({ compare: page });
  return {
    /** @param {View} view @param {Source | null} source @param {Anchors | null} anchors */
    follow: (view, source, anchors) => {
      page.follow(view, source, anchors);
      return noUpdate;
    },
    /** Add a run to the view. @param {string | null} value job/run @param {Source | null} source */
    add: (value, source) => {
      if (!value) return noUpdate;
      const view = readView(), [job, run] = value.split("/");
      if (!source?.sides.length) changeView({ job, run });
      else {
        const [first, ...others] = source.sides, names = others.map(nameSide);
        if (nameSide(first) !== value && !names.includes(value)) names.push(value);
        changeView({ job: view.job || first[0], run: view.run || first[1], with: names.join(",") });
      }
      return null;
    },
    /** @param {string | null} value what the sides are aligned by */
    alignBy: (value) => {
      const align = value === "start" ? null : value;
      if (value && value !== (readView().align || "start")) changeView({ align, from: null, to: null });
      return noUpdate;
    },
  };
}
