/* Runs side by side: a Timeline of each, on one time axis. */

import { Surface } from "../base/canvas.mjs";
import { parseCsv } from "../base/csv.mjs";
import { byId, element, setText } from "../base/dom.mjs";
import { registerFigure } from "../base/export.mjs";
import { formatBytes, formatTime } from "../base/format.mjs";
import { unpack } from "../base/packed.mjs";
import { addressOf, changeView, readView } from "../base/view.mjs";
import { Axis } from "../timeline/axis.mjs";
import { Chart } from "../timeline/chart.mjs";
import { formatSigned } from "../timeline/ghost.mjs";
import { Hands } from "../timeline/hands.mjs";
import { freshLook } from "../timeline/look.mjs";
import { Motion } from "../timeline/motion.mjs";
import { describeTime, timeOf } from "../timeline/pieces.mjs";
import { ask, askJson, explain, timelineAddress } from "../timeline/server.mjs";
import { Timeline } from "../timeline/timeline.mjs";
import { drawComparison } from "./draw.mjs";
import { GAP, GUTTER, HEAD, LETTERS, arrangeRanks, makePanes, placeLane, readSlots } from "./layout.mjs";

/** @import { Point } from "../timeline/hands.mjs" */
/** @import { Bar } from "../timeline/timeline.mjs" */
/** @import { Entry, Pane } from "./layout.mjs" */
/** @typedef {{timeline: Timeline, slots: import("./layout.mjs").Slots}} Side */
/**
 * What is at a point: row -1 is between lanes, side -1 left of them.
 * @typedef {{entry: Entry, side: number, row: number}} Spot
 */
/**
 * A node on one side; without times it has neither row nor start.
 * @typedef {{rank: number, node: string, row: number | null, name: string, start: number | null,
 *   end: number, own?: number, pieces?: import("../timeline/pieces.mjs").Piece[]}} Choice
 */

const NARROWEST_NS = 20;
const KEPT_BYTES = 96e6; /* of all runs together */

/** The name of a run without a number is "recorded". @param {[string, string]} run */
export function nameSide([job, run]) {
  return job + "/" + run;
}

export class Comparison {
  /**
   * @param {HTMLElement} host
   * @param {[string, string][]} runs job and run of each side
   * @param {(name: string, waitMs: number, act: () => void) => void} later
   */
  constructor(host, runs, later) {
    this.host = host;
    this.runs = runs;
    this.isOpen = true;
    /** @type {typeof later} */
    this.later = (name, waitMs, act) => later(name, waitMs, () => this.isReady() && act());
    /** @type {string[]} */
    this.names = [];
    /** @type {boolean[]} which sides are of another model than the first, so that neither is better */
    this.unranked = [];
    /** @type {number[]} ns at which each side begins to be compared */
    this.offsets = runs.map(() => 0);
    /** @type {(Side | null)[]} */
    this.loaded = runs.map(() => null);
    /** @type {Side[]} Empty until all are there. */
    this.sides = [];
    this.isOverlay = false;
    /** @type {Entry[]} */
    this.list = [];
    /** @type {Set<number>} */
    this.toggled = new Set();
    this.top = 0; /* how far the ranks are scrolled */
    /** @type {(Choice | null)[]} The selected node on each side; none where nothing is selected. */
    this.selected = [];
    this.selectedKey = "";
    /** @type {Point | null} */
    this.pointer = null;
    const canvas = element("canvas");
    host.replaceChildren(canvas);
    this.surface = new Surface(canvas, (now) => this.#render(now));
    this.draw = this.surface.draw;
    this.look = freshLook(null, []);
    this.axis = new Axis(GUTTER, NARROWEST_NS);
    /** @type {Motion} */
    this.motion = new Motion(this.axis, {
      draw: this.draw, isHeld: () => this.hands.isDragging(), change: changeView, later: this.later,
    });
    /** @type {Hands} */
    this.hands = new Hands(this.surface, host, this.axis, this.motion, {
      isReady: () => this.isReady(),
      point: (at) => this.#point(at),
      leave: () => {
        this.pointer = null;
        this.draw();
      },
      tap: (at) => this.#tap(at),
      readTop: () => this.top,
      scrollTo: (top) => this.scrollBy(top - this.top),
      scrollBy: (by) => this.scrollBy(by),
      draw: this.draw,
    });
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(host);
    registerFigure(host.id, {
      png: () => this.surface.toPng(),
      svg: async () => this.surface.toSvg((pen) => drawComparison(this, pen)),
      table: () => this.#readSpans(),
    });
    this.#load();
  }

  close() {
    this.isOpen = false;
    this.observer.disconnect();
  }

  isReady() {
    return this.isOpen && this.sides.length > 1 && this.surface.canvas.isConnected;
  }

  /** @param {string} text */
  say(text) {
    setText("compare-status", text);
  }

  /* ---- reading ---- */

  #load() {
    this.host.removeAttribute("data-ready");
    window.setTimeout(() => {
      if (this.isOpen && !this.sides.length) this.say("Reading the timelines…");
    }, 300);
    const hooks = {
      budget: KEPT_BYTES / this.runs.length,
      draw: this.draw,
      fail: (/** @type {unknown} */ error) => this.isOpen && this.say(explain(error)),
    };
    for (const [at, [job, name]] of this.runs.entries()) {
      const run = name === "recorded" ? "" : name;
      ask(timelineAddress(job, run, "")).then((answer) => answer.arrayBuffer()).then((buffer) => {
        if (!this.isOpen) return;
        const chart = new Chart(job, run, unpack(buffer));
        this.loaded[at] = { timeline: new Timeline(chart, this.axis, hooks), slots: readSlots(chart) };
        const sides = this.loaded.filter((side) => side !== null);
        if (sides.length < this.runs.length) return;
        this.sides = sides;
        this.say("");
        this.arrange();
        this.apply();
      }).catch((error) => {
        if (this.isOpen) this.say(LETTERS[at] + " cannot be drawn: " + explain(error));
      });
    }
  }

