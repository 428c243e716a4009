/* The drawing of the Graph page: what is shown and selected in Cytoscape. The server lays it out. */

import { readScheme } from "../base/canvas.mjs";
import { byId } from "../base/dom.mjs";
import { changeView, readView } from "../base/view.mjs";
import { bringIntoView, cornerOf, frameAround, uncover } from "./camera.mjs";
import { endReports, findCytoscape } from "./cytoscape.mjs";
import { toggleEntry, withBlock, withoutBlock } from "./geometry.mjs";
import { fillBlocks, hideKinds, markHover, markSelection, scalePrint, showTip } from "./marks.mjs";

/** @import { View } from "../base/view.mjs" */
/** @import { Cy, Drawn, Elements } from "./cytoscape.mjs" */

/** In the address: no block is open. Without a word the server chooses. */
const NOTHING = "none";

/** How long a block that was opened keeps its place while the window changes its size. */
const SETTLING_MS = 1500;

/** How often the drawing looks for its elements, which React brings in its own time. */
const TRIES = 600;
const TRY_MS = 8;

/** Drawings that show part of a graph around a centre, which stays when the selection moves on. */
const CENTRED = ["near", "path", "gate"];

export class Drawing {
  /** @type {Drawn} */
  drawn = {};
  /** @type {View} */
  view = {};
  /** Ids of nodes that the search found. @type {readonly string[]} */
  hits = [];
  /** Whether the user has done anything since the drawing was framed. */
  isTouched = false;
  /** Called after marks or camera were set. */
  onShow = () => {};

  /** Where a block is on the screen that is opened or closed: its corner stays there. */
  #pin = /** @type {{ path: string, byKey: boolean, since: number, x: number, y: number } | null} */ (null);
  /** @type {Cy | null} whose events are listened to */
  #wired = null;
  /** @type {string | undefined} key of the drawing the camera was set for */
  #framed;
  /** What the marks were set from. */
  #marked = "";
  /** @type {Drawn | null} a drawing that has just arrived */
  #coming = null;
  /** Blocks that were asked to be open, until a drawing has them so. @type {string[] | null} */
  #opening = null;
  /** Whether Cytoscape takes its size for the drawing that is framed next. */
  #isResizing = false;
  #waiting = 0;

  get cy() {
    return findCytoscape();
  }

