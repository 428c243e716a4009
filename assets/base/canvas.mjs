/* The base of every canvas: size, frames, theme colours, pointer positions, and saving as PNG or SVG. */

/** @typedef {[number, number, number]} Rgb */
/** @typedef {CanvasRenderingContext2D["fillStyle"]} Style */

/**
 * What drawing code may use of a canvas context; SvgPen offers the same.
 * @typedef {Pick<CanvasRenderingContext2D, "save" | "restore" | "beginPath" | "moveTo" | "lineTo" | "rect"
 *   | "bezierCurveTo" | "arc" | "clip" | "fill" | "stroke" | "setLineDash" | "clearRect" | "fillRect"
 *   | "strokeRect" | "fillText" | "measureText" | "drawImage" | "fillStyle" | "strokeStyle" | "lineWidth"
 *   | "globalAlpha" | "font" | "textAlign" | "textBaseline" | "imageSmoothingEnabled">} Pen
 */

/* ---- theme and colours ---- */

/** @returns {string} "dark" or "light", as the page is shown */
export function readScheme() {
  return document.documentElement.getAttribute("data-mantine-color-scheme") === "dark" ? "dark" : "light";
}

/**
 * Read theme colours and fonts: readTokens("bg", "text") → {bg: "#…", text: "#…"} from --cs-bg and --cs-text.
 * @template {string} Name
 * @param {...Name} names
 * @returns {Record<Name, string>}
 */
export function readTokens(...names) {
  const style = getComputedStyle(document.documentElement);
  const values = names.map((name) => [name, style.getPropertyValue("--cs-" + name).trim()]);
  return Object.fromEntries(values);
}

/**
 * The three parts of a colour written as #rrggbb; grey for anything else.
 * @param {string} text @returns {Rgb}
 */
export function parseRgb(text) {
  const parts = /^#(..)(..)(..)$/.exec(text.trim());
  return parts ? [parseInt(parts[1], 16), parseInt(parts[2], 16), parseInt(parts[3], 16)] : [128, 128, 128];
}

/**
 * The colour that lies at a share of the way from one to the other.
 * @param {Rgb} from @param {Rgb} to @param {number} share @returns {Rgb}
 */
export function mixRgb(from, to, share) {
  const [red, green, blue] = from.map((value, part) => Math.round(value + (to[part] - value) * share));
  return [red, green, blue];
}

/** @param {Rgb} colour */
export function formatRgb(colour) {
  return "rgb(" + colour.join(",") + ")";
}

