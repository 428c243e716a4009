/* Search: hits are outlined, counted, and stepped through. */

import { byId, element, setText, setVisible } from "../base/dom.mjs";
import { formatCount } from "../base/format.mjs";
import { unpack } from "../base/packed.mjs";
import { AXIS, GUTTER } from "./lanes.mjs";
import { explain } from "./server.mjs";

/** @import { Pen } from "../base/canvas.mjs" */
/** @import { Scene } from "./scene.mjs" */

/**
 * Hits, by start: a node each, with its first bar. `count` may be larger: the server sends the first of them.
 * Where nodes may have several bars, these are there too, by start.
 * @typedef {{count: number, row: Int32Array, node: Int32Array, start: Float64Array, end: Float64Array,
 *   bar_row?: Int32Array, bar_start?: Float64Array, bar_end?: Float64Array}} Hits
 */

/**
 * The next hit of those there are, or the one before: from the current one, else from a moment on.
 * @param {Hits} hits
 * @param {number} current -1 for none
 * @param {boolean} isForward
 * @param {number} from ns
 */
export function stepHit({ start }, current, isForward, from) {
  const count = start.length;
  if (current >= 0) return (current + (isForward ? 1 : count - 1)) % count;
  let low = 0, high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (start[middle] < from) low = middle + 1;
    else high = middle;
  }
  return (isForward ? low : low + count - 1) % count;
}

export class Search {
  /** @param {Scene} scene */
  constructor(scene) {
    this.scene = scene;
    /** @type {Hits | null} */
    this.hits = null;
    this.text = ""; /* what the hits are of */
    this.asked = "";
    this.at = -1; /* the hit that was gone to last */
    this.going = -1; /* the hit that is on its way to be selected, */
    /** @type {string | null} and the node that is selected until then. */
    this.leaving = "";
    /**
     * @type {{text: string, isForward: boolean} | null} A step that was asked for before the hits had come.
     */
    this.entered = null;
    this.keys = {
      "/": () => this.#field()?.select(),
      /** @param {KeyboardEvent} event */
      n: (event) => this.#step(!event.shiftKey),
    };
    this.buttons = {
      "timeline-hit-next": () => this.#step(true),
      "timeline-hit-previous": () => this.#step(false),
    };
    this.#tell("");
  }

  /** The field, which is made once for the page. @returns {HTMLInputElement | null} */
  #field() {
    const box = byId("timeline-find");
    if (!box) return null;
    const [field] = box.getElementsByTagName("input");
    if (field) return field;
    const made = element("input", {
      id: "timeline-search", type: "search", class: "cs-timeline-search", placeholder: "Search  ( / )",
      spellcheck: "false", "aria-label": "Search bars", autocomplete: "off",
    });
    box.append(made);
    return made;
  }

  /** @param {import("../base/view.mjs").View} view */
  apply({ q = "" }) {
    const field = this.#field();
    if (!field) return;
    if (document.activeElement !== field) field.value = q;
    if (q !== this.asked) this.#ask(q);
    if (this.scene.selection.key !== this.leaving) this.leaving = null;
  }

  /** @param {string} text */
  #ask(text) {
    const { scene } = this;
    this.asked = text;
    this.at = this.going = -1;
    if (!text) {
      this.hits = null;
      this.text = "";
      this.#tell("");
      return scene.draw();
    }
    let isOver = false;
    scene.later("search", 300, () => isOver || this.asked !== text || this.#tell("…"));
    scene.askBytes("/search", { q: text }).then((buffer) => {
      isOver = true;
      if (this.asked !== text) return;
      this.hits = unpack(buffer);
      this.text = text;
      this.#count();
      scene.draw();
      const { entered } = this;
      if (entered?.text !== text) return;
      this.entered = null;
      this.#step(entered.isForward);
    }, (error) => {
      isOver = true;
      if (this.asked !== text) return;
      this.hits = null;
      this.#tell(explain(error));
      scene.draw();
    });
  }

  /** @param {string} words */
  #tell(words) {
    const box = byId("timeline-hits");
    setText(box, words);
    if (box) box.title = words;
    for (const id of Object.keys(this.buttons)) setVisible(byId(id), Boolean(this.hits?.count));
  }

  #count() {
    if (!this.hits) return;
    const { count } = this.hits;
    this.#tell(count ? (this.at < 0 ? "" : formatCount(this.at + 1) + " of ") + formatCount(count) : "none");
  }

  /**
   * To the next hit, or the one before: after the selected node, else from the left edge on.
   * @param {boolean} isForward
   */
  #step(isForward) {
    const { scene: { selection, axis, chart }, hits } = this;
    if (!hits?.row.length) return;
    let current = -1;
    /* Until it is selected, and the server has answered. */
    if (this.going >= 0 && (selection.key === this.leaving || selection.isAwaited())) current = this.going;
    else if (selection.bar) {
      const { row, index } = selection.bar;
      current = hits.row.findIndex((other, place) => other === row && hits.node[place] === index);
    }
    this.at = this.going = stepHit(hits, current, isForward, axis.shown.from);
    this.leaving = selection.key;
    this.#count();
    selection.pickNode(chart.rankOf(hits.row[this.at]), hits.node[this.at]);
  }

  /** Something was typed into the field. @param {string} text */
  type(text) {
    this.entered = null;
    this.scene.later("typed", 200, () => this.scene.change({ q: text || null }, { replace: true }));
  }

  /** A key was pressed in the field. @param {KeyboardEvent} event @param {string} text of the field */
  press(event, text) {
    if (event.key === "Escape") this.scene.scroll.focus();
    if (event.key !== "Enter") return;
    if (this.hits && this.text === text) this.#step(!event.shiftKey);
    else this.entered = { text, isForward: !event.shiftKey };
  }

  /** @param {Pen} pen @param {number} wide @param {number} high */
  draw(pen, wide, high) {
    const { hits, scene: { axis, lanes, look } } = this;
    if (!hits) return;
    const { from, to } = axis.shown;
    /** @type {Set<number>} */
    const seen = new Set(); /* pixels of rows that are marked already */
    pen.strokeStyle = pen.fillStyle = look.text;
    pen.lineWidth = 1;
    const { bar_row: rows = hits.row, bar_start: starts = hits.start, bar_end: ends = hits.end } = hits;
    for (let bar = 0; bar < rows.length && starts[bar] <= to; bar++) {
      if (ends[bar] < from) continue;
      const place = lanes.placeOfRow(rows[bar]), { y, height } = place;
      if (place.behind || y + height < AXIS || y > high) continue;
      const left = Math.max(axis.x(starts[bar]), GUTTER), right = Math.min(axis.x(ends[bar]), wide);
      if (right - left > 5) {
        pen.strokeRect(left + 0.5, y + 0.5, right - left - 1, height - 1);
        continue;
      }
      const key = rows[bar] * 8192 + Math.round(left);
      if (seen.has(key)) continue;
      seen.add(key);
      pen.fillRect(left, y - 1, Math.max(1.5, right - left), height + 2);
    }
  }

  /** Draw the positions of the hits in the shown window. @param {Pen} pen @param {number} wide */
  drawAxis(pen, wide) {
    const { hits, scene: { axis, look } } = this;
    if (!hits) return;
    let last = -1;
    pen.fillStyle = look.accent;
    for (const start of hits.start) {
      const x = Math.round(axis.x(start));
      if (x === last || x < GUTTER || x > wide) continue;
      last = x;
      pen.fillRect(x, AXIS - 5, 2, 4);
    }
  }
}
