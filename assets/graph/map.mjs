/* The map of the whole graph above the drawing, with what is in the window marked. */

import { parseRgb, penOf, readScheme, readTokens } from "../base/canvas.mjs";
import { byId, element, targetOf } from "../base/dom.mjs";
import { unpack } from "../base/packed.mjs";
import { addressOf, changeView } from "../base/view.mjs";
import { zoomBy } from "./camera.mjs";
import { mergeSpans } from "./geometry.mjs";
import { COLOURS } from "./marks.mjs";

/** @typedef {import("./cytoscape.mjs").Cy} Cy */
/** @typedef {import("./cytoscape.mjs").NodeData} NodeData */
/** @typedef {import("./drawing.mjs").Drawing} Drawing */
/** @typedef {import("./geometry.mjs").Point} Point */
/** @typedef {import("../base/view.mjs").View} View */

/**
 * What the server says of the map: cells of layers across and shares of a layer down.
 * @typedef {object} MapData
 * @property {number} width
 * @property {number} height
 * @property {Uint8Array} kind type of most nodes of a cell
 * @property {Uint8Array} shown how dense a cell is
 */

/** Kinds by the number of a node's type. */
const KINDS = [
  "other", "meta", "load", "store", "comp", "send", "recv", "coll",
  "copy", "gap", "idle", "arrival", "kernel",
];

/** Pixels around the middle of a node, or block, that have to be in the window for it to count as seen. */
const SEEN = { node: 46, block: 86, high: 26 };

/** The marks follow the camera at a distance: each costs the page a layout. */
const DELAY_MS = 80;

/** @type {Record<string, Readonly<Point>>} */
const STEPS = {
  ArrowLeft: { x: -1, y: 0 },
  ArrowRight: { x: 1, y: 0 },
  ArrowUp: { x: 0, y: -1 },
  ArrowDown: { x: 0, y: 1 },
};

/** @param {number} share */
const clamp = (share) => Math.min(1, Math.max(0, share));

/** @param {number} share */
const percent = (share) => `${(100 * share).toFixed(2)}%`;

/**
 * Fill an image with the cells of a map.
 * @param {MapData} map
 * @param {Uint8ClampedArray} out four bytes a cell
 * @param {(kind: string) => readonly [number, number, number]} colourOf
 */
export function paintMap({ width, height, kind, shown }, out, colourOf) {
  const colours = KINDS.map(colourOf);
  for (let cell = 0; cell < width * height; cell++) {
    if (!shown[cell]) continue;
    const [red, green, blue] = colours[kind[cell]] ?? colours[0];
    out[4 * cell] = red;
    out[4 * cell + 1] = green;
    out[4 * cell + 2] = blue;
    out[4 * cell + 3] = 0.7 * shown[cell];
  }
}

export class GraphMap {
  /** @type {(MapData & { key: string }) | null} */
  #map = null;
  /** Job and rank of the map that was asked for last: its key. @type {string | null} */
  #asked = null;
  #timer = 0;
  /** Where it would go, as shares of the map. @type {Point | null} */
  #aim = null;
  #isHeld = false;
  /** Where fingers are. @type {Map<number, Point>} */
  #fingers = new Map();
  /** How far from each other two fingers were; 0 until there were two. */
  #apart = 0;

  /** @param {Drawing} drawing */
  constructor(drawing) {
    this.drawing = drawing;
    const point = (/** @type {PointerEvent} */ event) => this.#point(event);
    for (const name of /** @type {const} */ (["pointerdown", "pointermove", "pointerup"])) {
      document.addEventListener(name, point);
    }
    document.addEventListener("pointercancel", () => {
      this.#isHeld = false;
      this.#fingers.clear();
      this.#apart = 0;
      this.#hideAim();
    });
    document.addEventListener("keydown", (event) => this.#pressKey(event), true);
    document.addEventListener("focusout", (event) => {
      if (targetOf(event, "#graph-map")) this.#hideAim();
    });
  }

  /* ---- drawing ---- */

  /** Draw the map of the job and rank that are shown, and the marks on it, soon. */
  follow() {
    const { job, rank } = this.drawing.view;
    if (job) this.#load(job, rank);
    this.markSoon();
  }

  markSoon() {
    if (this.#timer) return;
    this.#timer = window.setTimeout(() => {
      this.#timer = 0;
      this.#draw();
      this.#mark();
    }, DELAY_MS);
  }

