/* The selected node: its frame, arrows to what it depends on, and steps to its neighbours. */

import { GUTTER, AXIS } from "./lanes.mjs";
import { boxOf, drawOverLanes, limit } from "./draw.mjs";
import { barsOf, seenBoxes } from "./pieces.mjs";

/** @import { Pen } from "../base/canvas.mjs" */
/** @import { View } from "../base/view.mjs" */
/** @import { Box } from "./draw.mjs" */
/** @import { Scene } from "./scene.mjs" */
/** @import { Bar } from "./timeline.mjs" */
/** @import { Piece } from "./pieces.mjs" */
/**
 * On data, or on control; and from which bar of one node to which of the other, where they may have several.
 * @typedef {Bar & {data: boolean, leaves?: Piece, arrives?: Piece}} Dependency
 */

/**
 * What the server says of a node. Without times it has no bar.
 * @typedef {{bar: Bar | null, previous?: Bar | null, next?: Bar | null, up: Dependency[],
 *   down: Dependency[]}} Answer
 */

export class Selection {
  /** @param {Scene} scene */
  constructor(scene) {
    this.scene = scene;
    /** "rank/node" as the address names it, "" for none. */
    this.key = "";
    /** @type {Answer | null} Null until the server has answered. */
    this.answer = null;
    this.chosenHere = "";
    this.picks = 0;
    /** @type {(() => void) | null} What a key is to do once the server has answered. */
    this.waiting = null;
  }

  /** @returns {Bar | null} */
  get bar() {
    return this.answer?.bar ?? null;
  }

  /** Whether a node is selected that the server has not answered for yet. */
  isAwaited() {
    return this.key !== "" && !this.answer;
  }

  /** Select the node of the view. @param {View} view */
  follow(view) {
    const { scene } = this;
    const wanted = view.node ? (view.rank ?? scene.chart.rows.ranks[0]) + "/" + view.node : "";
    if (wanted === this.key) return;
    this.key = wanted;
    this.answer = this.waiting = null;
    if (!wanted) return;
    const isOwn = wanted === this.chosenHere;
    this.chosenHere = "";
    /** @type {Promise<Answer>} */
    const answer = scene.askJson("/node", { rank: wanted.split("/")[0], node: view.node });
    answer.then((found) => {
      if (wanted !== this.key) return;
      this.answer = found;
      if (found.bar) this.#reveal(found.bar, isOwn);
      scene.words.light(null);
      scene.draw();
      const { waiting } = this;
      this.waiting = null;
      waiting?.();
    }, () => {
      /* The inspector says what is wrong with the node. */
      if (wanted === this.key) this.answer = { bar: null, up: [], down: [] };
    });
  }

