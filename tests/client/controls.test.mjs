import assert from "node:assert/strict";
import { test } from "node:test";

/* A document of one touched control, and an address: modules look for them when they are loaded. */
/** @type {any} */
const page = globalThis;
/** @type {Map<string, (event: any) => void>} */
const heard = new Map();
/** @type {[string, unknown][]} what controls were given beside the answers of callbacks */
const given = [];

class Element {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
  }

  /** @param {string} selector */
  closest(selector) {
    return selector.includes("listbox") ? null : this;
  }

  /** @param {unknown} other */
  contains(other) {
    return other === this;
  }
}

/** @type {Map<string, Element>} */
const elements = new Map();
/** @param {string} id */
const find = (id) => elements.get(id) ?? elements.set(id, new Element(id)).get(id);
page.Element = Element;
page.document = {
  addEventListener: (/** @type {string} */ name, /** @type {any} */ act) => heard.set(name, act),
  getElementById: find,
};
const location = { pathname: "/collectives", search: "?job=a" };
const visit = (/** @type {unknown} */ _, /** @type {string} */ __, /** @type {string} */ address) => {
  location.search = address.includes("?") ? address.slice(address.indexOf("?")) : "";
};
page.window = { location, history: { pushState: visit, replaceState: visit } };
/** @param {string} id @param {{ value: unknown }} props */
const setProps = (id, { value }) => given.push([id, value]);
page.dash_clientside = { set_props: setProps };

const { CONTROLS, Controls } = await import("../../assets/collectives/controls.mjs");
const { noUpdate } = await import("../../assets/base/dash.mjs");

/** @type {Record<string, string | null>} */
const USUAL = {
  tab: "heat", metric: "size", rel: "1", scale: "linear", by: "none", fold: "0", sort: "max", order: "number",
  with: null,
};

/** A page whose server settles what the address names, and whose controls show what they are given. */
function openPage() {
  location.search = "?job=a";
  heard.get("pointerdown")?.({ target: find("elsewhere") });
  given.length = 0;
  const controls = new Controls();
  /** @type {Record<string, string | null>} */
  const shown = Object.fromEntries(CONTROLS.map((name) => [name, null]));
  /** @type {any} */
  let settled = null;
  const values = () => CONTROLS.map((name) => shown[name] ?? null);
  const write = () => controls.write(settled, values());
  const settle = () => {
    settled = { controls: { ...USUAL, ...Object.fromEntries(new URLSearchParams(location.search)) } };
    controls.follow(settled, [], values()).forEach((value, index) => {
      if (value !== noUpdate) shown[CONTROLS[index]] = /** @type {string | null} */ (value);
    });
  };
  settle();
  write();
  return {
    shown, settle, write,
    /** @param {string} name @param {string} value */
    choose(name, value) {
      heard.get("pointerdown")?.({ target: find(`collectives-${name}`) });
      shown[name] = value;
      write();
    },
    /** @param {string} name @param {string | null} value */
    tell(name, value) {
      shown[name] = value;
      write();
    },
  };
}

test("every choice reaches the address, also after those the server settled as they were", () => {
  const { choose, settle } = openPage();
  for (const [name, value, search] of [
    ["tab", "sizes", "?job=a&tab=sizes"],
    ["tab", "groups", "?job=a&tab=groups"],
    ["tab", "heat", "?job=a"],
    ["metric", "duration", "?job=a&metric=duration"],
    ["metric", "waiting", "?job=a&metric=waiting"],
    ["metric", "size", "?job=a&metric=size"],
    ["sort", "gini", "?job=a&metric=size&sort=gini"],
    ["sort", "max", "?job=a&metric=size"],
  ]) {
    choose(name, value);
    assert.equal(location.search, search);
    settle();
  }
  assert.deepEqual(given, []);
});

test("a choice that is taken back before the server has answered reaches the address too", () => {
  const { choose, settle, shown } = openPage();
  choose("tab", "sizes");
  choose("tab", "heat");
  settle();
  assert.deepEqual([location.search, shown.tab], ["?job=a", "heat"]);
});

test("what a control tells late of what it was given is no choice", () => {
  const { choose, settle, shown, tell } = openPage();
  choose("metric", "duration");
  settle();
  location.search = "?job=a&metric=waiting"; // a step back
  settle();
  assert.equal(shown.metric, "waiting");
  tell("metric", "duration");
  assert.equal(location.search, "?job=a&metric=waiting");
  assert.deepEqual(given, [["collectives-metric", "waiting"]]);
});

test("what a control begins with is no choice", () => {
  location.search = "?job=a&tab=sizes";
  const controls = new Controls();
  const settled = { controls: { ...USUAL, tab: "sizes" } };
  const first = CONTROLS.map((name) => (name === "tab" ? "heat" : null));
  controls.write(settled, first);
  assert.equal(controls.follow(settled, [], first)[0], "sizes");
  controls.write(settled, first);
  assert.equal(location.search, "?job=a&tab=sizes");
});
