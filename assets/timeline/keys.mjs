/* The keyboard of the Timeline page. */

import { byId } from "../base/dom.mjs";

/** @import { Scene } from "./scene.mjs" */

/** @type {Record<string, (scene: Scene) => void>} */
const KEYS = {
  w: ({ motion, aim }) => motion.zoom(1.5, aim),
  s: ({ motion, aim }) => motion.zoom(1 / 1.5, aim),
  a: ({ motion }) => motion.pan(-0.2),
  d: ({ motion }) => motion.pan(0.2),
  ArrowLeft: ({ motion }) => motion.pan(-0.1),
  ArrowRight: ({ motion }) => motion.pan(0.1),
  ArrowUp: ({ scroll }) => scroll.scrollBy(0, -60),
  ArrowDown: ({ scroll }) => scroll.scrollBy(0, 60),
  PageUp: ({ scroll }) => scroll.scrollBy(0, -0.9 * scroll.clientHeight),
  PageDown: ({ scroll }) => scroll.scrollBy(0, 0.9 * scroll.clientHeight),
  "+": ({ motion, aim }) => motion.zoom(2, aim),
  "=": ({ motion, aim }) => motion.zoom(2, aim),
  "-": ({ motion, aim }) => motion.zoom(0.5, aim),
  0: ({ motion }) => motion.fit(),
  f: ({ selection }) => selection.fit(),
  ".": ({ selection }) => selection.walk("next"),
  ",": ({ selection }) => selection.walk("previous"),
  "[": ({ selection }) => selection.walk("up"),
  "]": ({ selection }) => selection.walk("down"),
  z: ({ marked, motion }) => marked && motion.go(...marked),
  "?": showHelp,
  Escape: (scene) => {
    if (scene.marked) scene.change({ mark: null });
    else if (scene.selection.key) scene.change({ node: null });
  },
};

export function showHelp() {
  const box = byId("timeline-keys");
  if (box instanceof HTMLDialogElement && !box.open) box.showModal();
}

/**
 * Do what a key is for, unless something else on the page has the focus.
 * @param {Scene} scene @param {KeyboardEvent} event
 */
export function pressKey(scene, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const focus = document.activeElement;
  if (focus && focus !== document.body && focus !== scene.scroll) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const act = scene.features.find(({ keys }) => keys?.[key])?.keys?.[key];
  if (!act && !KEYS[key]) return;
  event.preventDefault();
  if (act) act(event);
  else KEYS[key](scene);
}
