/* A collective is one event on many lanes: the bars of its members, and the spread of their arrivals. */

import { formatTime } from "../base/format.mjs";
import { COLLECTIVE, HOST, RECEIVE, SEND } from "./chart.mjs";
import { boxOf, drawOverLanes, drawTag, limit, placeTag } from "./draw.mjs";
import { AXIS, BAR, GUTTER } from "./lanes.mjs";
import { textWidth } from "./text.mjs";

/** @import { Pen } from "../base/canvas.mjs" */
/** @import { Box } from "./draw.mjs" */
/** @import { Scene } from "./scene.mjs" */
/** @import { Bar } from "./timeline.mjs" */
/** @typedef {{rank: number, row: number, start: number, end: number}} Peer */

/**
 * Who takes part, by arrival.
 * @typedef {object} Meeting
 * @property {Peer[]} peers empty if there is no other member
 * @property {number} first ns when the first arrived
 * @property {number} arrived ns when the last did
 * @property {number} last its rank
 * @property {boolean} isMessage between two
 */

/**
 * Peers as rank, row, start, end, by start; `last` is who began last, by aligned clocks.
 * @typedef {{peers: [number, number, number, number][], position: number, last?: number}} Answer
 */

const KEPT = 300; /* meetings */

/** @param {Answer} answer @returns {Meeting} */
export function readMeeting({ peers, position, last: latest }) {
  const all = peers.length < 2 ? [] : peers.map(([rank, row, start, end]) => ({ rank, row, start, end }));
  const last = all.at(-1);
  const [first, arrived] = [all[0], last].map((peer) => peer?.start ?? 0);
  return { peers: all, first, arrived, last: latest ?? last?.rank ?? -1, isMessage: position < 0 };
}

/**
 * The end of the sentence about a bar: who took part, and how far apart they arrived.
 * @param {Meeting} meeting @param {{rank: number}} bar
 */
export function describeMeeting({ peers, first, arrived, isMessage }, bar) {
  if (!peers.length) return "";
  const others = peers.map(({ rank }) => rank).filter((rank) => rank !== bar.rank);
  if (isMessage) return " · with rank " + others.join();
  const how = arrived === first ? " begin together" : " arrive within " + formatTime(arrived - first);
  return " · " + peers.length + " ranks" + how;
}

/**
 * How long a bar waited, and for whom: "of which 2.11 ms waiting for rank 7". Of a receive it is idle time.
 * @param {{rank: number, waits?: number, category?: number, type?: string}} bar
 * @param {Meeting | undefined} meeting once it is known
 */
export function describeWait({ rank, waits = 0, category, type }, meeting) {
  if (waits <= 0) return "";
  if (category === HOST) return ", of which " + formatTime(waits) + " waiting for the device";
  const other = meeting?.isMessage ? meeting.peers.find((peer) => peer.rank !== rank)?.rank : meeting?.last;
  const who = other === undefined || other < 0 || other === rank ? "others" : "rank " + other;
  const does = category === SEND || type === "COMM_SEND" ? " receives" : " sends";
  const isBubble = category === RECEIVE || category === SEND || /^COMM_(RECV|SEND)/.test(type || "");
  const what = isBubble ? " bubble, idle until " + who + does : " waiting for " + who;
  return ", of which " + formatTime(waits) + what;
}

export class Peers {
  /** @param {Scene} scene */
  constructor(scene) {
    this.scene = scene;
    /** @type {Map<string, Meeting>} by rank and node */
    this.known = new Map();
    /** @type {Meeting | null} What is lit. */
    this.shown = null;
    this.wanted = "";
  }

