/* A run as the Timeline page shows it: what the view asks for, what is drawn, and the page's features. */

import { Surface } from "../base/canvas.mjs";
import { element, setText } from "../base/dom.mjs";
import { formatMoment } from "../base/format.mjs";
import { changeView, readView } from "../base/view.mjs";
import { Chain } from "./chain.mjs";
import { CATEGORIES } from "./chart.mjs";
import { Counters } from "./counters.mjs";
import { drawPicture } from "./draw.mjs";
import { Flags } from "./flags.mjs";
import { Ghost } from "./ghost.mjs";
import { Hands } from "./hands.mjs";
import { AXIS, GUTTER, Lanes, PAD, isFolded, readFolds, rowsOf, writeFolds } from "./lanes.mjs";
import { freshLook } from "./look.mjs";
import { Motion } from "./motion.mjs";
import { Path } from "./path.mjs";
import { Peers } from "./peers.mjs";
import { Pieces } from "./pieces.mjs";
import { Search } from "./search.mjs";
import { Selection } from "./selection.mjs";
import { ask, askJson } from "./server.mjs";
import { WindowTable } from "./table.mjs";
import { Words } from "./words.mjs";

/** @import { Pen } from "../base/canvas.mjs" */
/** @import { Patch, View } from "../base/view.mjs" */
/** @import { Look } from "./look.mjs" */
/** @import { Source } from "./page.mjs" */
/** @import { Timeline } from "./timeline.mjs" */

/**
 * What a feature adds: to changes of the view, to picture and axis, after frames, and its keys and buttons.
 * @typedef {object} Feature
 * @property {(view: View) => void} [prepare] before the view is applied
 * @property {(view: View) => void} [apply]
 * @property {(pen: Pen, wide: number, high: number) => void} [draw]
 * @property {(pen: Pen, wide: number) => void} [drawAxis]
 * @property {(isComplete: boolean) => void} [afterFrame]
 * @property {Record<string, (event: KeyboardEvent) => void>} [keys]
 * @property {Record<string, (button: HTMLElement) => void>} [buttons]
 */

const OPEN_AT_MOST = 12; /* ranks that are open at first; more are folded */
const ORDERS = /** @type {const} */ (["rank", "finish", "idle"]);