  /**
   * @param {string} job
   * @param {string | undefined} rank
   */
  async #load(job, rank) {
    const asked = JSON.stringify([job, rank ?? null]);
    if (this.#asked === asked) return;
    this.#asked = asked;
    try {
      const answer = await fetch(addressOf(`/api/jobs/${encodeURIComponent(job)}/graph/map`, { rank }));
      const buffer = answer.ok ? await answer.arrayBuffer() : null;
      if (!buffer || this.#asked !== asked) return;
      this.#map = { .../** @type {MapData} */ (unpack(buffer)), key: asked };
      this.#draw();
    } catch {
      /* The page says that the studio does not answer; the next step asks again. */
      if (this.#asked === asked) this.#asked = null;
    }
  }

  #draw() {
    const canvas = /** @type {HTMLCanvasElement | null} */ (byId("graph-map-canvas"));
    const box = byId("graph-map"), map = this.#map;
    if (!canvas || !box || !map) return;
    const look = `${readScheme()} ${map.key}`;
    if (canvas.dataset.look === look) return;
    canvas.dataset.look = look;
    canvas.width = map.width;
    canvas.height = map.height;
    const pen = penOf(canvas), image = pen.createImageData(map.width, map.height);
    const tokens = readTokens("compute", "collective", "p2p", "memory", "host", "copy", "border");
    paintMap(map, image.data, (kind) => parseRgb(tokens[COLOURS[kind]]));
    pen.putImageData(image, 0, 0);
    box.dataset.ready = map.key;
  }

  /** Mark the layers that are in the window: those of the nodes and blocks that are. */
  #mark() {
    const { drawing } = this, { cy } = drawing, box = byId("graph-map-marks");
    if (!cy || !box || !drawing.isReady()) return;
    const marks = mergeSpans(spansSeen(cy)).map((span) => makeMark("cs-map-view", span));
    const selected = drawing.selectedIn(cy);
    const span = selected.length ? selected.data("m") : undefined;
    if (span) marks.push(makeMark(`cs-map-node${span[1] - span[0] > 0.01 ? " cs-map-wide" : ""}`, span));
    box.replaceChildren(...marks);
  }

  /* ---- going there: pointer and keys aim, letting go and Enter take there ---- */