  /* ---- the view ---- */

  /** Show what the address asks for. */
  apply() {
    if (!this.isReady()) return;
    const view = readView(), isOverlay = view.layout === "overlay";
    byId("compare-beside")?.setAttribute("aria-pressed", String(!isOverlay));
    byId("compare-overlay")?.setAttribute("aria-pressed", String(isOverlay));
    if (isOverlay !== this.isOverlay) {
      this.isOverlay = isOverlay;
      this.arrange();
    }
    this.#measure();
    const [first] = this.offsets;
    for (const [at, { timeline }] of this.sides.entries()) timeline.offset = this.offsets[at] - first;
    this.axis.bounds = {
      from: Math.min(...this.sides.map(({ timeline }) => -timeline.offset)),
      to: Math.max(...this.sides.map(({ timeline }) => timeline.chart.span - timeline.offset)),
    };
    this.motion.follow(view);
    const rank = view.rank || String(this.sides[0].timeline.chart.rows.ranks[0]);
    const key = view.node ? rank + "/" + view.node : "";
    if (key !== this.selectedKey) {
      this.selectedKey = key;
      this.selected = [];
      /* The inspector says what is wrong with a node. */
      if (key) this.#select(0, rank, view.node).catch(() => {});
    }
    this.draw();
  }

  /** @param {number[]} offsets ns of each side that stand above each other */
  align(offsets) {
    if (offsets.join() === this.offsets.join()) return;
    this.offsets = offsets;
    this.motion.forget();
  }

  /** Give the ranks their places. */
  arrange() {
    const lanes = this.isOverlay ? this.sides.length : 1;
    this.list = arrangeRanks(this.sides.map(({ slots }) => slots), lanes, this.toggled);
    this.draw();
  }

  /** How high all ranks are. */
  get high() {
    const last = this.list.at(-1);
    return last ? last.y + last.height + GAP : 0;
  }

  /** @param {number} by pixels @returns {boolean} whether there was anything to scroll */
  scrollBy(by) {
    const [pane] = this.listPanes(), most = Math.max(0, this.high - (pane.high - HEAD));
    const top = Math.min(Math.max(0, this.top + by), most), hasMoved = top !== this.top;
    this.top = top;
    this.draw();
    return hasMoved;
  }

  /* ---- where things are ---- */

