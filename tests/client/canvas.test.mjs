/** What canvases share: colours, frames, and the pen that writes SVG. */

import assert from "node:assert/strict";
import test from "node:test";

import {
  drawSvg, escapeXml, formatRgb, makeFrames, mixRgb, parseRgb, pickInk,
} from "../../assets/base/canvas.mjs";

test("colours are read, mixed, and written upon", () => {
  assert.deepEqual(parseRgb(" #0a10ff"), [10, 16, 255]);
  assert.deepEqual(parseRgb("tomato"), [128, 128, 128]);
  assert.deepEqual(mixRgb([0, 100, 200], [100, 0, 200], 0.25), [25, 75, 200]);
  assert.equal(formatRgb([1, 2, 3]), "rgb(1,2,3)");
  assert.deepEqual([[0, 0, 0], [255, 255, 255]].map(pickInk), ["#ffffff", "#0d1014"]);
});

test("a frame is asked for once, however often something changes", (context) => {
  const waiting = [], seen = [];
  globalThis.window = { requestAnimationFrame: (act) => waiting.push(act) };
  context.after(() => delete globalThis.window);
  const draw = makeFrames((now) => seen.push(now));
  draw();
  draw();
  assert.equal(waiting.length, 1);
  waiting[0](16);
  draw();
  assert.deepEqual([seen, waiting.length], [[16], 2]);
});

test("what a pen draws becomes SVG, with its state saved and restored", () => {
  const svg = drawSvg(40, 30, (pen) => {
    pen.save();
    pen.beginPath();
    pen.rect(1, 2, 3, 4);
    pen.clip();
    pen.fillStyle = "#123456";
    pen.globalAlpha = 0.5;
    pen.fillRect(1.006, 2, -3, 4);
    pen.restore();
    pen.textAlign = "right";
    pen.fillText("a < b", 5, 6);
    pen.setLineDash([4, 3]);
    pen.beginPath();
    pen.moveTo(0, 0);
    pen.lineTo(9.999, 1);
    pen.stroke();
  }, "#ffffff");
  assert.match(svg, /^<svg xmlns="[^"]+" width="40" height="30" viewBox="0 0 40 30">/);
  assert.match(svg, /<clipPath id="c0"><path d="M1 2h3v4h-3z"\/><\/clipPath>/);
  assert.match(svg, /<rect x="1.01" y="2" width="0" height="4" fill="#123456" opacity="0.5"\/>\n<\/g>/);
  assert.match(svg, /text-anchor="end".* fill="#ffffff">a &lt; b<\/text>/);
  assert.match(svg, /<path d="M0 0L10 1" fill="none" stroke="#000000" .* stroke-dasharray="4 3"/);
});

test("a text that would break the XML does not", () => {
  assert.equal(escapeXml('<a href="b">&\u0000'), "&lt;a href=&quot;b&quot;&gt;&amp;\ufffd");
});
