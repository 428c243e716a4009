/* The whole chain of the selected node: all it waits for, directly or not, and all that waits for it. */

import { byId } from "../base/dom.mjs";
import { plural } from "../base/format.mjs";
import { boxOf, limit } from "./draw.mjs";
import { GUTTER } from "./lanes.mjs";

/** @import { Pen } from "../base/canvas.mjs" */
/** @import { Box } from "./draw.mjs" */
/** @import { Scene } from "./scene.mjs" */

/**
 * Bars as row, start and end; edges as two places among them, and whether data goes along. Where nodes may
 * have several bars, those at the ends of edges are among them, and `nodes` says of how many they are.
 * @typedef {{rank: number, bars: [number, number, number][], edges: [number, number, boolean][],
 *   more: boolean, nodes?: number}} Answer
 */

export class Chain {
  /** @param {Scene} scene */
  constructor(scene) {
    this.scene = scene;
    this.isWhole = false;
    /** @type {Answer | null} */
    this.answer = null;
    this.key = "";
    const toggle = () => scene.change({ deps: this.isWhole ? null : "chain" });
    this.keys = { c: toggle };
    this.buttons = { "timeline-chain": toggle };
  }

  /** @param {import("../base/view.mjs").View} view */
  apply(view) {
    this.isWhole = view.deps === "chain";
    byId("timeline-chain")?.setAttribute("aria-pressed", String(this.isWhole));
    const { key } = this.scene.selection;
    if (this.isWhole && key && key !== this.key) this.#ask(key);
  }

  /** @param {string} key of the selected node */
  #ask(key) {
    const { scene } = this, [rank, ...node] = key.split("/");
    this.key = key;
    this.answer = null;
    /** @type {Promise<Answer>} */
    const answer = scene.askJson("/chain", { rank, node: node.join("/") });
    answer.then((found) => {
      if (key !== this.key) return;
      this.answer = found;
      scene.words.describe();
      scene.draw();
    }, () => { /* The direct ones are drawn. */ });
  }

  #shown() {
    return this.isWhole && this.key === this.scene.selection.key ? this.answer : null;
  }

  describe() {
    const chain = this.#shown();
    if (!chain) return "";
    const nodes = plural(chain.nodes ?? chain.bars.length, "node");
    return " · chain of " + nodes + (chain.more ? ", the nearest" : "");
  }

  /** Draw it, and say whether it was there to draw. @param {Pen} pen */
  drawChain(pen) {
    const { scene } = this, { look } = scene, chain = this.#shown();
    if (!chain) return false;
    const boxes = chain.bars.map(([row, start, end]) => boxOf(scene, { rank: chain.rank, row, start, end }));
    for (const isData of [true, false]) {
      pen.beginPath();
      for (const [from, to, data] of chain.edges) {
        if (data === isData) this.#drawCurve(pen, boxes[from], boxes[to]);
      }
      pen.setLineDash([]);
      pen.strokeStyle = look.bg;
      pen.lineWidth = 3;
      pen.globalAlpha = 0.7;
      pen.stroke();
      pen.setLineDash(isData ? [] : [4, 3]);
      pen.strokeStyle = look.accent;
      pen.lineWidth = 1.2;
      pen.globalAlpha = 1;
      pen.stroke();
    }
    pen.setLineDash([]);
    pen.lineWidth = 1;
    pen.beginPath();
    for (const box of boxes) {
      if (!box || box.right - box.left <= 3) continue;
      if (box.right <= GUTTER || box.left >= scene.lanes.size.wide) continue;
      pen.rect(box.left + 0.5, box.y + 0.5, box.right - box.left - 1, box.height - 1);
    }
    pen.stroke();
    return true;
  }

  /** @param {Pen} pen @param {Box | null} from @param {Box | null} to */
  #drawCurve(pen, from, to) {
    if (!from || !to) return;
    const x0 = limit(this.scene, from.right), x1 = limit(this.scene, to.left);
    if (Math.max(x0, x1) < GUTTER || Math.min(x0, x1) > this.scene.lanes.size.wide) return;
    if (from.y === to.y) {
      if (x1 - x0 < 3) return; /* One right after the other: no line is needed to see it. */
      const low = from.y + from.height + 1;
      pen.moveTo(x0, low);
      pen.bezierCurveTo(x0 + 2, low + 6, x1 - 2, low + 6, x1, low);
      return;
    }
    const y0 = from.y + from.height / 2, y1 = to.y + to.height / 2;
    const bend = Math.min(50, Math.max(8, Math.abs(x1 - x0) / 2));
    pen.moveTo(x0, y0);
    pen.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
  }
}