  #measure() {
    this.surface.fit(this.host.clientWidth, this.host.clientHeight);
    this.axis.width = this.surface.wide - GUTTER;
  }

  /** @returns {Pane[]} */
  listPanes() {
    return makePanes(this.sides.length, this.surface.high, this.isOverlay);
  }

  /** Where an entry begins in a pane. @param {Pane} pane @param {Entry} entry */
  yOf(pane, entry) {
    return pane.top + HEAD + entry.y - this.top;
  }

  /** Ranks in sight. @param {Pane} pane */
  listVisible(pane) {
    return this.list.filter((entry) => {
      const y = this.yOf(pane, entry);
      return y + entry.height > pane.top + HEAD && y < pane.top + pane.high;
    });
  }

  /** Where a row of a side is drawn. @param {Pane} pane @param {number} side @param {number} row */
  placeOf(pane, side, row) {
    const { slots, timeline } = this.sides[side], rank = timeline.chart.rankOf(row);
    const entry = this.list.find((other) => other.rank === rank);
    const slot = entry?.slots.findIndex((name) => slots.get(rank)?.get(name) === row) ?? -1;
    if (!entry || slot < 0) return null;
    const { y, tall } = placeLane(entry, pane.sides.length, pane.sides.indexOf(side));
    return { y: this.yOf(pane, entry) + slot * entry.pitch + y, tall };
  }

  /** What is at a point. @param {Point} at @returns {Spot | null} */
  find([px, py]) {
    const pane = this.listPanes().find(({ top, high }) => py >= top + HEAD && py < top + high);
    const entry = pane && this.list.find((other) => {
      const y = this.yOf(pane, other);
      return py >= y && py < y + other.height + GAP / 2;
    });
    if (!pane || !entry) return null;
    if (px < GUTTER) return { entry, side: -1, row: -1 };
    const inside = py - this.yOf(pane, entry), slot = Math.floor(inside / entry.pitch);
    const lanes = pane.sides.length, below = inside - slot * entry.pitch;
    const lane = lanes > 1 ? Math.floor(below / placeLane(entry, lanes, 0).tall) : 0;
    const side = pane.sides[Math.min(lane, lanes - 1)], slots = this.sides[side].slots.get(entry.rank);
    return { entry, side, row: slots?.get(entry.slots[slot]) ?? -1 };
  }

  /* ---- pointing and selecting ---- */

  /**
   * The bar at a point, as the server finds it.
   * @param {Spot} spot @param {number} px @returns {Promise<Bar | null>}
   */
  async #ask({ side, row }, px) {
    const { timeline } = this.sides[side], within = Math.ceil(this.axis.nsPerPixel * 3);
    const at = Math.round(this.axis.ns(px) + timeline.offset);
    if (at + within < 0) return null;
    /** @type {{bar: Bar | null}} */
    const { bar } = await askJson(timeline.address("/node", { row, at: Math.max(0, at), within }));
    return bar;
  }

  /** @param {Point} at */
  #point(at) {
    const spot = this.find(at);
    this.pointer = at;
    this.draw();
    if (!spot || spot.row < 0) {
      if (!this.selected.length) this.say("");
      return;
    }
    this.later("hover", 60, () => {
      this.#ask(spot, at[0]).then((bar) => {
        if (!this.isOpen || this.pointer !== at) return;
        const begin = LETTERS[spot.side] + " · rank " + spot.entry.rank;
        if (!bar) return this.say(begin + " · nothing runs here");
        const bytes = bar.bytes ? [formatBytes(bar.bytes)] : [];
        const times = ["begins " + formatTime(bar.start), "takes " + describeTime(bar)];
        this.say([begin, bar.name, ...bytes, ...times].join(" · "));
      }, () => { /* What was said before stays. */ });
    });
  }

  /** @param {Point} at */
  #tap(at) {
    const spot = this.find(at);
    if (!spot) return;
    if (spot.side < 0) {
      if (!this.toggled.delete(spot.entry.rank)) this.toggled.add(spot.entry.rank);
      return this.arrange();
    }
    if (spot.row < 0) return;
    this.#ask(spot, at[0])
      .then((bar) => (bar?.node ? this.#select(spot.side, String(bar.rank), bar.node) : undefined))
      .catch((error) => this.say(explain(error)));
  }

  /**
   * Select a node on every side; the address holds the one of A, which the inspector shows.
   * @param {number} side @param {string} rank @param {string} node
   */
  async #select(side, rank, node) {
    const sides = this.runs.map(nameSide).join(",");
    /** @type {{sides: (Choice | null)[]}} */
    const answer = await askJson(addressOf("/api/compare/node", { sides, side, rank, node }));
    if (!this.isOpen) return;
    this.selected = answer.sides;
    const [first] = answer.sides;
    this.selectedKey = first ? first.rank + "/" + first.node : "";
    changeView({ rank: first?.rank, node: first?.node });
    this.say(describeChoices(answer.sides));
    this.draw();
  }

  clearSelection() {
    this.selected = [];
    this.selectedKey = "";
    this.say("");
    changeView({ rank: null, node: null });
    this.draw();
  }

  /** Fit the selected node of all sides, or everything. */
  fitSelected() {
    const spans = this.selected.flatMap((choice, at) => {
      if (!choice || choice.start === null) return [];
      const { offset } = this.sides[at].timeline;
      return [[choice.start - offset, choice.end - offset]];
    });
    if (!spans.length) return this.motion.fit();
    const from = Math.min(...spans.map(([start]) => start)), to = Math.max(...spans.map(([, end]) => end));
    this.motion.go(from - (to - from) * 1.5 - 10, to + (to - from) * 1.5 + 10);
  }

  /** Exchange the first two sides. */
  swap() {
    const [first, second, ...rest] = this.runs;
    if (!second) return;
    const others = [first, ...rest].map(nameSide).join(",");
    const cleared = { pair: null, align: null, from: null, to: null, rank: null, node: null };
    changeView({ job: second[0], run: second[1], with: others, ...cleared });
  }

  /** Let all sides stand above the selected node of A. */
  pin() {
    const [first] = this.selected;
    if (!first) return this.say("Select a node that A has: its beginning is what the others are aligned by.");
    changeView({ align: "node:" + first.rank + "." + first.node, from: null, to: null });
  }

  /* ---- frames ---- */

  /** @param {number} now */
  #render(now) {
    if (!this.isReady()) return;
    this.look = freshLook(this.look, []);
    this.#measure();
    this.motion.step(now);
    this.surface.pen.imageSmoothingEnabled = false;
    drawComparison(this, this.surface.pen);
    for (const { timeline } of this.sides) timeline.fetchMissing();
    this.host.toggleAttribute("data-ready", this.sides.every(({ timeline }) => !timeline.missing.size));
    if (this.motion.glide) this.draw();
  }

  /** What every side has of the visible ranks, in the window that is shown. */
  async #readSpans() {
    const ranks = new Set(this.listVisible(this.listPanes()[0]).map(({ rank }) => rank));
    const { from, to } = this.axis.shown;
    const tables = await Promise.all(this.sides.map(async ({ timeline }, at) => {
      const { chart, offset } = timeline;
      const rows = [...chart.rows.rank.keys()].filter((row) => ranks.has(chart.rankOf(row)));
      const window = {
        from: Math.max(0, Math.floor(from + offset)), to: Math.max(1, Math.ceil(to + offset))
      };
      const answer = await ask(timeline.address("/spans.csv", { ...window, rows: rows.join(",") }));
      const [head, ...lines] = parseCsv(await answer.text());
      return { head, rows: lines.map((line) => [LETTERS[at], this.names[at] || "", ...line]) };
    }));
    return { head: ["side", "run", ...tables[0].head], rows: tables.flatMap(({ rows }) => rows) };
  }
}

/** What is to be said of a node on all sides. @param {(Choice | null)[]} choices */
export function describeChoices(choices) {
  const [first] = choices, some = choices.find((choice) => choice !== null);
  const parts = choices.map((choice, at) => {
    if (!choice) return "not in " + LETTERS[at];
    if (choice.start === null) return LETTERS[at] + " has no time for it";
    const takes = timeOf({ ...choice, start: choice.start });
    const words = LETTERS[at] + " takes " + formatTime(takes);
    if (!at || !first || first.start === null) return words;
    const more = takes - timeOf({ ...first, start: first.start });
    return words + " (" + (more ? formatSigned(more) : "= A") + ")";
  });
  return ["rank " + some?.rank, some?.name, ...parts].join(" · ");
}
