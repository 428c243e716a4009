/** The topology of a simulated system as SVG: studio/figures/drawing.py says where its shapes lie. */

import { svgElement } from "../base/dom.mjs";

/**
 * @typedef {{ kind: "rect" | "line" | "path" | "text", at: number[], look: string, d?: string, text?: string,
 *   width?: number, title?: string }} Shape
 * @typedef {{ width: number, height: number, sentence: string, shapes: Shape[] }} Drawing
 */

/** How far a small drawing is enlarged. */
const LARGEST = 1.7;
const WIDTH = 370, HEIGHT = 150, TEXT = 11;

/**
 * @param {Drawing} drawing
 * @returns {SVGSVGElement}
 */
export function drawTopology({ width, height, sentence, shapes }) {
  const about = { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": sentence };
  const svg = svgElement("svg", about, ...shapes.map(drawShape));
  svg.style.maxWidth = `${width * LARGEST}px`;
  svg.style.height = `${Math.min(height * LARGEST, HEIGHT)}px`;
  // Texts are as large on the page however much the drawing is enlarged or made smaller.
  const scale = Math.min(LARGEST, WIDTH / width, HEIGHT / height);
  svg.style.fontSize = `${TEXT / scale}px`;
  return svg;
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
