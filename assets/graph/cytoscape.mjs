/* What the Graph page uses of Cytoscape, and what it takes from dash-cytoscape. */

import { byId } from "../base/dom.mjs";

/** @import { Point } from "./geometry.mjs" */

/**
 * What the server says of a drawing: `about` in studio/pages/graph/page.py.
 * @typedef {object} Drawn
 * @property {string} [key] of all that the drawing depends on
 * @property {number} [nodes]
 * @property {string | null} [first] its first node
 * @property {string | null} [centre] the node it is about
 * @property {string} [mode]
 * @property {string} [by]
 * @property {string} [colour]
 * @property {string | null} [against] the run that durations are compared with
 * @property {string[]} [opened] blocks
 */

/**
 * What the server says of a node, a block or the frame of an open block.
 * @typedef {object} NodeData
 * @property {string} id
 * @property {string} kind
 * @property {string} [name]
 * @property {string} [type]
 * @property {string} [bytes]
 * @property {string} [time]
 * @property {string} [value]
 * @property {string} [block] path of the block that this is or frames
 * @property {string} [inside] path of the block around
 * @property {number} [count] nodes of a block
 * @property {[string, number][]} [parts] kinds of a block's nodes, with their shares
 * @property {string} [hue] a colour other than that of its kind
 * @property {boolean} [crit] whether on the critical path
 * @property {number} [hidden] dependencies that are not drawn
 * @property {[number, number]} [m] where it is on the map
 * @property {number} [w]
 * @property {number} [h]
 * @property {string} [stops] of a block's bands
 * @property {string} [colours] of a block's bands
 * @property {Drawn} [drawing] of the first node: what the drawing is
 */

/**
 * One element, or several.
 * @typedef {object} Elements
 * @property {number} length
 * @property {() => string} id
 * @property {{ (): NodeData, <K extends keyof NodeData>(name: K): NodeData[K], (patch:
 *   Partial<NodeData>): void }} data
 * @property {(names: string) => void} removeData
 * @property {{ (name: string): unknown, (name: string, value: unknown): void }} scratch
 * @property {{ (): Point, (axis: "x" | "y"): number }} position
 * @property {() => number} width
 * @property {() => number} height
 * @property {() => { x1: number, x2: number, y1: number, y2: number }} renderedBoundingBox
 * @property {() => boolean} isNode
 * @property {(selector?: string) => Elements} incomers
 * @property {(selector?: string) => Elements} outgoers
 * @property {() => Elements} closedNeighborhood
 * @property {() => Elements} connectedEdges
 * @property {(others: Elements) => Elements} difference
 * @property {(selector: string) => Elements} not
 * @property {(matches: (element: Elements) => boolean) => Elements} filter
 * @property {(act: (element: Elements) => void) => void} forEach
 * @property {<T>(turn: (element: Elements) => T) => T[]} map
 * @property {(index: number) => Elements} eq
 * @property {(names: string) => Elements} addClass
 * @property {(names: string) => Elements} removeClass
 * @property {(names: string, on: boolean) => Elements} toggleClass
 */

/** @typedef {{ target: Elements | Cy }} CyEvent */

/**
 * @typedef {object} Cy
 * @property {() => boolean} destroyed
 * @property {(selector?: string) => Elements} nodes
 * @property {(selector?: string) => Elements} elements
 * @property {() => Elements} collection
 * @property {(id: string) => Elements} getElementById
 * @property {(act: () => void) => void} batch
 * @property {{ (): number, (zoom: number | { level: number, renderedPosition: Point }): void }} zoom
 * @property {() => Point} pan
 * @property {(by: Point) => void} panBy
 * @property {(view: { zoom: number, pan: Point }) => void} viewport
 * @property {(element: Elements) => void} center
 * @property {() => { x1: number, x2: number, y1: number, y2: number }} extent
 * @property {() => number} width
 * @property {() => number} height
 * @property {() => void} resize
 * @property {() => void} stop
 * @property {(move: { panBy?: Point, center?: { eles: Elements }, zoom?: number, duration: number }) =>
 *   void} animate
 * @property {{ (name: string): unknown, (name: string, value: unknown): void }} scratch
 * @property {{ (events: string, act: (event: CyEvent) => void): void,
 *   (events: string, selector: string, act: (event: { target: Elements }) => void): void }} on
 * @property {(events: string, selector?: string) => void} off
 * @property {() => { wheelSensitivity: number }} renderer
 * @property {(options: Record<string, unknown>) => Promise<Blob>} png
 */

const WHEEL_SENSITIVITY = 0.3;

/**
 * Return Cytoscape's drawing on the page, if there is one.
 * @returns {Cy | null}
 */
export function findCytoscape() {
  /** @type {(HTMLElement & { _cyreg?: { cy: Cy | null } }) | null} */
  const box = byId("graph-cy");
  const cy = box?._cyreg?.cy;
  return cy && !cy.destroyed() ? cy : null;
}

/**
 * End what dash-cytoscape reports to Dash: the window after every frame, all elements after every change,
 * everything
 * known of a node after every hover. Nobody asks for it, and each report draws the page anew.
 * @param {Cy} cy
 */
export function endReports(cy) {
  for (const name of ["viewport", "add", "remove", "dragfree"]) cy.off(name);
  for (const name of ["tap", "mouseover", "mouseout"]) {
    cy.off(name, "node");
    cy.off(name, "edge");
  }
  /* Set here because Cytoscape warns on the console about every sensitivity it is made with. */
  cy.renderer().wheelSensitivity = WHEEL_SENSITIVITY;
}
