/* What is under the pointer, and the sentences below the lanes. */

import { byId, setText } from "../base/dom.mjs";
import { formatBytes, formatTime, plural } from "../base/format.mjs";
import { AXIS, GUTTER } from "./lanes.mjs";
import { describeTime } from "./pieces.mjs";

/** @import { Point } from "./hands.mjs" */
/** @import { Scene } from "./scene.mjs" */
/** @import { Bar, Bin } from "./timeline.mjs" */
/** @typedef {{bar: Bar, bin?: undefined} | {bin: Bin, bar?: undefined}} Target */

const PATIENCE_MS = 150; /* words that change at every frame cannot be read, and cost a layout each */

export class Words {
  /** @param {Scene} scene */
  constructor(scene) {
    this.scene = scene;
    /** @type {Target | null} What is under the pointer. */
    this.hover = null;
    /** @type {Bar | null} The bar in the bin under the pointer, once the server has answered. */
    this.within = null;
    this.describedAt = 0;
  }

  /** After every frame: not every one is described. */
  afterFrame() {
    if (performance.now() - this.describedAt > PATIENCE_MS) this.describe();
    else this.scene.later("describe", PATIENCE_MS + 10, () => this.describe());
  }

  /** Say how much is shown, and what there is to say without a pointer. */
  describe() {
    this.describedAt = performance.now();
    const { timeline: { counts }, chart, axis: { shown } } = this.scene, { bars, undrawn } = chart.rows;
    const window = formatTime(Math.round(Math.min(shown.to, chart.span) - Math.max(shown.from, 0)));
    const nodes = plural(bars, "node") + (undrawn ? " with times" : "");
    const crowded = counts.binned ? " · crowded lanes as share of time busy" : "";
    const drawn = plural(counts.drawn, "bar") + " of " + nodes;
    setText("timeline-detail", drawn + " · " + window + " shown" + crowded);
    if (!this.hover) this.scene.say(this.#rest());
  }

  #rest() {
    const { marked, selection, chain, flags } = this.scene;
    if (marked) {
      const [from, to] = marked.map((ns) => this.scene.formatMoment(ns));
      const long = formatTime(marked[1] - marked[0]);
      return "Window " + from + " to " + to + ": " + long + " · Z zooms to it, Esc clears it";
    }
    if (selection.bar) return this.#tellBar(selection.bar) + chain.describe();
    if (selection.answer) return "The selected node has no times here.";
    if (selection.key) return byId("timeline-status")?.textContent ?? "";
    return flags.describe() || "Point at a bar, or press ? for the keys.";
  }

  /** @param {Bar} bar */
  #tellBar(bar) {
    const { scene } = this, name = bar.name || "(no name)";
    const [issued, back] = [bar.start, bar.end].map((ns) => scene.formatMoment(ns));
    const times = "issued " + issued + " · callback " + back + " · " + describeTime(bar);
    if (bar.ghost) return "the other run · rank " + bar.rank + " · " + name + " · " + times;
    const bytes = bar.bytes ? formatBytes(bar.bytes) + " · " : "";
    const about = scene.peers.describe(bar) + scene.ghost.describe(bar);
    return "rank " + bar.rank + " · " + name + " · " + bytes + times + about;
  }

  /** @param {Bin} bin @returns {string[]} */
  #tellBin({ row, from, to, shares, begun }) {
    const { scene } = this, busy = shares.map(([name, share]) => {
      return name + " " + (share < 0.01 ? "under 1" : Math.round(share * 100)) + " %";
    });
    return [
      "rank " + scene.chart.rankOf(row) + " · " + scene.chart.laneName(row),
      scene.formatMoment(from) + " to " + scene.formatMoment(to),
      busy.length ? "busy: " + busy.join(", ") : "idle",
      ...(begun ? [plural(begun, "node") + " begin"] : []),
    ];
  }

  /** What is at a point. @param {Point} at @returns {Target | null} */
  find([px, py]) {
    const { scene } = this, { lanes, timeline, chart } = scene;
    if (px < GUTTER || py < AXIS) return null;
    const row = scene.rowAt(py)?.row ?? -1;
    if (row < 0) return null;
    const place = lanes.placeOfRow(row), isGhost = timeline.ghost !== "" && py > place.y + place.height;
    return timeline.hit(row + (isGhost ? chart.count : 0), scene.axis.ns(px));
  }

  /** The bar the server finds in a bin. @param {Bin} bin */
  queryOf({ row, at, from, to }) {
    return { row, at: Math.round(at), within: Math.ceil((to - from) / 2) };
  }

  /** The pointer has moved, or what lies under it has. */
  point() {
    const { scene } = this, { pointer } = scene;
    const target = pointer && !scene.hands.isDragging() ? this.find(pointer) : null;
    this.hover = target;
    this.within = null;
    const free = pointer && pointer[0] < GUTTER ? "default" : "crosshair";
    scene.canvas.style.cursor = target?.bar ? "pointer" : free;
    scene.counters.follow();
    this.light(target?.bar ?? null);
    if (!target) return scene.draw();
    this.#tell(target);
    if (target.bar || target.bin.ghost) return;
    /* Too full for bars: the server knows which node it is. */
    scene.later("point", 120, () => {
      if (this.hover !== target) return;
      /** @type {Promise<{bar: Bar | null}>} */
      const answer = scene.askJson("/node", this.queryOf(target.bin));
      answer.then(({ bar }) => {
        if (this.hover !== target || !bar) return;
        this.within = bar;
        this.light(bar);
        this.#tell(target);
      }, () => { /* The bin's own words stay. */ });
    });
  }

  /** The pointer has left. */
  leave() {
    this.hover = null;
    this.light(null);
    this.scene.draw();
  }

  /** Light what belongs to a bar; without one, to the selected one. @param {Bar | null} bar */
  light(bar) {
    const { scene } = this;
    scene.peers.light(bar ?? scene.selection.bar);
    scene.ghost.light(bar ?? scene.selection.bar);
    scene.pieces.light(bar);
  }

  /** @param {Target} target */
  #tell(target) {
    if (target.bar) return this.scene.say(this.#tellBar(target.bar));
    const [rank, time, ...more] = this.#tellBin(target.bin);
    if (this.within) this.scene.say([this.#tellBar(this.within), ...more].join(" · "));
    else this.scene.say((target.bin.ghost ? "the other run: " : "") + [rank, time, ...more].join(" · "));
  }

  /** Say it again: something about the bar has become known. */
  repeat() {
    if (this.hover) this.#tell(this.hover);
    else this.describe();
  }
}
