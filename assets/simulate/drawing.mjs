/** The topology of a simulated system as SVG. */

import { drawShapes } from "../base/shapes.mjs";

/** @import { Drawing } from "../base/shapes.mjs" */

/** How far a small drawing is enlarged. */
const LARGEST = 1.7;
const WIDTH = 370, HEIGHT = 150, TEXT = 11;

/**
 * @param {Drawing} drawing
 * @returns {SVGSVGElement}
 */
export function drawTopology(drawing) {
  const { width, height } = drawing;
  const svg = drawShapes(drawing);
  svg.style.maxWidth = `${width * LARGEST}px`;
  svg.style.height = `${Math.min(height * LARGEST, HEIGHT)}px`;
  // Texts are as large on the page however much the drawing is enlarged or made smaller.
  const scale = Math.min(LARGEST, WIDTH / width, HEIGHT / height);
  svg.style.fontSize = `${TEXT / scale}px`;
  return svg;
}
