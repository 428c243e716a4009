/** Where to look, what lies next to what, and how wide the bands of a block are. No DOM. */

/** @typedef {{ x: number, y: number }} Point */
/** @typedef {{ left: number, right: number, top: number, bottom: number }} Extent */

/** Zoom from which names can be read. */
export const READABLE = 0.75;

/** Zoom from which the short print of blocks and nodes is drawn. */
const PRINTED = 0.52;

/** What fits is enlarged to this zoom at most. */
const CLOSEST_FIT = 1.15;

/** Margin in pixels when fitting a view. */
const MARGIN = 24;

/** Pixels between the window's edge and a block that is moved into it. */
const EDGE = 8;

/** Spans on the map closer than this share of its width are drawn as one. */
const GAP = 0.002;

/**
 * Return what nodes cover, by their middles and sizes.
 * @param {Iterable<readonly [Point, number, number]>} nodes middle, width, height
 * @returns {Extent}
 */
export function measureExtent(nodes) {
  let left = Infinity, top = Infinity, right = -Infinity, bottom = -Infinity;
  for (const [{ x, y }, width, height] of nodes) {
    left = Math.min(left, x - width / 2);
    right = Math.max(right, x + width / 2);
    top = Math.min(top, y - height / 2);
    bottom = Math.max(bottom, y + height / 2);
  }
  return { left, right, top, bottom };
}

/**
 * Return the zoom at which an extent fits into a window.
 * @param {Extent} extent
 * @param {number} width
 * @param {number} height
 */
export function fitZoom({ left, right, top, bottom }, width, height) {
  const across = (width - 2 * MARGIN) / (right - left);
  const down = (height - 2 * MARGIN) / (bottom - top);
  return Math.min(across, down, CLOSEST_FIT);
}

/**
 * Return the zoom at which a drawing that is about no node begins: all of it, but a long narrow one only as
 * far as its print is drawn and its width fits.
 * @param {Extent} extent
 * @param {number} width
 * @param {number} height
 */
export function firstZoom(extent, width, height) {
  const across = (width - 2 * MARGIN) / (extent.right - extent.left);
  return Math.max(fitZoom(extent, width, height), Math.min(across, PRINTED));
}

/**
 * Return where to look at this zoom so that a drawing begins at the upper edge of the window, or is in its
 * middle where it fits.
 * @param {Extent} extent
 * @param {number} zoom
 * @param {number} height
 * @returns {Point}
 */
export function topOf({ left, right, top, bottom }, zoom, height) {
  const half = (height / 2 - MARGIN) / zoom;
  return { x: (left + right) / 2, y: Math.min((top + bottom) / 2, top + half) };
}

/**
 * Return where to look along one axis so that a place is in sight and as little as possible of the window
 * is empty.
 * @param {number} place
 * @param {number} low where the drawing begins
 * @param {number} high where it ends
 * @param {number} size pixels of the window
 */
export function centreOn(place, low, high, size) {
  const half = (size / 2 - MARGIN) / READABLE;
  return high - low < 2 * half ? (low + high) / 2 : Math.min(Math.max(place, low + half), high - half);
}

/**
 * Return by how much to move what leaves the window on the right or below; its beginning stays in the
 * window.
 * @param {number} start
 * @param {number} size
 * @param {number} room pixels of the window
 */
export function shiftInto(start, size, room) {
  return start + size > room - EDGE
    ? Math.max(room - EDGE - size - start, Math.min(0, EDGE - start))
    : 0;
}

/**
 * Return the index of the point nearest to another, sideways above all; -1 if there is none.
 * @param {readonly Point[]} points
 * @param {Point} from
 */
export function findNearest(points, from) {
  const gaps = points.map(({ x, y }) => Math.abs(x - from.x) + Math.abs(y - from.y) / 4);
  return gaps.indexOf(Math.min(...gaps));
}

/**
 * Return the index of the next point on the same height; -1 if there is none.
 * @param {readonly Point[]} points
 * @param {Point} from
 * @param {1 | -1} side to the right, or to the left
 */
export function findBeside(points, from, side) {
  let best = -1, least = Infinity;
  points.forEach(({ x, y }, index) => {
    const gap = (x - from.x) * side;
    if (Math.abs(y - from.y) <= 1 && gap > 0 && gap < least) {
      least = gap;
      best = index;
    }
  });
  return best;
}

/**
 * Return where the bands of a block begin and end, as Cytoscape takes them: two shares of its width for
 * each part.
 * @param {readonly (readonly [string, number])[]} parts kind and share
 */
export function bandStops(parts) {
  let start = 0;
  return parts.flatMap(([, share]) => {
    const stops = [start, start + share].map((stop) => `${Math.min(100, 100 * stop).toFixed(2)}%`);
    start += share;
    return stops;
  });
}

/**
 * Join spans that touch or nearly do.
 * @param {readonly (readonly [number, number])[]} spans
 */
export function mergeSpans(spans) {
  /** @type {[number, number][]} */
  const merged = [];
  for (const [start, end] of [...spans].sort((a, b) => a[0] - b[0])) {
    const last = merged.at(-1);
    if (last && start <= last[1] + GAP) last[1] = Math.max(last[1], end);
    else merged.push([start, end]);
  }
  return merged;
}

/**
 * Return a comma-separated list without an entry, or with it if it was not there.
 * @param {string | undefined} list
 * @param {string} entry
 */
export function toggleEntry(list, entry) {
  const entries = (list ?? "").split(",").filter(Boolean);
  return (entries.includes(entry) ? entries.filter((each) => each !== entry) : [...entries, entry]).join(",");
}

/**
 * Return the open blocks once another is opened.
 * @param {readonly string[]} opened
 * @param {string} path
 */
export function withBlock(opened, path) {
  return [...opened.filter((each) => each !== path), path];
}

/**
 * Return the open blocks once one is closed, with all in it.
 * @param {readonly string[]} opened
 * @param {string} path
 */
export function withoutBlock(opened, path) {
  return opened.filter((each) => each !== path && !each.startsWith(`${path}.`));
}
