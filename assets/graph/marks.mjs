/* How nodes look beyond the stylesheet: bands of blocks, what is selected, found, hidden, pointed at. */

import { mixRgb, parseRgb, readScheme, readTokens } from "../base/canvas.mjs";
import { byId } from "../base/dom.mjs";
import { plural } from "../base/format.mjs";
import { bandStops } from "./geometry.mjs";

/** @typedef {import("./cytoscape.mjs").Cy} Cy */
/** @typedef {import("./cytoscape.mjs").Elements} Elements */
/** @typedef {import("./cytoscape.mjs").NodeData} NodeData */

/**
 * Colour of each kind of node, as a token of the theme.
 * @type {Record<string, "compute" | "collective" | "p2p" | "memory" | "host" | "copy" | "border">}
 */
export const COLOURS = {
  comp: "compute",
  coll: "collective",
  send: "p2p",
  recv: "p2p",
  copy: "copy",
  load: "memory",
  store: "memory",
  meta: "host",
  gap: "host",
  idle: "border",
  arrival: "host",
  kernel: "collective",
  other: "host",
};

/** Share of the kind's colour in a band, the rest being the ground. */
const TINT = 0.24;

/** Below this zoom a node has room for one short word in larger print. */
const AFAR = 0.6;

/**
 * Read the colours of bands, by token.
 * @returns {Record<string, string>}
 */
function readTints() {
  const { panel, ...colours } = readTokens(
    "compute", "collective", "p2p", "memory", "host", "copy", "border", "panel",
  );
  const ground = parseRgb(panel);
  const tints = Object.entries(colours).map(([name, colour]) => {
    const parts = mixRgb(ground, parseRgb(colour), TINT);
    return [name, `#${parts.map((part) => part.toString(16).padStart(2, "0")).join("")}`];
  });
  return Object.fromEntries(tints);
}

/**
 * Fill blocks with bands: one for each kind of their nodes, as wide as its share.
 * @param {Cy} cy
 */
export function fillBlocks(cy) {
  const scheme = readScheme();
  const tints = readTints();
  cy.nodes('[kind = "block"]').forEach((block) => {
    const { hue, stops, parts = [] } = block.data();
    if (hue) {
      block.removeData("stops colours");
      return;
    }
    if (block.scratch("cs-theme") === scheme && stops) return;
    block.scratch("cs-theme", scheme);
    const colours = parts.map(([kind]) => tints[COLOURS[kind] ?? "host"]);
    const ends = colours.flatMap((colour) => [colour, colour]);
    block.data({ colours: ends.join(" "), stops: bandStops(parts).join(" ") });
  });
}

/**
 * Enlarge the print of nodes that are seen from afar.
 * @param {Cy} cy
 */
export function scalePrint(cy) {
  const isAfar = cy.zoom() < AFAR;
  if (cy.scratch("cs-afar") === isAfar) return;
  cy.scratch("cs-afar", isAfar);
  cy.nodes().toggleClass("cs-afar", isAfar);
}

/**
 * Highlight what is selected with its neighbours, and the hits of a search; the rest fades.
 * @param {Cy} cy
 * @param {Elements} node that is selected, or none
 * @param {readonly string[]} hits ids
 */
export function markSelection(cy, node, hits) {
  const found = new Set(hits);
  cy.batch(() => {
    cy.elements().removeClass("cs-on cs-near cs-off cs-hit cs-over");
    if (found.size) {
      cy.nodes().forEach((each) => {
        if (found.has(each.id())) each.addClass("cs-hit");
      });
    }
    if (node.length && node.data("kind") === "frame") node.addClass("cs-on");
    else if (node.length) {
      const near = node.closedNeighborhood();
      cy.elements().difference(near).not('[kind = "frame"]').addClass("cs-off");
      near.addClass("cs-near");
      node.addClass("cs-on");
    } else if (found.size) {
      cy.elements().not(".cs-hit").not('[kind = "frame"]').addClass("cs-off");
    }
  });
}

/**
 * Fade what the legend hides, a block once all its kinds are hidden; nothing moves.
 * @param {Cy} cy
 * @param {string | undefined} hide of the address
 */
export function hideKinds(cy, hide) {
  const hidden = new Set((hide ?? "").split(",").filter(Boolean));
  for (const entry of /** @type {NodeListOf<HTMLElement>} */ (
    document.querySelectorAll("#graph-legend [data-filter]")
  )) {
    entry.setAttribute("aria-pressed", String(!hidden.has(entry.dataset.filter ?? "")));
  }
  cy.batch(() => {
    cy.elements(".cs-hidden").removeClass("cs-hidden");
    if (!hidden.size) return;
    const gone = cy.nodes().filter((node) => {
      const { kind, hue, parts } = node.data();
      if (kind === "frame") return false;
      if (hue) return hidden.has(hue);
      return parts ? parts.every(([part]) => hidden.has(part)) : hidden.has(kind);
    });
    gone.addClass("cs-hidden");
    gone.connectedEdges().addClass("cs-hidden");
  });
}

/**
 * Return what is said of a node that is pointed at, line by line.
 * @param {NodeData} data
 */
export function describeNode(data) {
  const { id, kind, name, type, bytes, block, count = 0, time, value, crit, hidden = 0 } = data;
  const isBlock = block !== undefined;
  const about = isBlock
    ? [plural(count, "node"), time && `${time} in all`, bytes]
    : [type, bytes, `id ${id}`];
  return [
    name || "(no name)",
    about.filter(Boolean).join(" · "),
    value,
    isBlock && (kind === "frame" ? "double click to close" : "double click to open"),
    crit && "on the critical path",
    hidden > 0 && `${plural(hidden, "dependency", "dependencies")} not drawn: double click to centre`,
  ].filter(Boolean);
}

/**
 * Show what is known of a node beside it, or nothing.
 * @param {Elements | null} node
 */
export function showTip(node) {
  const box = byId("graph-tip"), canvas = byId("graph-canvas");
  if (!box || !canvas) return;
  box.hidden = !node;
  if (!node) return;
  box.textContent = describeNode(node.data()).join("\n");
  const { x1, y1, y2 } = node.renderedBoundingBox();
  box.style.left = `${Math.max(4, Math.min(x1, canvas.clientWidth - box.offsetWidth - 4))}px`;
  const below = y2 + 8;
  const isBelow = below + box.offsetHeight <= canvas.clientHeight;
  box.style.top = `${isBelow ? below : Math.max(4, y1 - box.offsetHeight - 8)}px`;
}

/**
 * Mark a node that the pointer enters or leaves.
 * @param {Elements} node
 * @param {boolean} isOver
 */
export function markHover(node, isOver) {
  node.toggleClass("cs-over", isOver);
  node.connectedEdges().toggleClass("cs-over", isOver);
  showTip(isOver ? node : null);
  const canvas = byId("graph-canvas");
  if (canvas) canvas.style.cursor = isOver ? "pointer" : "";
}