/** @param {Rgb} colour */
function measureLuminance(colour) {
  const [red, green, blue] = colour.map((value) => {
    const part = value / 255;
    return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** White or near-black, whichever can be read on a colour. @param {Rgb} ground */
export function pickInk(ground) {
  const light = measureLuminance(ground) + 0.05;
  return 1.05 / light >= light / 0.055 ? "#ffffff" : "#0d1014";
}

/** What a pattern repeats: SvgPen needs it. @type {WeakMap<object, HTMLCanvasElement>} */
const pictures = new WeakMap();

/**
 * A colour with diagonal lines across.
 * @param {string} colour @param {string} stroke @param {boolean} falling
 * @param {number} [alpha] of the lines
 * @returns {Style}
 */
export function makeHatch(colour, stroke, falling, alpha = 0.3) {
  const { canvas, pen } = makePicture(8, 8);
  pen.fillStyle = colour;
  pen.fillRect(0, 0, 8, 8);
  pen.strokeStyle = stroke;
  pen.lineWidth = 1.2;
  pen.globalAlpha = alpha;
  pen.beginPath();
  for (let x = -8; x <= 8; x += 8) {
    pen.moveTo(x - 1, falling ? -1 : 9);
    pen.lineTo(x + 9, falling ? 9 : -1);
  }
  pen.stroke();
  const pattern = pen.createPattern(canvas, "repeat");
  if (!pattern) return colour;
  pictures.set(pattern, canvas);
  return pattern;
}

/* ---- canvases ---- */

/**
 * The context of a canvas.
 * @param {HTMLCanvasElement} canvas @param {CanvasRenderingContext2DSettings} [settings]
 */
export function penOf(canvas, settings) {
  const pen = canvas.getContext("2d", settings);
  if (!pen) throw new Error("The browser offers no canvas.");
  return pen;
}

/**
 * A canvas that is not on the page, of a size in pixels, and its context.
 * @param {number} wide @param {number} high
 */
export function makePicture(wide, high) {
  const canvas = document.createElement("canvas");
  canvas.width = wide;
  canvas.height = high;
  return { canvas, pen: penOf(canvas) };
}

/**
 * A function that runs `render(now)` once in the next frame, however often it is called before.
 * @param {(now: number) => void} render
 */
export function makeFrames(render) {
  let waiting = 0;
  return () => {
    if (waiting) return;
    waiting = window.requestAnimationFrame((now) => {
      waiting = 0;
      render(now);
    });
  };
}

/** A canvas on the page: it takes the size it is given in the screen's pixels, and paints once a frame. */
export class Surface {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {(now: number) => void} render called in a frame that was asked for by draw()
   * @param {CanvasRenderingContext2DSettings} [settings] such as {alpha: false}
   */
  constructor(canvas, render, settings) {
    this.canvas = canvas;
    this.pen = penOf(canvas, settings);
    this.ratio = 1;
    this.wide = 0;
    this.high = 0;
    /** Ask for a frame. */
    this.draw = makeFrames(render);
  }

  /**
   * Take a size on the page. A new size empties the canvas.
   * @param {number} wide @param {number} high
   * @returns {boolean} whether size or pixel ratio changed
   */
  fit(wide, high) {
    this.ratio = window.devicePixelRatio || 1;
    this.wide = wide;
    this.high = high;
    const pixels = [Math.round(wide * this.ratio), Math.round(high * this.ratio)];
    const changed = this.canvas.width !== pixels[0] || this.canvas.height !== pixels[1];
    if (changed) {
      [this.canvas.width, this.canvas.height] = pixels;
      this.canvas.style.width = wide + "px";
      this.canvas.style.height = high + "px";
    }
    this.pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    return changed;
  }

  /**
   * Where on the canvas a pointer is: the start of hit testing.
   * @param {{clientX: number, clientY: number}} event @returns {[number, number]}
   */
  locate(event) {
    const { left, top } = this.canvas.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  }

  /** Where on the page a point of the canvas is. @param {number} x @param {number} y */
  place(x, y) {
    const { left, top } = this.canvas.getBoundingClientRect();
    return { x: left + x, y: top + y };
  }

  /** What is shown, as a PNG. */
  toPng() {
    return makeBlob(this.canvas);
  }

  /**
   * What `paint` draws, as the text of an SVG of this size.
   * @param {(pen: Pen) => void} paint
   * @param {string} [ground] colour below everything
   */
  toSvg(paint, ground) {
    return drawSvg(this.wide, this.high, paint, ground);
  }
}

/** @param {HTMLCanvasElement} canvas @returns {Promise<Blob>} */
export function makeBlob(canvas) {
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the picture is too large"))));
  });
}

/**
 * What `paint` draws, as a PNG of a size of its own.
 * @param {number} wide @param {number} high
 * @param {number} ratio pixels for one of the page
 * @param {(pen: Pen) => void} paint
 */
export function drawPng(wide, high, ratio, paint) {
  const { canvas, pen } = makePicture(Math.round(wide * ratio), Math.round(high * ratio));
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  paint(pen);
  return makeBlob(canvas);
}

/**
 * What `paint` draws, as the text of an SVG.
 * @param {number} wide @param {number} high @param {(pen: Pen) => void} paint
 * @param {string} [ground] colour below everything
 */
export function drawSvg(wide, high, paint, ground) {
  const pen = new SvgPen(wide, high);
  if (ground) {
    pen.fillStyle = ground;
    pen.fillRect(0, 0, wide, high);
  }
  paint(pen);
  return pen.finish();
}

/* ---- SVG ---- */

const UNLAWFUL = /[^\t\n\r\x20-\ud7ff\ue000-\ufffd]/g;

/** Text that may stand in XML, in an attribute too. @param {unknown} text */
export function escapeXml(text) {
  const lawful = String(text).replace(UNLAWFUL, "\ufffd");
  return lawful.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");
}

/** @param {number} value */
function shorten(value) {
  return String(Math.round(value * 100) / 100);
}

const ANCHORS = { left: "start", start: "start", center: "middle", right: "end", end: "end" };

/** @type {CanvasRenderingContext2D | null} */
let ruler = null;

/** The size of a text, measured by a canvas that is never shown. @param {string} font @param {string} text */
function measureText(font, text) {
  ruler ??= makePicture(1, 1).pen;
  ruler.font = font;
  return ruler.measureText(text);
}

function startState() {
  return {
    fillStyle: /** @type {Style} */ ("#000000"),
    strokeStyle: /** @type {Style} */ ("#000000"),
    lineWidth: 1,
    globalAlpha: 1,
    font: "11px sans-serif",
    textAlign: /** @type {CanvasTextAlign} */ ("left"),
    dash: /** @type {number[]} */ ([]),
  };
}

/** A pen that writes SVG in place of pixels. Texts stay texts, placed by their middle as all texts are. */
class SvgPen {
  /** @param {number} wide @param {number} high */
  constructor(wide, high) {
    this.wide = wide;
    this.high = high;
    /** @type {string[]} */
    this.parts = [];
    /** @type {string[]} */
    this.defs = [];
    /** @type {Map<Style, string>} */
    this.patterns = new Map();
    this.path = "";
    this.state = startState();
    /** @type {{state: ReturnType<typeof startState>, depth: number}[]} */
    this.saved = [];
    this.depth = 0;
    this.textBaseline = /** @type {CanvasTextBaseline} */ ("middle");
    this.imageSmoothingEnabled = false;
  }

  get fillStyle() { return this.state.fillStyle; }
  set fillStyle(value) { this.state.fillStyle = value; }
  get strokeStyle() { return this.state.strokeStyle; }
  set strokeStyle(value) { this.state.strokeStyle = value; }
  get lineWidth() { return this.state.lineWidth; }
  set lineWidth(value) { this.state.lineWidth = value; }
  get globalAlpha() { return this.state.globalAlpha; }
  set globalAlpha(value) { this.state.globalAlpha = value; }
  get font() { return this.state.font; }
  set font(value) { this.state.font = value; }
  get textAlign() { return this.state.textAlign; }
  set textAlign(value) { this.state.textAlign = value; }

  save() {
    this.saved.push({ state: { ...this.state }, depth: this.depth });
  }

  restore() {
    const before = this.saved.pop();
    if (!before) return;
    for (; this.depth > before.depth; this.depth--) this.parts.push("</g>");
    this.state = before.state;
  }

  beginPath() {
    this.path = "";
  }

  /** @param {number} x @param {number} y */
  moveTo(x, y) {
    this.path += "M" + shorten(x) + " " + shorten(y);
  }

  /** @param {number} x @param {number} y */
  lineTo(x, y) {
    this.path += "L" + shorten(x) + " " + shorten(y);
  }

  /** @param {...number} points */
  bezierCurveTo(...points) {
    this.path += "C" + points.map(shorten).join(" ");
  }

  /** @param {number} x @param {number} y @param {number} wide @param {number} high */
  rect(x, y, wide, high) {
    this.path += "M" + shorten(x) + " " + shorten(y) + "h" + shorten(wide) + "v" + shorten(high);
    this.path += "h" + shorten(-wide) + "z";
  }

  /** Whole circles only. @param {number} x @param {number} y @param {number} r */
  arc(x, y, r) {
    const half = "a" + r + " " + r + " 0 1 0 ";
    this.path += "M" + shorten(x - r) + " " + shorten(y) + half + 2 * r + " 0" + half + -2 * r + " 0";
  }

  clip() {
    const id = "c" + this.defs.length;
    this.defs.push(`<clipPath id="${id}"><path d="${this.path}"/></clipPath>`);
    this.parts.push(`<g clip-path="url(#${id})">`);
    this.depth++;
  }

  /** @param {Iterable<number>} dash */
  setLineDash(dash) {
    this.state.dash = Array.from(dash);
  }

  clearRect() { /* Nothing lies below. */ }

  fill() {
    if (this.path) this.parts.push(`<path d="${this.path}" ${this.#paint()}/>`);
  }

  stroke() {
    if (this.path) this.parts.push(`<path d="${this.path}" ${this.#line()}/>`);
  }

  /** @param {number} x @param {number} y @param {number} wide @param {number} high */
  fillRect(x, y, wide, high) {
    this.parts.push(`<rect ${box(x, y, wide, high)} ${this.#paint()}/>`);
  }

  /** @param {number} x @param {number} y @param {number} wide @param {number} high */
  strokeRect(x, y, wide, high) {
    this.parts.push(`<rect ${box(x, y, wide, high)} ${this.#line()}/>`);
  }

  /** @param {string} text */
  measureText(text) {
    return measureText(this.font, text);
  }

  /** @param {string} text @param {number} x @param {number} y */
  fillText(text, x, y) {
    const anchor = this.textAlign === "left" ? "" : ` text-anchor="${ANCHORS[this.textAlign]}"`;
    const style = `style="font:${escapeXml(this.font)}" dominant-baseline="central" xml:space="preserve"`;
    const start = `<text x="${shorten(x)}" y="${shorten(y)}"${anchor} ${style}`;
    this.parts.push(`${start} ${this.#paint()}>${escapeXml(text)}</text>`);
  }

  /**
   * The three forms a canvas knows: at a point, into a box, and part of a picture into a box.
   * @param {CanvasImageSource} image @param {...number} numbers
   */
  drawImage(image, ...numbers) {
    const size = /** @type {{width: number, height: number}} */ (/** @type {unknown} */ (image));
    const whole = [0, 0, size.width, size.height];
    if (numbers.length === 2) numbers = [...whole, ...numbers, size.width, size.height];
    if (numbers.length === 4) numbers = [...whole, ...numbers];
    const [left, top, across, down, x, y, wide, high] = numbers;
    const { canvas, pen } = makePicture(Math.max(1, across), Math.max(1, down));
    pen.drawImage(image, left, top, across, down, 0, 0, canvas.width, canvas.height);
    const look = 'preserveAspectRatio="none" style="image-rendering:pixelated"';
    const href = canvas.toDataURL();
    this.parts.push(`<image ${box(x, y, wide, high)} ${look} href="${href}"${this.#opacity()}/>`);
  }

  /** The text of the whole picture. */
  finish() {
    const size = `width="${this.wide}" height="${this.high}" viewBox="0 0 ${this.wide} ${this.high}"`;
    const defs = `<defs>${this.defs.join("")}</defs>`;
    return `<svg xmlns="http://www.w3.org/2000/svg" ${size}>${defs}${this.parts.join("\n")}</svg>\n`;
  }

  #opacity() {
    return this.globalAlpha < 1 ? ` opacity="${shorten(this.globalAlpha)}"` : "";
  }

  #paint() {
    return `fill="${this.#name(this.fillStyle)}"${this.#opacity()}`;
  }

  #line() {
    const dash = this.state.dash.length ? ` stroke-dasharray="${this.state.dash.join(" ")}"` : "";
    const stroke = `fill="none" stroke="${this.#name(this.strokeStyle)}" stroke-width="${this.lineWidth}"`;
    return stroke + dash + this.#opacity();
  }

  /** What a style is called in SVG: a colour by its name, a pattern by an address. @param {Style} style */
  #name(style) {
    if (typeof style === "string") return escapeXml(style);
    let name = this.patterns.get(style);
    if (!name) {
      const id = "p" + this.patterns.size;
      const picture = pictures.get(style);
      const image = picture ? `<image width="8" height="8" href="${picture.toDataURL()}"/>` : "";
      const size = 'width="8" height="8" patternUnits="userSpaceOnUse"';
      this.defs.push(`<pattern id="${id}" ${size}>${image}</pattern>`);
      name = `url(#${id})`;
      this.patterns.set(style, name);
    }
    return name;
  }
}

/** @param {number} x @param {number} y @param {number} wide @param {number} high */
function box(x, y, wide, high) {
  const size = `width="${shorten(Math.max(0, wide))}" height="${shorten(Math.max(0, high))}"`;
  return `x="${shorten(x)}" y="${shorten(y)}" ${size}`;
}