  /** @param {Bar | null} bar */
  #keyOf(bar) {
    if (!bar) return "";
    const { category, type } = bar;
    const isTold = category === undefined; /* by the server, which knows types, not by a tile */
    const isComm = isTold ? /^COMM_/.test(type || "") : category >= COLLECTIVE && category <= RECEIVE;
    return isComm ? bar.rank + "/" + bar.index : "";
  }

  /** Highlight the members of a bar's collective. @param {Bar | null} bar */
  light(bar) {
    const { scene } = this, key = this.#keyOf(bar);
    if (key === this.wanted) return;
    this.wanted = key;
    this.shown = this.known.get(key) ?? null;
    scene.draw();
    if (!key || this.shown || !bar) return;
    scene.later("peers", 40, () => {
      if (key !== this.wanted) return;
      /** @type {Promise<Answer>} */
      const answer = scene.askJson("/peers", { rank: bar.rank, index: bar.index });
      answer.then((found) => {
        if (this.known.size > KEPT) this.known.clear();
        const meeting = readMeeting(found);
        this.known.set(key, meeting);
        if (key !== this.wanted) return;
        this.shown = meeting;
        scene.words.repeat();
        scene.draw();
      }, () => { /* The bar is shown without them. */ });
    });
  }

  /** @param {Bar} bar */
  describe(bar) {
    const meeting = this.known.get(this.#keyOf(bar));
    return describeWait(bar, meeting) + (meeting ? describeMeeting(meeting, bar) : "");
  }

  /** @param {Pen} pen @param {number} wide @param {number} high */
  draw(pen, wide, high) {
    const { scene, shown } = this;
    if (!shown?.peers.length) return;
    const boxes = shown.peers.map((peer) => boxOf(scene, peer)).filter((box) => box !== null);
    drawOverLanes(scene, pen, () => {
      if (!shown.isMessage) this.#drawSpread(pen, shown, boxes, high);
      const seen = boxes.filter((box) => {
        const isSeen = box.right >= GUTTER && box.left <= wide;
        return isSeen && !box.behind && box.y + box.height >= AXIS && box.y <= high;
      });
      for (const box of seen) this.#drawPeer(pen, box, wide);
      if (!shown.isMessage) this.#drawArrivals(pen, seen);
    });
  }

  /**
   * The time from the first arrival to the last.
   * @param {Pen} pen @param {Meeting} shown @param {Box[]} boxes @param {number} high
   */
  #drawSpread(pen, { first, arrived }, boxes, high) {
    const { axis, look } = this.scene;
    const [from, to] = [first, arrived].map((ns) => limit(this.scene, axis.x(ns)));
    if (to - from <= 1.5) return;
    const top = Math.max(Math.min(...boxes.map(({ y }) => y)) - 4, AXIS);
    const tall = Math.min(Math.max(...boxes.map(({ y, height }) => y + height)), high) - top + 4;
    pen.fillStyle = look.text;
    pen.globalAlpha = 0.07;
    pen.fillRect(from, top, to - from, tall);
    pen.globalAlpha = 0.75;
    pen.fillRect(Math.round(to), top, 1, tall);
    pen.globalAlpha = 1;
  }

  /**
   * Outline a bar.
   * @param {Pen} pen @param {Box} box @param {number} wide
   */
  #drawPeer(pen, box, wide) {
    const { look } = this.scene;
    const left = Math.max(box.left, GUTTER - 4), right = Math.min(box.right, wide + 4);
    pen.lineWidth = box.height < BAR ? 1 : 1.5;
    pen.strokeStyle = pen.fillStyle = look.text;
    if (right - left > 3) pen.strokeRect(left + 0.5, box.y + 0.5, right - left - 1, box.height - 1);
    else pen.fillRect(left, box.y, Math.max(2, right - left), box.height);
  }

  /** The line of arrivals, from lane to lane. @param {Pen} pen @param {Box[]} boxes */
  #drawArrivals(pen, boxes) {
    const { look } = this.scene;
    if (boxes.length < 2) return;
    const rising = [...boxes].sort((a, b) => a.y - b.y);
    for (const [colour, width] of /** @type {[string, number][]} */ ([[look.bg, 4], [look.text, 1.4]])) {
      pen.beginPath();
      for (const [place, { left, y, height }] of rising.entries()) {
        const x = limit(this.scene, left);
        if (place) pen.lineTo(x, y);
        else pen.moveTo(x, y);
        pen.lineTo(x, y + height);
      }
      pen.strokeStyle = colour;
      pen.lineWidth = width;
      pen.stroke();
    }
  }

  /** @param {Pen} pen @param {number} wide */
  drawAxis(pen, wide) {
    const { scene: { axis, look, tags }, shown } = this;
    if (!shown?.peers.length || shown.isMessage || shown.arrived === shown.first) return;
    const from = axis.x(shown.first), to = axis.x(shown.arrived);
    if (to < GUTTER || from > wide) return;
    const spread = formatTime(shown.arrived - shown.first);
    const text = "arrive within " + spread + ", rank " + shown.last + " last";
    pen.font = look.font;
    const room = textWidth(pen, text) + 12, middle = (Math.max(from, GUTTER) + Math.min(to, wide)) / 2;
    const least = GUTTER + 2, most = wide - room - 4;
    const wanted = Math.min(Math.max(middle - room / 2, least), most);
    drawTag(this.scene, pen, text, placeTag(tags, wanted, room, least, most), room);
  }
}
