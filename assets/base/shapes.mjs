/** Drawings as SVG: studio/figures/drawing.py says what shapes there are, the stylesheet how they look. */

import { svgElement } from "./dom.mjs";

/**
 * @typedef {{ kind: "rect" | "line" | "path" | "text", at: number[], look: string, d?: string, text?: string,
 *   width?: number, title?: string }} Shape
 * @typedef {{ width: number, height: number, sentence: string, shapes: Shape[] }} Drawing
 */

/**
 * @param {Drawing} drawing
 * @returns {SVGSVGElement}
 */
export function drawShapes({ width, height, sentence, shapes }) {
  const about = { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": sentence };
  return svgElement("svg", about, ...shapes.map(drawShape));
}

/**
 * @param {Shape} shape
 * @returns {SVGElement}
 */
function drawShape(shape) {
  const node = elementOf(shape);
  node.setAttribute("class", shape.look);
  if (shape.width) node.style.strokeWidth = String(shape.width);
  if (shape.title) node.append(svgElement("title", {}, shape.title));
  return node;
}

/** @param {Shape} shape @returns {SVGElement} */
function elementOf({ kind, at, d, text = "" }) {
  const [x, y, right, bottom] = at ?? [];
  if (kind === "rect") return svgElement("rect", { x, y, width: right, height: bottom, rx: 3 });
  if (kind === "line") return svgElement("line", { x1: x, y1: y, x2: right, y2: bottom });
  if (kind === "path") return svgElement("path", { d });
  return svgElement("text", { x, y }, text);
}
