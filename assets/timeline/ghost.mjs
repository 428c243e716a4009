/* Another run of the job in the same lanes: its bars below, and how much each node differs. */

import { byId, element, setVisible } from "../base/dom.mjs";
import { formatShare, formatTime } from "../base/format.mjs";
import { AXIS } from "./lanes.mjs";
import { drawOverLanes, limit } from "./draw.mjs";
import { explain } from "./server.mjs";

/** @import { Pen } from "../base/canvas.mjs" */
/** @import { Scene } from "./scene.mjs" */
/** @import { Bar } from "./timeline.mjs" */
/** @typedef {[number, number]} Times start and end, in ns */
/** @import { Piece } from "./pieces.mjs" */
/**
 * A node in both runs; of a recorded call how long it took itself in each, and the bars it is drawn in.
 * @typedef {{row: number, here: Times, there: Times | null, own?: [number, number],
 *   pieces?: [Piece[], Piece[]]}} Pair
 */

const KEPT = 500; /* pairs */

/** @param {number} ns */
export function formatSigned(ns) {
  return (ns > 0 ? "+" : ns < 0 ? "−" : "±") + formatTime(Math.abs(ns));
}

/**
 * How the times of a node differ from those in the other run.
 * @param {Pair} pair
 * @param {string} name of the other run
 */
export function compareTimes({ here, there, own }, name) {
  if (!there) return " · " + name + ": did not run";
  const [time, long] = own ?? [here[1] - here[0], there[1] - there[0]];
  const more = time - long, shift = here[0] - there[0];
  const share = long ? " (" + (more > 0 ? "+" : "−") + formatShare(Math.abs(more) / long) + ")" : "";
  const change = more ? ": here " + formatSigned(more) + share : ": the same";
  const issued = shift ? ", issued " + formatTime(Math.abs(shift)) + (shift > 0 ? " later" : " earlier") : "";
  return " · " + name + " " + formatTime(long) + change + issued;
}

export class Ghost {
  /** @param {Scene} scene */
  constructor(scene) {
    this.scene = scene;
    this.name = "";
    /** @type {Map<string, Pair>} by rank and node */
    this.known = new Map();
    /** @type {Pair | null} What is tied together: under the pointer, or selected. */
    this.lit = null;
    this.buttons = { "timeline-differences": () => this.#showDifferences() };
    this.#read("");
  }

  /** Read the other run the view asks for. @param {import("../base/view.mjs").View} view */
  prepare(view) {
    const { scene } = this, own = scene.chart.run || "recorded";
    const wanted = view.ghost && view.ghost !== own ? view.ghost : "";
    if (wanted === scene.timeline.ghost) return;
    this.#read(wanted);
    if (!wanted) return;
    /** @type {Promise<{span: number}>} */
    const answer = scene.askJson("/ghost", { ghost: wanted });
    answer.then(({ span }) => {
      if (wanted !== scene.timeline.ghost) return;
      scene.chart.reach(span);
      scene.motion.forget();
      scene.apply();
    }, (error) => {
      if (wanted !== scene.timeline.ghost) return;
      scene.timeline.ghost = "";
      scene.say(explain(error));
      scene.draw();
    });
  }

  /** @param {string} ghost */
  #read(ghost) {
    const { timeline, chart } = this.scene;
    if (timeline.ghost !== ghost || timeline.ghost) timeline.tiles.forgetGhost();
    timeline.ghost = ghost;
    this.known.clear();
    this.lit = null;
    chart.reach(0);
  }

  /** Offer the other runs, where there are others. */
  apply() {
    const { scene } = this, box = byId("timeline-other"), { ghost } = scene.timeline;
    if (!box) return;
    const own = scene.chart.run || "recorded";
    const others = (scene.source.others ?? []).filter(({ value }) => value !== own);
    const key = JSON.stringify(others);
    if (box.dataset.others !== key) {
      box.dataset.others = key;
      const options = [{ value: "", label: "no other run" }, ...others].map(({ value, label }) => {
        return element("option", { value, text: value ? "with " + label : label });
      });
      const select = element("select", {
        id: "timeline-ghost",
        class: "cs-timeline-other",
        "aria-label": "Another run in the same lanes",
        title: "Show another run in the same lanes, below this one",
      }, ...options);
      box.replaceChildren(...(others.length ? [select] : []));
    }
    const select = box.querySelector("select");
    if (select && select.value !== ghost) select.value = ghost;
    this.name = others.find(({ value }) => value === ghost)?.label.split(" · ")[0] ?? "";
    setVisible(byId("timeline-differences"), ghost !== "");
  }

  #label() {
    return this.scene.timeline.ghost === "recorded" ? "as recorded" : this.name || "the other run";
  }

  /** Show when a node ran in the other run. @param {Bar | null} bar */
  light(bar) {
    const { scene } = this, { ghost } = scene.timeline;
    this.lit = null;
    if (!ghost || !bar) return;
    const { rank, index, row } = bar, key = rank + "/" + index;
    this.lit = this.known.get(key) ?? null;
    if (this.lit) return;
    scene.later("contrast", 40, () => {
      if (ghost !== scene.timeline.ghost) return;
      /** @type {Promise<Omit<Pair, "row">>} */
      const answer = scene.askJson("/difference", { ghost, rank, index });
      answer.then((times) => {
        if (ghost !== scene.timeline.ghost) return;
        if (this.known.size > KEPT) this.known.clear();
        this.lit = { row, ...times };
        this.known.set(key, this.lit);
        scene.words.repeat();
        scene.draw();
      }, () => { /* The bar is described without it. */ });
    });
  }

  /** What the sentence about a bar adds. @param {Bar} bar */
  describe({ rank, index }) {
    const pair = this.scene.timeline.ghost && this.known.get(rank + "/" + index);
    return pair ? compareTimes(pair, this.#label()) : "";
  }

  /**
   * The same node in the other run, tied to itself.
   * @param {Pen} pen @param {number} _wide @param {number} high
   */
  draw(pen, _wide, high) {
    const { scene, lit } = this;
    if (!lit?.there) return;
    const place = scene.lanes.placeOfRow(lit.row), below = scene.lanes.ghostPlace(place);
    if (place.behind || place.y > high || place.y + place.height < AXIS) return;
    /** @param {number[]} times */
    const edges = (times) => {
      const [left, right] = times.map((ns) => limit(scene, scene.axis.x(ns)));
      return [left, Math.max(right, left + 2)];
    };
    const [here, there] = [lit.here, lit.there].map(edges);
    const [bars, others] = lit.pieces ?? [[[lit.row, ...lit.here]], [[lit.row, ...lit.there]]];
    drawOverLanes(scene, pen, () => {
      pen.strokeStyle = scene.look.text;
      pen.lineWidth = 1.2;
      for (const [left, right] of bars.map(([, ...times]) => edges(times))) {
        pen.strokeRect(left + 0.5, place.y + 0.5, right - left - 1, place.height - 1);
      }
      for (const [left, right] of others.map(([, ...times]) => edges(times))) {
        pen.strokeRect(left + 0.5, below.y + 0.5, right - left - 1, below.height - 1);
      }
      pen.beginPath();
      for (const end of [0, 1]) {
        pen.moveTo(here[end], place.y + place.height);
        pen.lineTo(there[end], below.y);
      }
      pen.stroke();
    });
  }

  #showDifferences() {
    const { marked, chart } = this.scene;
    this.scene.change({ by: "difference", mark: marked ? marked.join("-") : "0-" + chart.own });
  }
}
