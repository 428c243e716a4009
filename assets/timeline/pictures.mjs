/* Crowded and folded rows as lines of pixels, a picture for each batch: a row costs as much as a bar. */

import { makePicture, mixRgb } from "../base/canvas.mjs";
import { COLLECTIVE, HOST, RECEIVE, SEND, WAITING } from "./chart.mjs";

/** @import { Rgb } from "../base/canvas.mjs" */
/** @import { Chart } from "./chart.mjs" */
/** @import { Look } from "./look.mjs" */
/** @import { Batch, TileData } from "./tiles.mjs" */

/** Lines of pixels of a row: hatches need some. */
export const LINES = 4;
const FAINTEST = 36; /* least alpha of a bin, so that hardly busy ones are visible */
const PERIOD = 8; /* pixels from stroke to stroke of a hatch, over bars; half as many over bins */
const STROKE = 0.45; /* of the ink in the strokes over messages */
const PALE = 110; /* alpha of the strokes over bubbles, which have no colour else */

/**
 * Bins as pixels, their colours mixed by how busy each was with what; hatched where most of it waited or was
 * a message.
 * @param {Batch} batch @param {Chart} chart @param {Look} look
 */
export function paintBins(batch, chart, look) {
  if (batch.bins?.look === look) return batch.bins.canvas;
  const { bins } = chart, { data } = batch;
  const { canvas, pen, pixels } = startPicture(bins, data.binned.length * LINES);
  batch.strips.forEach((strips, line) => {
    const shade = chart.shade[batch.rows[data.binned[line]]], start = line * LINES * bins * 4;
    const seen = strips.filter((strip) => !look.hidden[data.strip_category[strip] % WAITING]);
    const shown = seen.filter((strip) => data.strip_category[strip] < WAITING);
    const colours = shown.map((strip) => look.colours[data.strip_category[strip]][shade]);
    mixLine(pixels.data, start, bins, data.fraction, shown, colours);
    for (let copy = 1; copy < LINES; copy++) {
      pixels.data.copyWithin(start + copy * bins * 4, start, start + bins * 4);
    }
    hatchBins(pixels.data, start, bins, data, seen, look, shade);
  });
  pen.putImageData(pixels, 0, 0);
  batch.bins = { canvas, look };
  return canvas;
}

/**
 * Hatch the bins of a row by what most of their time was.
 * @param {Uint8ClampedArray} pixels @param {number} start of the row @param {number} bins
 * @param {TileData} data
 * @param {number[]} strips @param {Look} look @param {number} shade
 */
function hatchBins(pixels, start, bins, data, strips, look, shade) {
  const { fraction, strip_category: kinds } = data;
  /** @param {number} kind */
  const stripOf = (kind) => strips.find((strip) => kinds[strip] === kind) ?? -1;
  const waits = Math.max(stripOf(COLLECTIVE + WAITING), stripOf(HOST + WAITING));
  const bubble = Math.max(stripOf(RECEIVE + WAITING), stripOf(SEND + WAITING));
  const [send, receive] = [SEND, RECEIVE].map(stripOf);
  if (Math.max(waits, bubble, send, receive) < 0) return;
  const plain = strips.filter((strip) => kinds[strip] < WAITING);
  const message = look.colours[RECEIVE][shade], ink = look.inkOf[RECEIVE][shade];
  for (let bin = 0; bin < bins; bin++) {
    /** @param {number} strip */
    const share = (strip) => (strip < 0 ? 0 : fraction[strip * bins + bin]);
    const sum = plain.reduce((total, strip) => total + share(strip), 0);
    const isBubble = share(bubble) > sum, isWaiting = share(waits) * 2 > sum;
    const isMessage = !isBubble && (share(send) + share(receive)) * 2 > sum;
    if (!isBubble && !isWaiting && !isMessage) continue;
    const falls = isBubble || (isMessage && share(receive) > share(send));
    for (let line = 0; line < LINES; line++) {
      if (!isStroke(bin, line, falls, PERIOD / 2, isWaiting ? 2 : 1)) continue;
      const at = start + (line * bins + bin) * 4;
      if (isBubble) pixels.set([...message.map(Math.round), PALE], at);
      else if (isWaiting) pixels[at + 3] *= 0.25;
      else pixels.set(mixRgb(message, ink, STROKE).map(Math.round), at);
    }
  }
}

/** Whether a pixel belongs to a stroke. @param {number} x @param {number} y @param {boolean} falls
 * @param {number} period @param {number} wide */
function isStroke(x, y, falls, period, wide) {
  return (x + (falls ? -y : y) * (period / LINES) + period * LINES) % period < wide;
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
  const { canvas, pen, pixels } = startPicture(wide, rows.length * LINES);
  const words = new Uint32Array(pixels.data.buffer);
  for (let line = 0; line < rows.length; line++) {
    for (let bar = data.bars[line]; bar < data.bars[line + 1]; bar++) {
      const category = data.category[bar];
      if (look.hidden[category]) continue;
      const shade = chart.shade[rows[line]], colour = look.colours[category][shade];
      const first = Math.max(0, Math.floor(data.start[bar] * scale));
      let end = Math.min(wide, Math.max(Math.round(data.end[bar] * scale), first + 1));
      if (end - first > 6) end -= 2; /* the gap between neighbours */
      const begun = Math.min(end, Math.max(first, Math.round((data.start[bar] + data.waits[bar]) * scale)));
      const fill = wordOf(colour, 255), isReceive = category === RECEIVE;
      const isMessage = isReceive || category === SEND;
      const row = { words, wide, top: line * LINES };
      if (begun > first && data.waits[bar]) {
        if (isMessage) fillHatched(row, first, begun, 0, wordOf(colour, PALE), true, 2);
        else fillHatched(row, first, begun, fill, wordOf(colour, 50), false, PERIOD / 2);
      }
      const from = data.waits[bar] ? begun : first;
      if (isMessage) {
        const stroke = wordOf(mixRgb(colour, look.inkOf[category][shade], STROKE), 255);
        fillHatched(row, from, end, fill, stroke, isReceive, 2);
      } else fillHatched(row, from, end, fill, fill, false, 0);
    }
  }
  pen.putImageData(pixels, 0, 0);
  batch.thin = { canvas, look };
  return canvas;
}

/** @param {Rgb} colour @param {number} alpha */
function wordOf(colour, alpha) {
  const [red, green, blue] = colour.map(Math.round);
  return ((alpha << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/**
 * Fill a part of a row with a colour and strokes over it.
 * @param {{words: Uint32Array, wide: number, top: number}} row @param {number} first @param {number} end
 * @param {number} fill @param {number} stroke @param {boolean} falls
 * @param {number} width of a stroke, 0 for none
 */
function fillHatched({ words, wide, top }, first, end, fill, stroke, falls, width) {
  for (let line = 0; line < LINES; line++) {
    const start = (top + line) * wide;
    words.fill(fill, start + first, start + end);
    if (!width) continue;
    for (let x = first; x < end; x++) if (isStroke(x, line, falls, PERIOD, width)) words[start + x] = stroke;
  }
}

/** @param {number} wide @param {number} high */
function startPicture(wide, high) {
  const { canvas, pen } = makePicture(wide, high);
  return { canvas, pen, pixels: pen.createImageData(wide, Math.max(1, high)) };
}