  /**
   * Scroll to a bar unless it is visible.
   * @param {Bar} bar @param {boolean} isOwn
   */
  #reveal(bar, isOwn) {
    const { scene } = this, { axis, scroll } = scene;
    if (!scene.chart.groups.has(bar.rank)) return;
    scene.measure();
    const { y, height, behind } = scene.lanes.placeOfRow(bar.row), { high } = scene.lanes.size;
    if (behind || y < AXIS + 4 || y + height > high - 4) scroll.scrollTop += y - high / 2;
    const { from, to } = axis.shown, all = axis.measureWhole(), bars = barsOf(bar);
    if (bars.some(({ start, end }) => end >= from && start <= to)) return;
    const { start, end } = bars[0], long = end - start;
    const wide = Math.min(Math.max(to - from, long * 1.2), all.to - all.from);
    const middle = long > wide ? start + wide * 0.4 : (start + end) / 2;
    scene.motion.go(middle - wide / 2, middle + wide / 2, !isOwn);
  }

  /** @param {Bar | null | undefined} bar */
  #choose(bar) {
    if (!bar) return;
    this.chosenHere = bar.rank + "/" + bar.node;
    this.scene.words.hover = null;
    this.scene.change({ rank: bar.rank, node: bar.node });
  }

  /** Select what is at a point. @param {import("./hands.mjs").Point} at */
  pick(at) {
    const { scene } = this, target = scene.words.find(at);
    if (target?.bar) return this.pickNode(target.bar.rank, target.bar.index);
    if (!target || target.bin.ghost) return;
    this.#pickWhere(scene.words.queryOf(target.bin));
  }

  /** @param {number} rank @param {number} index row of its graph */
  pickNode(rank, index) {
    this.#pickWhere({ rank, index });
  }

  /** @param {import("./server.mjs").Query} query */
  #pickWhere(query) {
    const pick = (this.picks += 1);
    /** @type {Promise<Answer>} */
    const answer = this.scene.askJson("/node", query);
    answer.then(({ bar }) => {
      if (pick === this.picks) this.#choose(bar);
    }, () => { /* The view stays as it is. */ });
  }

  /** Select a neighbour of the selected node. @param {"previous" | "next" | "up" | "down"} way */
  walk(way) {
    if (this.isAwaited()) {
      this.waiting = () => this.walk(way);
      return;
    }
    if (!this.answer || !this.bar) return this.#pickFirst();
    if (way === "previous" || way === "next") return this.#choose(this.answer[way]);
    /* The last it waited for, the first that waits for it. */
    const isUp = way === "up", others = [...this.answer[way]];
    const [nearest] = others.sort((a, b) => (isUp ? b.end - a.end : a.start - b.start));
    if (nearest) return this.#choose(nearest);
    if (isUp) this.scene.say("No node that this one waits for has times.");
    else this.scene.say("No node that waits for this one has times.");
  }

  /** Nothing is selected yet: begin with the first bar in sight. */
  #pickFirst() {
    const { lanes, axis: { shown } } = this.scene, [group] = lanes.listVisible();
    if (!group) return;
    const at = Math.max(0, Math.round((Math.max(shown.from, 0) + shown.to) / 2));
    this.#pickWhere({ row: group.first, at, within: Math.ceil((shown.to - shown.from) / 2) });
  }

  /** Fit the selected node; once it fills the window, or where none is selected, everything. */
  fit() {
    const { bar, scene: { motion, axis } } = this;
    if (this.isAwaited()) {
      this.waiting = () => this.fit();
      return;
    }
    if (!bar) return motion.fit();
    const wide = Math.max((bar.end - bar.start) * 1.5, axis.narrowest * 4);
    const middle = (bar.start + bar.end) / 2;
    const { from, to } = motion.target;
    if (Math.abs(to - from - wide) < wide * 0.01) return motion.fit();
    motion.go(middle - wide / 2, middle + wide / 2);
  }

  /* ---- drawing ---- */

  /** @param {Pen} pen */
  drawRing(pen) {
    const { scene, bar } = this, { wide } = scene.lanes.size;
    if (!bar) return;
    drawOverLanes(scene, pen, () => {
      pen.lineWidth = 2;
      pen.strokeStyle = scene.look.accent;
      for (const box of seenBoxes(scene, barsOf(bar))) {
        const left = Math.max(box.left, GUTTER - 6), right = Math.min(box.right, wide + 6);
        pen.strokeRect(left - 2, box.y - 2, Math.max(right - left, 2) + 4, box.height + 4);
      }
    });
  }

  /** What the selected node waits for, and what waits for it. @param {Pen} pen */
  drawArrows(pen) {
    const { scene, bar, answer } = this, box = bar && boxOf(scene, bar);
    if (!box || !answer) return;
    drawOverLanes(scene, pen, () => {
      pen.fillStyle = scene.look.text;
      if (scene.chain.drawChain(pen)) return;
      for (const other of answer.up) {
        this.#drawArrow(pen, this.#endOf(other, other.leaves), this.#endOf(bar, other.arrives), other.data);
      }
      for (const other of answer.down) {
        this.#drawArrow(pen, this.#endOf(bar, other.leaves), this.#endOf(other, other.arrives), other.data);
      }
    });
  }

  /** Where an arrow ends: at a bar of a node, or at its only one. @param {Bar} bar @param {Piece} [piece] */
  #endOf(bar, piece) {
    const [row, start, end] = piece ?? [bar.row, bar.start, bar.end];
    return boxOf(this.scene, { rank: bar.rank, row, start, end });
  }

  /** @param {Pen} pen @param {Box | null} from @param {Box | null} to @param {boolean} isData */
  #drawArrow(pen, from, to, isData) {
    if (!from || !to) return;
    const { scene } = this, { look } = scene, x0 = limit(scene, from.right), x1 = limit(scene, to.left);
    const isLevel = from.y === to.y, y0 = isLevel ? from.y + from.height + 1 : from.y + from.height / 2;
    const y1 = isLevel ? y0 : to.y + to.height / 2;
    pen.beginPath();
    pen.moveTo(x0, y0);
    if (isLevel) {
      /* Along one lane it goes below the bars, which it would strike out. */
      const bow = y0 + Math.min(12, 5 + Math.abs(x1 - x0) / 40);
      pen.bezierCurveTo(x0 + 3, bow, x1 - 3, bow, x1 + 1, y0 + 4);
    } else {
      const bend = Math.min(60, Math.max(14, Math.abs(x1 - x0) / 2));
      pen.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - 4, y1);
    }
    pen.strokeStyle = look.bg;
    pen.lineWidth = 3.5;
    pen.stroke();
    pen.setLineDash(isData ? [] : [4, 3]);
    pen.strokeStyle = look.text;
    pen.lineWidth = 1.3;
    pen.stroke();
    pen.setLineDash([]);
    pen.beginPath();
    if (isLevel) {
      pen.moveTo(x1 + 1, y1);
      pen.lineTo(x1 - 2.5, y1 + 6);
      pen.lineTo(x1 + 4.5, y1 + 6);
    } else {
      pen.moveTo(x1, y1);
      pen.lineTo(x1 - 6, y1 - 3.5);
      pen.lineTo(x1 - 6, y1 + 3.5);
    }
    pen.fill();
  }
}
