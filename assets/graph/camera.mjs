/* The camera of the drawing: where it looks when a drawing comes, and how it moves. */

import {
  READABLE, centreOn, firstZoom, fitZoom, measureExtent, shiftInto, topOf,
} from "./geometry.mjs";

/** @import { Cy, Elements } from "./cytoscape.mjs" */
/** @import { Point } from "./geometry.mjs" */

const NODE = { width: 100, height: 42 };
const BLOCK = { width: 180, height: 60 };
const GLIDE_MS = 160;

function prefersStill() {
  return window.matchMedia("(prefers-reduced-motion: reduce)").matches;
}

/**
 * What is drawn, by the places of the nodes, which are known, and not by what Cytoscape measures of
 * labels and edges.
 * @param {Cy} cy
 */
function extentOf(cy) {
  return measureExtent(
    cy.nodes().map((node) => {
      const { w, h, kind } = node.data();
      const size = kind === "block" ? BLOCK : NODE;
      return /** @type {const} */ ([node.position(), w || size.width, h || size.height]);
    }),
  );
}

/**
 * Look at a place at once.
 * @param {Cy} cy
 * @param {number} zoom
 * @param {Point} place
 */
function lookAt(cy, zoom, place) {
  cy.stop(); // a glide to somewhere else
  cy.viewport({
    zoom,
    pan: { x: cy.width() / 2 - place.x * zoom, y: cy.height() / 2 - place.y * zoom },
  });
}

/**
 * Show all that is drawn.
 * @param {Cy} cy
 */
export function fitAll(cy) {
  if (!cy.nodes().length) return;
  const extent = extentOf(cy);
  const middle = { x: (extent.left + extent.right) / 2, y: (extent.top + extent.bottom) / 2 };
  lookAt(cy, fitZoom(extent, cy.width(), cy.height()), middle);
}

/**
 * Show a drawing whole if it can be read then, else around the node it is about; about none, as much of it
 * as can be read, from the top.
 * @param {Cy} cy
 * @param {Elements} node
 */
export function frameAround(cy, node) {
  fitAll(cy);
  if (cy.zoom() >= READABLE || !cy.nodes().length) return;
  const extent = extentOf(cy), { left, right, top, bottom } = extent;
  if (!node.length) {
    const zoom = firstZoom(extent, cy.width(), cy.height());
    lookAt(cy, zoom, topOf(extent, zoom, cy.height()));
    return;
  }
  lookAt(cy, READABLE, {
    x: centreOn(node.position("x"), left, right, cy.width()),
    y: centreOn(node.position("y"), top, bottom, cy.height()),
  });
}

/**
 * Return where the left upper corner of a node is on the screen.
 * @param {Cy} cy
 * @param {Elements} node
 * @returns {Point}
 */
export function cornerOf(cy, node) {
  const { x, y } = node.position(), pan = cy.pan(), zoom = cy.zoom();
  return { x: (x - node.width() / 2) * zoom + pan.x, y: (y - node.height() / 2) * zoom + pan.y };
}

/**
 * Move what leaves the window on the right or below into it.
 * @param {Cy} cy
 * @param {Elements} node
 */
export function uncover(cy, node) {
  const corner = cornerOf(cy, node), zoom = cy.zoom();
  const panBy = {
    x: shiftInto(corner.x, node.width() * zoom, cy.width()),
    y: shiftInto(corner.y, node.height() * zoom, cy.height()),
  };
  if (!panBy.x && !panBy.y) return;
  if (prefersStill()) cy.panBy(panBy);
  else cy.animate({ panBy, duration: GLIDE_MS });
}

/**
 * Bring a node into the window if it is not.
 * @param {Cy} cy
 * @param {Elements} node
 */
export function bringIntoView(cy, node) {
  const box = node.renderedBoundingBox();
  if (box.x1 >= 0 && box.y1 >= 0 && box.x2 <= cy.width() && box.y2 <= cy.height()) return;
  const zoom = Math.max(cy.zoom(), READABLE);
  if (prefersStill()) {
    cy.zoom(zoom);
    cy.center(node);
  } else {
    cy.stop();
    cy.animate({ center: { eles: node }, zoom, duration: GLIDE_MS });
  }
}

/**
 * Zoom around the middle of the window.
 * @param {Cy} cy
 * @param {number} factor
 */
export function zoomBy(cy, factor) {
  const renderedPosition = { x: cy.width() / 2, y: cy.height() / 2 };
  cy.zoom({ level: cy.zoom() * factor, renderedPosition });
}
