/* The Timeline page: reads the run of the view and shows it; its buttons, and what Dash calls. */

import { noUpdate, showTests } from "../base/dash.mjs";
import { byId, element, setText, setVisible, targetOf } from "../base/dom.mjs";
import { unpack } from "../base/packed.mjs";
import { pageTimers } from "../base/timers.mjs";
import { Axis } from "./axis.mjs";
import { Chart } from "./chart.mjs";
import { pressKey, showHelp } from "./keys.mjs";
import { GUTTER } from "./lanes.mjs";
import { SAVES } from "./save.mjs";
import { Scene } from "./scene.mjs";
import { Refusal, ask, explain, timelineAddress } from "./server.mjs";
import { Timeline } from "./timeline.mjs";

/** @import { View } from "../base/view.mjs" */

/**
 * What studio/pages/timeline/page.py says is to be shown.
 * @typedef {{job: string, run: string, others?: {value: string, label: string}[]}} Source
 */

const NARROWEST_NS = 10;
const KEPT_BYTES = 96e6;

/** @type {Record<string, (scene: Scene, button: HTMLElement) => void>} */
const BUTTONS = {
  ...SAVES,
  "timeline-fit": ({ motion }) => motion.fit(),
  "timeline-in": ({ motion }) => motion.zoom(2, null),
  "timeline-out": ({ motion }) => motion.zoom(0.5, null),
  "timeline-fold": (scene) => scene.foldAll(),
  "timeline-help": showHelp,
  "timeline-keys-close": () => {
    const box = byId("timeline-keys");
    if (box instanceof HTMLDialogElement) box.close();
  },
};

/** The page, however often it is opened; the run that was shown last is kept with its tiles. */
class TimelinePage {
  constructor() {
    this.later = pageTimers();
    this.wanted = ""; /* the run that is shown or read */
    /** @type {Timeline | null} */
    this.timeline = null;
    /** @type {Scene | null} */
    this.scene = null;
  }

  /** Listen to buttons, keys and fields, whichever run is shown. */
  listen() {
    document.addEventListener("click", (event) => {
      const button = targetOf(event, "#timeline-page button");
      if (button && this.scene?.isLive()) clickButton(this.scene, button);
    });
    document.addEventListener("keydown", (event) => {
      if (!this.scene?.isLive()) return;
      const { target } = event;
      if (isSearch(target)) this.scene.search.press(event, target.value);
      else pressKey(this.scene, event);
    });
    document.addEventListener("input", ({ target }) => {
      if (isSearch(target) && this.scene?.isLive()) this.scene.search.type(target.value);
    });
    document.addEventListener("change", ({ target }) => {
      if (!(target instanceof HTMLSelectElement) || target.id !== "timeline-ghost") return;
      this.scene?.change({ ghost: target.value || null });
    });
  }

  /** Show the run the server chose for the view. @param {View} view @param {Source | null} source */
  follow(view, source) {
    const scroll = byId("timeline-scroll");
    if (!source || source.job !== view.job || !scroll) return;
    const key = source.job + "/" + source.run;
    if (key !== this.wanted) this.#load(key, source);
    else if (this.scene?.scroll === scroll) {
      this.scene.source = source;
      this.scene.apply();
    } else if (this.timeline) this.#open(this.timeline, scroll, source);
  }

  /** @param {string} key @param {Source} source */
  #load(key, source) {
    const { job, run } = source;
    this.wanted = key;
    this.timeline = null;
    this.scene?.close();
    this.scene = null;
    this.later("slow", 300, () => {
      if (this.wanted === key && !this.timeline) setText("timeline-status", "Reading the timeline…");
    });
    ask(timelineAddress(job, run, "")).then((answer) => answer.arrayBuffer()).then((buffer) => {
      const scroll = byId("timeline-scroll");
      if (this.wanted !== key) return;
      showError(null);
      const chart = new Chart(job, run, unpack(buffer));
      const sceneOf = () => (this.scene?.chart === chart ? this.scene : null);
      const timeline = new Timeline(chart, new Axis(GUTTER, NARROWEST_NS), {
        budget: KEPT_BYTES,
        draw: () => sceneOf()?.refresh(),
        fail: (error) => sceneOf()?.say(explain(error)),
      });
      this.timeline = timeline;
      if (scroll) this.#open(timeline, scroll, source);
    }).catch((error) => {
      if (this.wanted === key) showError(error);
    });
  }

  /** @param {Timeline} timeline @param {HTMLElement} scroll @param {Source} source */
  #open(timeline, scroll, source) {
    this.scene?.close();
    this.scene = new Scene(timeline, scroll, source, this.later);
    this.scene.apply();
  }

  /** The theme has changed. */
  dress() {
    if (this.scene?.isLive()) this.scene.draw();
  }

  /* For tests and measurements. */

  /** Where a moment of a row is drawn. @param {number} row @param {number} ns */
  point(row, ns) {
    const scene = /** @type {Scene} */ (this.scene);
    scene.measure();
    const { y, height } = scene.lanes.placeOfRow(row);
    return scene.surface.place(scene.axis.x(ns), y + height / 2);
  }

  /** What was drawn last, and what is kept. */
  stats() {
    const { timeline, axis, counts, look } = /** @type {Scene} */ (this.scene);
    const { kept, size } = timeline.tiles;
    const level = timeline.pickLevel(look);
    return { bytes: kept, tiles: size, ...axis.shown, level, ...counts, ...timeline.counts };
  }
}

/** @param {EventTarget | null} target @returns {target is HTMLInputElement} */
function isSearch(target) {
  return target instanceof HTMLInputElement && target.id === "timeline-search";
}

/** @param {Scene} scene @param {HTMLElement} button */
function clickButton(scene, button) {
  const { order, category } = button.dataset;
  const act = scene.features.find(({ buttons }) => buttons?.[button.id])?.buttons?.[button.id];
  if (act) act(button);
  else if (BUTTONS[button.id]) BUTTONS[button.id](scene, button);
  else if (order) scene.change({ order: order === "rank" ? null : order, top: null });
  else if (category) scene.toggle(Number(category));
  else if (button.closest("#timeline-window")) scene.table.press(button);
}

/** Say why there is nothing to show; null takes it back. @param {Error | null} error */
function showError(error) {
  const box = byId("timeline-error");
  if (!box) return;
  setVisible(byId("timeline-body"), !error);
  box.className = error ? "cs-error" : "";
  if (!error) return box.replaceChildren();
  const isRefusal = error instanceof Refusal;
  box.replaceChildren(
    element("strong", { text: "The timeline cannot be shown" }),
    element("p", { text: isRefusal ? error.message : "The studio does not answer." }),
    element("p", { text: isRefusal ? error.hint : "Is it still running?" }),
  );
}

/** Show the page whenever it is opened. Returns what Dash calls. */
export function startTimelinePage() {
  const page = new TimelinePage();
  page.listen();
  showTests({ timeline: page });
  return {
    /** @param {View} view @param {Source | null} source */
    follow: (view, source) => {
      page.follow(view, source);
      return noUpdate;
    },
    /** @param {Source | null} source @param {View} view */
    found: (source, view) => {
      page.follow(view, source);
      return noUpdate;
    },
    theme: () => {
      page.dress();
      return noUpdate;
    },
  };
}
