/* The Collectives page: it shows the heatmap that the address asks for, and turns what hands do into the
   address. */

import { readScheme } from "../base/canvas.mjs";
import { noUpdate, showTests } from "../base/dash.mjs";
import { byId, element, setText } from "../base/dom.mjs";
import { registerFigure } from "../base/export.mjs";
import { pageTimers } from "../base/timers.mjs";
import { changeView, readView } from "../base/view.mjs";
import { CONTROLS, Controls } from "./controls.mjs";
import { Heatmap } from "./heatmap.mjs";
import { describeNothing, describeWindow, isBinned } from "./layout.mjs";
import { getHeat, getJson, heatAddress, otherAddress, shapeOf } from "./requests.mjs";
import { joinRanges, makeScale } from "./scale.mjs";
import { readWindow, windowAround, writeWindow } from "./windows.mjs";

/** @typedef {import("../base/view.mjs").View} View */
/** @typedef {import("./controls.mjs").Settled} Settled */
/** @typedef {import("./heatmap.mjs").Hands} Hands */
/** @typedef {import("./layout.mjs").HeatData} HeatData */
/** @typedef {import("./layout.mjs").Measure} Measure */
/** @typedef {import("./layout.mjs").Place} Place */
/** @typedef {import("./requests.mjs").Refusal} Refusal */
/** @typedef {import("./windows.mjs").Bin} Bin */
/** @typedef {import("./windows.mjs").Window} Window */

/**
 * A cell as the server describes it.
 * @typedef {{ words: string, rank: number, node: string | null, count: number, section: string }} Cell
 */

/** @type {Record<string, Readonly<Place>>} */
const STEPS = {
  ArrowUp: { line: -1, column: 0 },
  ArrowDown: { line: 1, column: 0 },
  ArrowLeft: { line: 0, column: -1 },
  ArrowRight: { line: 0, column: 1 },
};

/** @param {string} text */
const say = (text) => setText("collectives-status", text);

/**
 * Say what is wrong, or that nothing is.
 * @param {unknown} error
 * @param {string} [title]
 */
function report(error, title = "The heatmap cannot be shown") {
  const { message, hint } = /** @type {Partial<Refusal>} */ (error ?? {});
  const lines = [
    element("strong", {}, title),
    element("p", {}, message || "The studio does not answer."),
    element("p", {}, hint ?? "Is it still running?"),
  ];
  const card = element("div", { class: "cs-error" }, ...lines);
  byId("collectives-error")?.replaceChildren(...(error ? [card] : []));
}

/**
 * Whether a tab holds no heatmap but a panel that the server draws.
 * @param {string | null | undefined} tab
 */
const isTable = (tab) => tab === "groups" || tab === "sizes";

class CollectivesPage {
  /** @type {Heatmap | null} */
  map = null;
  /** Of another run or job, beside the first. @type {Heatmap | null} */
  #second = null;
  /** What the first shows. @type {HeatData | null} */
  data = null;
  /** What the second shows, if anything. @type {HeatData | null} */
  #beside = null;
  /** What there is to compare with, once it is known. @type {readonly { value: string }[] | null} */
  #others = null;
  /** Why the second shows nothing. */
  #problem = /** @type {unknown} */ (null);
  /** What was asked for and has not come. @type {string | null} */
  #asking = null;
  /** What the data answer. @type {string | null} */
  #drawn = null;
  /** What the picture was painted from. */
  #painted = "";
  /** The node that is looked for or has the ring. @type {string | null} */
  #ringing = null;
  /** The bin that is pointed at. @type {Bin | null} */
  #pointed = null;
  /** The cell that arrow keys have come to. @type {Place | null} */
  #cursor = null;
  /** A window that is on its way to the address. @type {ReturnType<typeof writeWindow> | null} */
  #zooming = null;
  /** The picture that was asked for before Dash had begun. @type {{ address: string, answer:
     Promise<HeatData> } | null} */
  #early = null;
  #later = pageTimers();

  constructor() {
    registerFigure("collectives-heat", {
      png: async () => this.#figure(this.map).toPng(),
      svg: async () => this.#figure(this.map).toSvg(),
    });
    registerFigure("collectives-other", {
      png: async () => this.#figure(this.#second).toPng(),
      svg: async () => this.#figure(this.#second).toSvg(),
    });
  }

