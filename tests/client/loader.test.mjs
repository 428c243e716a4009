// What the loader changes of Dash: when components hear of what is new.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import vm from "node:vm";

const LOADER = readFileSync(new URL("../../assets/loader.js", import.meta.url), "utf-8");

/** A store as redux makes them, listed in a window as Dash does it, and how often a component was told. */
function listStore() {
  const natives = { numbers: {}, trim: String.prototype.trim };
  const window = { studioNatives: natives, Number: {}, addEventListener() {}, String };
  vm.runInNewContext(LOADER, { window, String, queueMicrotask });
  let state = { layout: {}, callbacks: 0 };
  const listeners = new Set();
  const store = {
    getState: () => state,
    subscribe(listen) {
      listeners.add(listen);
      return () => listeners.delete(listen);
    },
  };
  function change(changed) {
    state = { ...state, ...changed };
    listeners.forEach((listen) => listen());
  }
  const told = { early: 0, late: 0 };
  store.subscribe(() => { told.early += 1; });
  window.dash_stores.push(store);
  const unsubscribe = store.subscribe(() => { told.late += 1; });
  const tellNothing = () => listeners.forEach((listen) => listen());
  assert.deepEqual([...window.dash_stores], [store]);
  return { change, tellNothing, told, unsubscribe };
}

test("components hear of new properties at once", () => {
  const { change, told } = listStore();
  change({ layout: {} });
  change({ layout: {}, callbacks: 1 });
  assert.deepEqual(told, { early: 2, late: 2 });
});

test("components hear once a task of what Dash notes for itself", async () => {
  const { change, told } = listStore();
  change({ callbacks: 1 });
  change({ callbacks: 2 });
  assert.deepEqual(told, { early: 2, late: 0 });
  await null;
  assert.deepEqual(told, { early: 2, late: 1 });
  change({ callbacks: 3 });
  change({ layout: {} });
  assert.equal(told.late, 2);
  await null;
  assert.equal(told.late, 2, "new properties have told of the notes too");
});

test("components hear nothing of what changes nothing, nor after they have gone", async () => {
  const { change, tellNothing, told, unsubscribe } = listStore();
  tellNothing();
  await null;
  assert.equal(told.late, 0);
  change({ callbacks: 1 });
  unsubscribe();
  await null;
  assert.deepEqual(told, { early: 2, late: 0 });
});
