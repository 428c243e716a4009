/** The first picture of a job while its ranks are still read: how many, what they do, what each sends. */

import { element, setAttribute, setText, setVisible, svgElement } from "../base/dom.mjs";
import { formatCount, formatTime } from "../base/format.mjs";
import { barText, sentText, workOf } from "./words.mjs";

/** @import { Picture } from "./server.mjs" */

/** Sizes of the figure, which is stretched to the card's width; a bar and the gap beside it are 1 wide. */
const HEIGHT = 48, BAR = 0.8;
/** Bars of a few ranks would be blocks. */
const WIDEST_PX = 24;

export class PictureView {
  constructor() {
    this.facts = element("dl", { class: "cs-up-facts" });
    this.title = element("figcaption", { class: "cs-up-more" });
    this.bars = svgElement("svg", { class: "cs-up-sent", preserveAspectRatio: "none" });
    this.figure = element("figure", { class: "cs-up-figure" }, this.title, this.bars);
    this.refused = element("ul", { class: "cs-up-warnings" });
    const about = { class: "cs-up-picture", "aria-label": "What is read so far" };
    this.root = element("section", about, this.facts, this.figure, this.refused);
  }

  /** @param {Picture | null} picture */
  draw(picture) {
    setVisible(this.root, picture !== null);
    if (!picture) return;
    this.#drawFacts(picture);
    const isTold = picture.bars.length > 0;
    setVisible(this.figure, isTold);
    if (isTold) this.#drawBars(picture);
    this.#drawRefused(picture);
  }

  /** @param {Picture} picture */
  #drawFacts({ ranks, of_ranks: of, operations, span_ns: span }) {
    /** @type {[string, string, string][]} */
    const facts = [["", "Ranks read", formatCount(ranks) + (of ? ` of ${formatCount(of)}` : "")]];
    if (span >= 0) facts.push(["", "Longest recording", formatTime(span)]);
    for (const { key, name, count } of workOf(operations)) facts.push([key, name, formatCount(count)]);
    const { facts: list } = this;
    while (list.children.length > facts.length) list.lastElementChild?.remove();
    for (const [index, [key, name, value]] of facts.entries()) {
      const known = list.children[index];
      const row = known ?? element("div", {}, element("dt"), element("dd"));
      if (!known) list.append(row);
      const [term, detail] = /** @type {[HTMLElement, HTMLElement]} */ (Array.from(row.children));
      setAttribute(/** @type {HTMLElement} */ (row), "data-work", key);
      setText(term, name);
      setText(detail, value);
    }
  }

  /** @param {Picture} picture */
  #drawBars(picture) {
    const { bars, of_bars: places } = picture, { bars: svg } = this;
    const most = Math.max(1, ...bars.map((bar) => bar.sent_bytes));
    setText(this.title, sentText(picture));
    svg.setAttribute("viewBox", `0 0 ${places} ${HEIGHT}`);
    svg.style.maxWidth = `${WIDEST_PX * places}px`;
    while (svg.children.length > bars.length) svg.lastElementChild?.remove();
    for (const [index, bar] of bars.entries()) {
      const known = svg.children[index];
      const column = known ?? svgElement("rect", {}, svgElement("title"));
      if (!known) svg.append(column);
      // Ranks that send nothing are there: a line tells them from those that are still to come.
      const height = Math.max(1, (HEIGHT * bar.sent_bytes) / most);
      const shape = { x: bar.place + (1 - BAR) / 2, y: HEIGHT - height, width: BAR, height };
      for (const [name, value] of Object.entries(shape)) column.setAttribute(name, String(value));
      const words = column.firstElementChild;
      if (words) words.textContent = barText(bar);
    }
    const widest = bars.reduce((one, other) => (other.sent_bytes > one.sent_bytes ? other : one));
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", `${sentText(picture)}; most: ${barText(widest)}`);
  }

  /** @param {Picture} picture */
  #drawRefused({ refused, more_refused: more }) {
    setVisible(this.refused, refused.length > 0);
    const texts = refused.map(([name, why]) => `${name}: ${why}, left out.`);
    if (more) texts.push(`${formatCount(more)} more files were left out.`);
    const { children, lastElementChild: last } = this.refused;
    if (children.length === texts.length && last?.textContent === texts.at(-1)) return;
    this.refused.replaceChildren(...texts.map((text) => element("li", { text })));
  }
}