  /** @param {Heatmap | null} map */
  #figure(map) {
    if (!map) throw new Error("there is no figure yet");
    return map;
  }

  /* ---- drawing ---- */

  /** Ask for the picture of the page that is opened: Dash begins later. */
  askEarly() {
    const view = readView();
    if (!window.location.pathname.endsWith("/collectives") || !view.job || isTable(view.tab)) return;
    const address = heatAddress(view);
    this.#early = { address, answer: getHeat(address) };
    this.#early.answer.catch(() => {
      /* Said where it is asked for. */
    });
  }

  /** @param {string} address */
  #getHeat(address) {
    const early = this.#early;
    this.#early = null;
    return early?.address === address ? early.answer : getHeat(address);
  }

  /** Make the heatmap, unless it is there. */
  #mount() {
    const host = byId("collectives-heat");
    if (!host || (host === this.map?.host && host.contains(this.map.canvas))) return;
    this.#drawn = this.data = this.#second = null;
    this.map = new Heatmap(host, {
      ...this.#hands(),
      measure: () => {
        const { sort } = readView();
        return /** @type {Measure} */ (sort && sort !== "time" ? sort : "max");
      },
      point: (bin) => this.#point(bin),
      choose: (cell) => this.#choose(cell),
    });
    host.addEventListener("keydown", (event) => this.#pressKey(event));
  }

  /** What hands do on either heatmap; beside the first, cells cannot be chosen. @returns {Hands} */
  #hands() {
    return {
      measure: () => "max",
      point: (bin) => {
        if (bin) this.map?.ring(bin);
        else {
          this.#ringing = null;
          this.ringNode(readView());
        }
      },
      choose: () => {},
      open: (bin) => {
        if (this.data) this.#zoom(windowAround(bin, this.data), true);
      },
      zoom: (wanted, isStep) => this.#zoom(wanted, isStep),
      goal: (data) => readWindow({ ...readView(), ...this.#zooming }, data),
    };
  }

  /**
   * Draw what an address asks for.
   * @param {View} view
   */
  async draw(view) {
    this.#mount();
    if (!this.map || !byId("collectives-heat") || !view.job || isTable(view.tab)) return;
    const other = view.tab === "traffic" ? null : view.with || null;
    const wanted = JSON.stringify([shapeOf(view), other]);
    if (wanted === this.#asking || wanted === this.#drawn) {
      this.#paint(view);
      return;
    }
    this.#asking = wanted;
    this.#later("slow", 300, () => {
      if (this.#asking === wanted) say("Drawing the heatmap…");
    });
    try {
      const data = await this.#getHeat(heatAddress(view));
      /** @type {HeatData | null} */
      let beside = null;
      /** @type {unknown} */
      let problem = null;
      if (other) {
        /* What cannot be compared with leaves the picture of the page's own job as it is. */
        beside = await getHeat(otherAddress(view, data)).catch((error) => {
          problem = error;
          return null;
        });
      }
      if (this.#asking !== wanted) return;
      this.#asking = null;
      this.#drawn = wanted;
      this.data = data;
      this.#beside = beside;
      this.#problem = problem;
      report(null);
      this.#tellProblem();
      this.#paint(readView());
      this.ringNode(readView());
    } catch (error) {
      if (this.#asking !== wanted) return;
      this.#asking = null;
      this.map?.wipe();
      report(error);
    }
  }

  /**
   * Take over what there is to compare with.
   * @param {readonly { value: string }[] | null} others
   */
  setOthers(others) {
    this.#others = others;
    this.#tellProblem();
  }

  /** Say why the second shows nothing. What is not there at all is told below the page, not twice. */
  #tellProblem() {
    const other = readView().with;
    if (this.#problem && this.#others?.some(({ value }) => value === other))
      report(this.#problem, "The other heatmap cannot be shown");
  }

  /**
   * Paint what has come.
   * @param {View} view
   */
  #paint(view) {
    const { map, data } = this, beside = this.#beside;
    if (!map || !data) return;
    const isRatio = data.unit === "ratio";
    const isLog = view.scale === "log" || (view.scale !== "linear" && !isRatio);
    const how = JSON.stringify([this.#drawn, isLog, readScheme()]);
    if (how === this.#painted && map.data === data) return;
    this.#painted = how;
    if (data.range.most === null) {
      map.wipe();
      map.host.dataset.ready = "";
      map.host.dataset.nothing = describeNothing(data);
      say("");
      return;
    }
    delete map.host.dataset.nothing;
    const scale = makeScale(joinRanges(data.range, beside?.range ?? null, isRatio), isRatio, isLog);
    map.show(data, scale, { lines: beside?.shape[0] ?? 0 });
    const host = byId("collectives-other");
    if (beside && host) {
      this.#second ??= new Heatmap(host, this.#hands());
      this.#second.show(beside, scale, { narrow: true, lines: data.shape[0] });
    }
    byId("collectives-legend")?.replaceChildren(map.makeLegend());
    say(hintOf(data));
    setText("collectives-detail", describeWindow(data));
  }

  /* ---- selection ---- */

  /**
   * Draw a ring around the cell of the selected node.
   * @param {View} view
   */
  async ringNode(view) {
    const { map, data } = this;
    if (!map || !data) return;
    if (!view.node || !this.#hasNodes(view)) {
      this.#ringing = null;
      map.ring(null);
      return;
    }
    const wanted = JSON.stringify([this.#drawn, view.rank, view.node]);
    if (this.#ringing === wanted) return;
    this.#ringing = wanted;
    try {
      const address = heatAddress(view, "/find", { rank: view.rank || 0, node: view.node });
      /** @type {{ line: number | null, column: number }} */
      const { line, column } = await getJson(address);
      if (this.#ringing !== wanted) return;
      const cell = line === null ? null : { line, column };
      map.ring(cell);
      this.#second?.ring(cell);
    } catch {
      map.ring(null);
    }
  }

  /**
   * Return whether cells are of nodes. Those of pairs of ranks are not, also while they are being fetched.
   * @param {View} view
   */
  #hasNodes(view) {
    return this.data !== null && !this.data.pairs && view.tab !== "traffic";
  }

  /**
   * Say what is in a bin that is pointed at.
   * @param {Bin | null} bin
   */
  #point(bin) {
    if (this.#beside) this.#second?.ring(bin);
    if (!this.#hasNodes(readView())) return;
    this.#pointed = bin;
    this.#later("point", 60, async () => {
      if (!bin) {
        if (this.data) say(hintOf(this.data));
        return;
      }
      if (!this.#hasNodes(readView())) return;
      const place = isBinned(bin) ? bin : { line: bin.line, column: bin.column };
      try {
        /** @type {Cell} */
        const { words } = await getJson(heatAddress(readView(), "/cell", place));
        if (this.#pointed === bin) say(words);
      } catch {
        /* The tip has said it already. */
      }
    });
  }

  /**
   * Select the node of a cell, or show what a cell adds up.
   * @param {Place} cell
   */
  async #choose({ line, column }) {
    if (!this.#hasNodes(readView())) return;
    try {
      /** @type {Cell} */
      const cell = await getJson(heatAddress(readView(), "/cell", { line, column }));
      say(cell.words);
      const { rank, node, section } = cell;
      if (node !== null) changeView({ rank, node });
      else if (cell.count > 1) changeView({ rank, node, fold: null, only: section, rows: null, cols: null });
    } catch (error) {
      report(error);
    }
  }

  /**
   * Show a window.
   * @param {Window} wanted
   * @param {boolean} isStep whether it can be walked back; if not, it is one of many in a row
   */
  #zoom(wanted, isStep) {
    if (!this.data) return;
    const change = writeWindow(wanted, this.data);
    this.#zooming = isStep ? null : change;
    if (isStep) {
      changeView(change);
      return;
    }
    this.#later("zoom", 40, () => {
      if (this.#zooming !== change) return; // overtaken
      this.#zooming = null;
      changeView(change, { replace: true });
    });
  }

  /** @param {KeyboardEvent} event */
  #pressKey(event) {
    const { data } = this;
    if (event.ctrlKey || event.metaKey || event.altKey || !data) return;
    if (event.key === "Escape") {
      const { rows, cols, node } = readView();
      if (rows || cols) changeView({ rows: null, cols: null });
      else if (node) changeView({ node: null });
      return;
    }
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const [low, high, left, right] = data.window;
    const from = this.#cursor ?? { line: low - step.line, column: left - step.column };
    const cell = {
      line: Math.min(Math.max(from.line + step.line, low), high - 1),
      column: Math.min(Math.max(from.column + step.column, left), right - 1),
    };
    this.#cursor = cell;
    this.map?.ring(cell);
    this.#later("key", 120, () => this.#choose(cell));
  }
}

/**
 * Say what can be done where nothing is pointed at.
 * @param {HeatData} data
 */
function hintOf({ pairs, timed }) {
  if (pairs) return "Point at a cell to read it; drag to look closer.";
  return timed
    ? "Point at a cell to read it; click to select its node; drag to look closer."
    : "This job has no times yet: sizes are shown. Simulate it to see durations and leads.";
}

/**
 * Start what the Collectives page does in the browser.
 * @returns what Dash calls: see studio/pages/collectives/page.py
 */
export function startCollectivesPage() {
  const page = new CollectivesPage(), controls = new Controls();
  page.askEarly();
  showTests({ collectives: page });
  return {
    follow() {
      const view = readView();
      page.draw(view);
      page.ringNode(view);
      return noUpdate;
    },
    /**
     * @param {Settled | null} settled
     * @param {{ value: string }[] | null} others
     * @param {...(string | null)} values
     */
    controls(settled, others, ...values) {
      page.setOthers(others);
      return controls.follow(settled, others, values);
    },
    /** @param {...unknown} values of the controls, then what is settled */
    write(...values) {
      const settled = /** @type {Settled | null} */ (values[CONTROLS.length]);
      controls.write(settled, /** @type {(string | null)[]} */ (values.slice(0, CONTROLS.length)));
      return noUpdate;
    },
  };
}