export class Scene {
  /**
   * @param {Timeline} timeline @param {HTMLElement} scroll @param {Source} source
   * @param {(name: string, waitMs: number, act: () => void) => void} later
   */
  constructor(timeline, scroll, source, later) {
    this.timeline = timeline;
    this.chart = timeline.chart;
    this.source = source;
    this.isOpen = true;
    /** Like a timer of the page, which ends with the scene. @type {typeof later} */
    this.later = (name, waitMs, act) => later(name, waitMs, () => this.isLive() && act());
    this.scroll = scroll;
    this.canvas = element("canvas", { "aria-hidden": "true" });
    this.spacer = element("div");
    scroll.replaceChildren(this.canvas, this.spacer);
    this.surface = new Surface(this.canvas, (now) => this.#render(now), { alpha: false });
    this.draw = this.surface.draw;
    this.axis = timeline.axis;
    this.lanes = new Lanes(this.chart);
    /** @type {Motion} */
    this.motion = new Motion(this.axis, {
      draw: this.draw,
      isHeld: () => this.hands.isDragging(),
      change: (patch, options) => this.change(patch, options),
      later: this.later,
    });
    /** @type {Hands} */
    this.hands = new Hands(this.surface, scroll, this.axis, this.motion, this.#makeActs());
    /** @type {boolean[]} by category */
    this.hidden = [];
    this.folds = readFolds("", this.isUsuallyFolded());
    /** @type {typeof ORDERS[number]} */
    this.order = "rank";
    /** @type {Map<number, number> | null} */
    this.idle = null;
    /** @type {number[]} Ranks that stay above the others. */
    this.pins = [];
    /** @type {number | null} */
    this.chosen = null;
    /** @type {[number, number] | null} The window that is marked. */
    this.marked = null;
    /** @type {import("./draw.mjs").Tag[]} What labels take of the axis in this frame. */
    this.tags = [];
    /** @type {import("./hands.mjs").Point | null} */
    this.pointer = null;
    /** @type {Look} */
    this.look = freshLook(null, this.hidden);
    this.topShown = "";
    this.counts = { frames: 0, spent: 0 };
    setText("timeline-undrawn", this.chart.rows.undrawn);
    this.words = new Words(this);
    this.selection = new Selection(this);
    this.chain = new Chain(this);
    this.counters = new Counters(this);
    this.ghost = new Ghost(this);
    this.flags = new Flags(this);
    this.path = new Path(this);
    this.peers = new Peers(this);
    this.pieces = new Pieces(this);
    this.search = new Search(this);
    this.table = new WindowTable(this);
    /** @type {Feature[]} */
    this.features = [
      this.path, this.chain, this.counters, this.ghost, this.flags, this.peers, this.pieces,
      this.search, this.table,
    ];
    this.observer = new ResizeObserver(() => {
      this.arrange(readView().top);
      this.draw();
    });
    this.observer.observe(scroll);
    scroll.onscroll = () => this.#scrolled();
  }

  /** What pointers and wheel do. @returns {import("./hands.mjs").Acts} */
  #makeActs() {
    return {
      isReady: () => this.isLive(),
      point: (at) => {
        this.pointer = at;
        this.words.point();
      },
      leave: () => {
        this.pointer = null;
        this.words.leave();
      },
      tap: (at) => this.#tap(at),
      readTop: () => this.scroll.scrollTop,
      scrollTo: (top, isTouch) => {
        if (!isTouch) this.scroll.scrollTop = top;
      },
      startsMark: (at, event) => at[0] > GUTTER && (event.shiftKey || at[1] < AXIS),
      mark: (from, to) => {
        const ends = [from, to].map((ns) => Math.round(Math.min(Math.max(ns, 0), this.chart.span)));
        this.marked = [Math.min(...ends), Math.max(...ends)];
      },
      endMark: () => {
        const { marked } = this;
        this.change({ mark: marked && marked[1] > marked[0] ? marked.join("-") : null });
      },
      draw: () => {
        if (this.hands.isDragging()) this.words.hover = null;
        this.draw();
      },
    };
  }

  /** Whether this is what the page shows. */
  isLive() {
    return this.isOpen && this.canvas.isConnected;
  }

  /** Another run takes its place, or the page was left. */
  close() {
    this.isOpen = false;
    this.observer.disconnect();
  }

  /**
   * Ask the studio about the run. Answers that come after the scene was closed never arrive.
   * @template T
   * @param {string} path
   * @param {import("./server.mjs").Query} [query]
   * @returns {Promise<T>}
   */
  askJson(path, query) {
    return this.#whileOpen(askJson(this.timeline.address(path, query)));
  }

  /** @param {string} path @param {import("./server.mjs").Query} [query] @returns {Promise<ArrayBuffer>} */
  askBytes(path, query) {
    return this.#whileOpen(ask(this.timeline.address(path, query)).then((answer) => answer.arrayBuffer()));
  }

  /**
   * @template T
   * @param {Promise<T>} promise
   * @returns {Promise<T>}
   */
  #whileOpen(promise) {
    return new Promise((resolve, reject) => {
      promise.then((value) => this.isOpen && resolve(value), (error) => this.isOpen && reject(error));
    });
  }

  /* ---- the view ---- */

  /**
   * What this page changes it shows at once; the others follow.
   * @param {Patch} patch @param {{replace?: boolean}} [options]
   */
  change(patch, options) {
    changeView(patch, options);
    this.apply();
  }