  #hideAim() {
    const mark = byId("graph-map-aim");
    if (mark) mark.hidden = true;
  }

  /**
   * @param {number} x
   * @param {number} y
   */
  #aimAt(x, y) {
    const map = byId("graph-map"), mark = byId("graph-map-aim");
    if (!map || !mark) return;
    this.#aim = { x: clamp(x), y: clamp(y) };
    mark.hidden = false;
    mark.style.left = percent(this.#aim.x);
    mark.style.top = percent(this.#aim.y);
    const [across, down] = [this.#aim.x, this.#aim.y].map((share) => Math.round(100 * share));
    map.setAttribute("aria-valuenow", String(across));
    const place = `${across} % of the depth, ${down} % from the top`;
    map.setAttribute("aria-valuetext", `${place}; Enter goes there`);
  }

  /** Select the node that is aimed at. */
  async #go() {
    if (!this.#aim || !this.#map) return;
    const { job = "", rank } = this.drawing.view;
    const asked = this.#asked, page = window.location.pathname;
    const path = `/api/jobs/${encodeURIComponent(job)}/graph/map/node`;
    const { node } = await (await fetch(addressOf(path, { ...this.#aim, rank }))).json();
    /* An id means another node on another rank, and nothing on another page. */
    if (!node || asked !== this.#asked || page !== window.location.pathname) return;
    changeView({ node, block: null, at: null, show: this.drawing.drawn.mode });
  }

  /** @param {PointerEvent} event */
  #point(event) {
    const map = targetOf(event, "#graph-map");
    if (!map || !this.#map || event.button > 0) return;
    if (event.pointerType === "touch" && this.#pinch(map, event)) return;
    if (event.type === "pointerdown") {
      this.#isHeld = true;
      map.setPointerCapture(event.pointerId);
    }
    if (!this.#isHeld) return;
    const box = map.getBoundingClientRect();
    this.#aimAt((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
    if (event.type !== "pointerup") return;
    this.#isHeld = false;
    this.#hideAim();
    this.#go();
  }

  /**
   * Zoom the drawing by two fingers: the map itself always shows the whole graph.
   * @param {HTMLElement} map
   * @param {PointerEvent} event
   * @returns {boolean} whether fingers zoom, until the last is gone
   */
  #pinch(map, { type, pointerId, clientX, clientY }) {
    const { cy } = this.drawing, fingers = this.#fingers;
    if (type === "pointerup") fingers.delete(pointerId);
    else if (type === "pointerdown" || fingers.has(pointerId)) {
      fingers.set(pointerId, { x: clientX, y: clientY });
    }
    if (fingers.size === 2 && cy) {
      const [one, other] = fingers.values();
      const apart = Math.max(10, Math.hypot(one.x - other.x, one.y - other.y));
      if (!this.#apart) map.setPointerCapture(pointerId);
      else if (type === "pointermove") zoomBy(cy, apart / this.#apart);
      this.#apart = apart;
      this.#isHeld = false;
      this.#hideAim();
    }
    const isMine = this.#apart > 0;
    if (!fingers.size) this.#apart = 0;
    return isMine;
  }

  /** Aim where the selected node is, else at what is in the window, else at the beginning. */
  #startAim() {
    if (this.#aim && byId("graph-map-aim")?.hidden === false) return this.#aim;
    const marks = ["node", "view"].map((kind) => document.querySelector(`#graph-map-marks .cs-map-${kind}`));
    const mark = /** @type {HTMLElement | null} */ (marks[0] ?? marks[1]);
    return { x: mark ? parseFloat(mark.style.left) / 100 : 0, y: 0.7 };
  }

  /** @param {KeyboardEvent} event */
  #pressKey(event) {
    const { target, key } = event;
    if (!(target instanceof Element) || target.id !== "graph-map" || !this.#map) return;
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const step = STEPS[key];
    if (step) {
      const { x, y } = this.#startAim(), far = event.shiftKey ? 10 : 1;
      this.#aimAt(x + step.x * far * Math.max(1 / this.#map.width, 0.01), y + step.y * far * 0.125);
    } else if (key === "Home" || key === "End") this.#aimAt(key === "Home" ? 0 : 1, this.#startAim().y);
    else if (key === "Enter") this.#go();
    else if (key === "Escape") this.#hideAim();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

/**
 * Return where on the map the nodes and blocks in the window are.
 * @param {Cy} cy
 */
function spansSeen(cy) {
  const seen = cy.extent();
  /** @type {[number, number][]} */
  const spans = [];
  cy.nodes().forEach((node) => {
    const { m, kind } = node.data();
    if (!m || kind === "frame") return;
    const { x, y } = node.position(), wide = kind === "block" ? SEEN.block : SEEN.node;
    const isAcross = x + wide >= seen.x1 && x - wide <= seen.x2;
    if (isAcross && y + SEEN.high >= seen.y1 && y - SEEN.high <= seen.y2) spans.push(m);
  });
  return spans;
}

/**
 * @param {string} name of a class
 * @param {readonly [number, number]} span shares of the map
 */
function makeMark(name, [start, end]) {
  const mark = element("div", { class: name });
  mark.style.left = `${(100 * start).toFixed(3)}%`;
  mark.style.width = `max(3px, ${(100 * (end - start)).toFixed(3)}%)`;
  return mark;
}
