/* Crowded and folded rows as lines of pixels, a picture for each batch: a row costs as much as a bar. */

import { makePicture } from "../base/canvas.mjs";

/** @import { Chart } from "./chart.mjs" */
/** @import { Look } from "./look.mjs" */
/** @import { Batch } from "./tiles.mjs" */

const FAINTEST = 36; /* least alpha of a bin, so that hardly busy ones are visible */

/**
 * Bins as pixels, their colours mixed by how busy each was with what.
 * @param {Batch} batch @param {Chart} chart @param {Look} look
 */
export function paintBins(batch, chart, look) {
  if (batch.bins?.look === look) return batch.bins.canvas;
  const { canvas, pen, pixels } = startPicture(chart.bins, batch.data.binned.length);
  batch.strips.forEach((strips, line) => {
    const shade = chart.shade[batch.rows[batch.data.binned[line]]];
    const shown = strips.filter((strip) => !look.hidden[batch.data.strip_category[strip]]);
    const colours = shown.map((strip) => look.colours[batch.data.strip_category[strip]][shade]);
    mixLine(pixels.data, line * chart.bins * 4, chart.bins, batch.data.fraction, shown, colours);
  });
  pen.putImageData(pixels, 0, 0);
  batch.bins = { canvas, look };
  return canvas;
}

/**
 * Mix a line of pixels of the fractions of several strips.
 * @param {Uint8ClampedArray} pixels red, green, blue and alpha of each
 * @param {number} start of the line
 * @param {number} bins
 * @param {Uint8Array} fraction of all strips
 * @param {number[]} strips
 * @param {import("../base/canvas.mjs").Rgb[]} colours of the strips
 */
export function mixLine(pixels, start, bins, fraction, strips, colours) {
  for (let bin = 0; bin < bins; bin++) {
    let red = 0, green = 0, blue = 0, sum = 0;
    for (let index = 0; index < strips.length; index++) {
      const share = fraction[strips[index] * bins + bin];
      if (!share) continue;
      const colour = colours[index];
      red += share * colour[0];
      green += share * colour[1];
      blue += share * colour[2];
      sum += share;
    }
    if (!sum) continue;
    const to = start + bin * 4;
    pixels[to] = red / sum;
    pixels[to + 1] = green / sum;
    pixels[to + 2] = blue / sum;
    pixels[to + 3] = FAINTEST + (Math.min(sum, 255) * (255 - FAINTEST)) / 255;
  }
}

/**
 * The bars of folded rows, two pixels for a bin.
 * @param {Batch} batch @param {Chart} chart @param {Look} look
 */
export function paintThin(batch, chart, look) {
  if (batch.thin?.look === look) return batch.thin.canvas;
  const { data, rows } = batch, wide = chart.bins * 2, scale = wide / chart.tileSpan(batch.level);
  const { canvas, pen, pixels } = startPicture(wide, rows.length);
  const words = new Uint32Array(pixels.data.buffer);
  for (let line = 0; line < rows.length; line++) {
    for (let bar = data.bars[line]; bar < data.bars[line + 1]; bar++) {
      if (look.hidden[data.category[bar]]) continue;
      const colour = look.colours[data.category[bar]][chart.shade[rows[line]]];
      const first = Math.max(0, Math.floor(data.start[bar] * scale));
      let end = Math.min(wide, Math.max(Math.round(data.end[bar] * scale), first + 1));
      if (end - first > 6) end -= 2; /* the gap between neighbours */
      const word = (255 << 24) | (colour[2] << 16) | (colour[1] << 8) | colour[0];
      words.fill(word, line * wide + first, line * wide + end);
    }
  }
  pen.putImageData(pixels, 0, 0);
  batch.thin = { canvas, look };
  return canvas;
}

/** @param {number} wide @param {number} high */
function startPicture(wide, high) {
  const { canvas, pen } = makePicture(wide, high);
  return { canvas, pen, pixels: pen.createImageData(wide, Math.max(1, high)) };
}