  /** Show what the address asks for. */
  apply() {
    if (!this.isLive()) return;
    this.measure();
    const view = readView();
    for (const feature of this.features) feature.prepare?.(view);
    this.axis.bounds = { from: 0, to: this.chart.span };
    this.motion.follow(view);
    const hide = (view.hide || "").split(",");
    this.hidden = CATEGORIES.map((name) => hide.includes(name));
    this.order = ORDERS.find((order) => order === view.order) ?? "rank";
    this.chosen = view.rank === undefined ? null : Number(view.rank);
    this.pins = (view.pin || "").split(",").filter((part) => /^\d+$/.test(part)).map(Number);
    const mark = /^(\d+)-(\d+)$/.exec(view.mark || "");
    if (!this.hands.isMarking()) {
      const { span } = this.chart;
      this.marked = mark ? [Math.min(Number(mark[1]), span), Math.min(Number(mark[2]), span)] : null;
    }
    this.folds = readFolds(view.fold, this.isUsuallyFolded());
    this.dress();
    if (this.order === "idle" && !this.idle) this.#askIdle();
    this.arrange(view.top);
    this.#showLegend();
    this.selection.follow(view);
    for (const feature of this.features) feature.apply?.(view);
    this.draw();
  }

  /** How long each rank was idle: asked for when the order needs it. */
  #askIdle() {
    const { ranks } = this.chart.rows;
    this.idle = new Map();
    /** @type {Promise<{idle: number[]}>} */
    const answer = this.askJson("/idle");
    answer.then(({ idle }) => {
      this.idle = new Map(idle.map((ns, place) => [ranks[place], ns]));
      this.apply();
    }, () => {
      this.idle = null;
    });
  }

  isUsuallyFolded() {
    return this.chart.groups.size > OPEN_AT_MOST;
  }

  /** @param {import("./lanes.mjs").Folds} folds */
  changeFolds(folds) {
    this.change({ fold: writeFolds(folds, this.isUsuallyFolded()) });
  }

  areAllFolded() {
    return this.folds.base && !this.folds.except.size;
  }

  foldAll() {
    this.changeFolds({ base: !this.areAllFolded(), except: new Set() });
  }

  /** @param {number} category */
  toggle(category) {
    const names = CATEGORIES.filter((_, other) => this.hidden[other] !== (other === category));
    this.change({ hide: names.join(",") || null });
  }

  #showLegend() {
    for (const button of document.querySelectorAll("#timeline-legend [data-category]")) {
      button.setAttribute("aria-pressed", String(!this.hidden[Number(button.getAttribute("data-category"))]));
    }
    setText("timeline-fold", this.areAllFolded() ? "Open all" : "Fold all");
    for (const button of document.querySelectorAll("#timeline-page [data-order]")) {
      button.setAttribute("aria-pressed", String(button.getAttribute("data-order") === this.order));
    }
  }

  /* ---- where things are ---- */

  /** Asked of the browser once a frame: every answer may cost it a layout. */
  measure() {
    const { size } = this.lanes;
    size.wide = this.scroll.clientWidth;
    size.high = this.scroll.clientHeight;
    size.top = this.scroll.scrollTop;
    this.axis.width = size.wide - GUTTER;
  }

  /**
   * Put the lanes in their places, and scroll to the rank the view asks for.
   * @param {string | undefined} top
   */
  arrange(top) {
    const { lanes, scroll } = this;
    this.measure();
    const folds = (/** @type {number} */ rank) => isFolded(this.folds, rank);
    lanes.arrange(this.order, this.pins, this.idle, folds, this.timeline.ghost !== "");
    this.spacer.style.height = Math.max(0, lanes.height - lanes.size.high) + "px";
    if (this.topShown === "/" + top) return;
    this.topShown = "/" + top;
    const place = top === undefined ? undefined : lanes.placeOf.get(Number(top));
    const shown = lanes.indexAt(scroll.scrollTop + lanes.pinHeight + PAD);
    if (shown === (place ?? 0)) return;
    scroll.scrollTop = place === undefined || place < lanes.pinned ? 0 : lanes.y[place] - lanes.pinHeight;
  }

  #scrolled() {
    this.draw();
    this.later("scrolled", 400, () => {
      const { lanes, scroll } = this;
      const group = lanes.list[lanes.indexAt(scroll.scrollTop + lanes.pinHeight + PAD)];
      const top = scroll.scrollTop > 2 && group ? String(group.rank) : null;
      if ((readView().top || null) !== top) this.change({ top }, { replace: true });
    });
  }

  /** @param {number} py */
  rowAt(py) {
    this.measure();
    return this.lanes.rowAt(py);
  }

  /** Where the pointer is on the time axis, in pixels; null beside it. */
  get aim() {
    return this.pointer && this.pointer[0] > GUTTER ? this.pointer[0] : null;
  }

  /** A moment in words. @param {number} ns */
  formatMoment(ns) {
    return formatMoment(ns, this.chart.span);
  }

  /** @param {string} text */
  say(text) {
    setText("timeline-status", text);
  }

  /** @param {import("./hands.mjs").Point} at */
  #tap(at) {
    if (at[0] >= GUTTER) return this.selection.pick(at);
    const place = this.rowAt(at[1]);
    if (!place) return;
    const { rank, pinAt } = place.group;
    if (Math.abs(at[0] - pinAt) < 8) return this.flags.pin(rank);
    const except = new Set(this.folds.except);
    if (!except.delete(rank)) except.add(rank);
    this.changeFolds({ base: this.folds.base, except });
  }

  /* ---- frames ---- */

  /** Take the colours of the theme. */
  dress() {
    this.look = freshLook(this.look, this.hidden);
  }

  /** @param {number} now */
  #render(now) {
    if (!this.isLive()) return;
    const began = performance.now();
    this.measure();
    const { wide, high } = this.lanes.size;
    if (wide < GUTTER + 40) return;
    this.motion.step(now);
    this.counts.frames++;
    this.dress();
    this.surface.fit(wide, high);
    this.surface.pen.imageSmoothingEnabled = false;
    drawPicture(this, this.surface.pen);
    this.words.afterFrame();
    this.#fetch();
    for (const feature of this.features) feature.afterFrame?.(!this.timeline.missing.size);
    this.counts.spent += performance.now() - began;
    if (this.motion.glide) this.draw();
  }

  #fetch() {
    const isComplete = !this.timeline.missing.size, { scroll } = this;
    if (scroll.hasAttribute("data-ready") !== isComplete) scroll.toggleAttribute("data-ready", isComplete);
    if (isComplete) this.later("prefetch", 120, () => this.#prefetch());
    else this.timeline.fetchMissing();
  }

  /**
   * Ask for the coarsest tile of the rows around, so that nothing is blank, and for the tiles to both sides.
   */
  #prefetch() {
    const { timeline, lanes, axis } = this, { tiles } = timeline;
    if (tiles.running || this.motion.glide) return;
    const { top, high } = lanes.size, level = timeline.pickLevel(this.look);
    const span = this.chart.tileSpan(level);
    const near = rowsOf(lanes.listVisible());
    tiles.want(this.chart.top, 0, rowsOf(lanes.listBetween(top - high, top + 2 * high)));
    tiles.want(level, Math.floor(axis.shown.from / span) - 1, near);
    tiles.want(level, Math.floor(axis.shown.to / span) + 1, near);
  }

  /** Tiles came. What came may be under the pointer, which need not move for that to be said. */
  refresh() {
    if (!this.isLive()) return;
    this.draw();
    const isIdle = () => this.pointer !== null && this.pointer[1] > 0 && !this.words.hover;
    if (isIdle()) this.later("repoint", 60, () => isIdle() && this.words.point());
  }

  /** What the page shows, as the text of an SVG. */
  toSvg() {
    this.measure();
    return this.surface.toSvg((pen) => drawPicture(this, pen));
  }
}