  /**
   * Show what Dash brought.
   * @param {Drawn} drawn
   * @param {View} view
   * @param {readonly string[]} hits
   */
  show(drawn, view, hits) {
    Object.assign(this, { drawn, view, hits });
    if (this.#opening?.every((path) => drawn.opened?.includes(path))) this.#opening = null;
    const { cy } = this;
    if (cy) this.#listen(cy);
    this.#settle(TRIES);
  }

  /** Take the view from the address: a key or click before may have changed it, of which Dash tells only
     later. */
  updateView() {
    this.view = readView();
  }

  /* ---- selection and blocks ---- */

  /**
   * Return the node or block that is selected, or none.
   * @param {Cy} cy
   */
  selectedIn(cy) {
    const { node, block } = this.view;
    if (node) return cy.getElementById(node);
    return block && this.drawn.mode === "fold" ? blockIn(cy, block) : cy.collection();
  }

  /**
   * Select a node, or nothing.
   * @param {string | null} node
   */
  select(node) {
    const { mode, centre } = this.drawn;
    changeView({
      node,
      /* Looking around moves nothing: the neighbourhood keeps its centre, and open blocks stay open. */
      ...(node !== null && CENTRED.includes(mode ?? "") ? { at: centre } : {}),
      ...(mode === "fold" ? { show: "fold", block: null, open: openText(this.#opened()) } : {}),
    });
  }

  /** @param {string} path */
  selectBlock(path) {
    changeView({ show: "fold", block: path, node: null, open: openText(this.#opened()) });
  }

  /**
   * Select the block, frame or node that an element stands for.
   * @param {Elements} element
   */
  selectElement(element) {
    const path = element.data("block");
    if (path === undefined) this.select(element.id());
    else this.selectBlock(path);
  }

  /**
   * Open a block in place.
   * @param {Cy} cy
   * @param {string} path
   * @param {boolean} byKey whether it moves into the window: under the pointer nothing moves
   */
  openBlock(cy, path, byKey = false) {
    this.#keepPlace(cy, path, byKey);
    this.#open(withBlock(this.#opened(), path), path);
  }

  /**
   * Close a block in place.
   * @param {Cy} cy
   * @param {string} path
   */
  closeBlock(cy, path) {
    this.#keepPlace(cy, path, false);
    this.#open(withoutBlock(this.#opened(), path), path);
  }

  /**
   * Open what is selected, close it if it is open, or put a node into the centre.
   * @param {Cy} cy
   */
  enter(cy) {
    const selected = this.selectedIn(cy);
    if (!selected.length) return;
    const { id, kind, block } = selected.data();
    if (block === undefined) changeView({ node: id, at: null, show: "near" });
    else if (kind === "frame") this.closeBlock(cy, block);
    else this.openBlock(cy, block, true);
  }

  /**
   * Close the block that what is selected stands in.
   * @param {Cy} cy
   */
  closeAround(cy) {
    const selected = this.selectedIn(cy);
    if (!selected.length) return;
    const { kind, block, inside } = selected.data();
    const path = kind === "frame" ? block : inside;
    if (path) this.closeBlock(cy, path);
  }

  /**
   * Hide or show nodes of a kind.
   * @param {string} kind
   */
  toggleKind(kind) {
    changeView({ hide: toggleEntry(this.view.hide, kind) || null }, { replace: true });
  }

  /** Blocks that are open, or will be: one that is opened before the answer to the last has come leaves
     that open. */
  #opened() {
    const isAsked = this.#opening && openText(this.#opening) === readView().open;
    return (isAsked ? this.#opening : this.drawn.opened) ?? [];
  }

  /**
   * @param {string[]} blocks
   * @param {string} path
   */
  #open(blocks, path) {
    this.#opening = blocks;
    changeView({ show: "fold", open: openText(blocks), block: path, node: null });
  }

  /**
   * Remember where a block is on the screen.
   * @param {Cy} cy
   * @param {string} path
   * @param {boolean} byKey
   */
  #keepPlace(cy, path, byKey) {
    const block = blockIn(cy, path);
    this.#pin = block.length ? { path, byKey, since: Date.now(), ...cornerOf(cy, block) } : null;
  }

  /* ---- drawing ---- */

  /** Whether Cytoscape has the elements of the drawing. */
  isReady() {
    const { cy } = this;
    const { key, nodes = 0, first } = this.drawn;
    if (!cy || cy.nodes().length !== nodes) return false;
    if (!first) return true;
    const node = cy.getElementById(first);
    return node.length > 0 && node.data("drawing")?.key === key;
  }

  /**
   * Take over a drawing of which the first node tells. With its arrival, before anything is painted, the
   * camera is set.
   * @param {Elements} node
   */
  #arrive(node) {
    const drawn = node.data("drawing");
    if (!drawn || drawn.key === this.drawn.key || drawn === this.#coming) return;
    this.#coming = drawn;
    window.queueMicrotask(() => {
      if (this.#coming !== drawn) return;
      this.#coming = null;
      this.drawn = drawn;
      this.updateView();
      this.#settle(TRIES);
    });
  }

  /**
   * Wait for the elements; then set the marks and, once for each drawing, the camera.
   * @param {number} tries
   */
  #settle(tries) {
    window.clearTimeout(this.#waiting);
    if (!this.drawn.key) return;
    const { cy } = this;
    if (!cy || !this.isReady()) {
      if (tries > 0) this.#waiting = window.setTimeout(() => this.#settle(tries - 1), TRY_MS);
      return;
    }
    this.#listen(cy);
    if (this.drawn.mode === "fold") fillBlocks(cy);
    const marks = this.#describeMarks();
    const isNew = this.#framed !== this.drawn.key || !cy.scratch("cs-framed");
    if (!isNew && this.#marked === marks) return;
    this.#marked = marks;
    if (isNew) {
      this.#begin(cy);
      return;
    }
    this.#mark(cy);
    this.onShow();
    const selected = this.selectedIn(cy);
    if (selected.length && selected.data("kind") !== "frame") bringIntoView(cy, selected);
  }

  /**
   * Show a new drawing.
   * @param {Cy} cy
   */
  #begin(cy) {
    this.#framed = this.drawn.key;
    this.isTouched = false;
    cy.scratch("cs-framed", true);
    cy.scratch("cs-afar", null);
    /* It learns of its size late, and until then takes no finger, and no click for one on a node. */
    this.#isResizing = true;
    cy.resize();
    this.#isResizing = false;
    cy.batch(() => {
      this.#frame(cy);
      scalePrint(cy);
      this.#mark(cy);
    });
    this.onShow();
    const canvas = byId("graph-canvas");
    if (canvas) canvas.dataset.ready = this.drawn.key;
  }

  /** @param {Cy} cy */
  #mark(cy) {
    markSelection(cy, this.selectedIn(cy), this.view.q ? this.hits : []);
    hideKinds(cy, this.view.hide);
  }

  /** All that the marks come from. */
  #describeMarks() {
    const { node, block, q, hide, anchor, at } = this.view;
    return JSON.stringify([this.drawn.key, node, block, q, hide, anchor, at, this.hits, readScheme()]);
  }

  /**
   * Set the camera: by the block that was opened or closed, else so that the drawing can be read.
   * @param {Cy} cy
   */
  #frame(cy) {
    const pin = this.#pin;
    this.#pin = null;
    const block = pin ? blockIn(cy, pin.path, "fb") : cy.collection();
    if (pin && block.length) {
      const corner = cornerOf(cy, block);
      cy.panBy({ x: pin.x - corner.x, y: pin.y - corner.y });
      if (pin.byKey) uncover(cy, block);
      this.isTouched = true; // when the window settles this is not framed again
      return;
    }
    const selected = this.selectedIn(cy);
    const { centre } = this.drawn;
    frameAround(cy, selected.length || !centre ? selected : cy.getElementById(centre));
  }

  /**
   * Listen to Cytoscape in place of Dash.
   * @param {Cy} cy
   */
  #listen(cy) {
    if (this.#wired === cy) return;
    this.#wired = cy;
    endReports(cy);
    cy.on("add data", "node", ({ target }) => this.#arrive(target));
    cy.on("tap", ({ target }) => {
      if (target === cy) this.select(null);
      else if (isElement(target) && (target.isNode() || target.data("block") !== undefined)) {
        this.selectElement(target);
      }
    });
    cy.on("dbltap", "node", ({ target }) => {
      const { id, kind, block } = target.data();
      if (block === undefined) changeView({ node: id, at: null, show: "near" }, { replace: true });
      else if (kind === "frame") this.closeBlock(cy, block);
      else this.openBlock(cy, block);
    });
    cy.on("mouseover", "node", ({ target }) => markHover(target, true));
    cy.on("mouseout", "node", ({ target }) => markHover(target, false));
    cy.on("viewport", () => {
      scalePrint(cy);
      showTip(null);
      this.onMove();
    });
    cy.on("resize", () => this.#resize(cy));
  }

  /** Called when the camera moves. */
  onMove = () => {};

  /**
   * Look again after the window changed its size: the inspector of a link opens after the drawing has
   * been framed. Once
   * the user has done anything, what is looked at stays where it is.
   * @param {Cy} cy
   */
  #resize(cy) {
    if (this.#isResizing || cy.destroyed()) return; // destroyed: the page is being left
    /* What was asked for comes next, and is put in its place then. */
    if (this.#pin && Date.now() - this.#pin.since < SETTLING_MS) return;
    const selected = this.selectedIn(cy);
    if (!this.isTouched) this.#frame(cy);
    else if (selected.length && selected.data("kind") !== "frame") bringIntoView(cy, selected);
  }
}

/**
 * @param {Elements | Cy} target
 * @returns {target is Elements}
 */
function isElement(target) {
  return "isNode" in target;
}

/**
 * Return a block of the drawing, or its frame where it is open; `kinds` says which is looked for first.
 * @param {Cy} cy
 * @param {string} path
 * @param {"bf" | "fb"} kinds
 */
function blockIn(cy, path, kinds = "bf") {
  const first = cy.getElementById(kinds[0] + path);
  return first.length ? first : cy.getElementById(kinds[1] + path);
}

/**
 * Write open blocks as the address does.
 * @param {readonly string[]} blocks
 */
function openText(blocks) {
  return blocks.join(",") || NOTHING;
}
