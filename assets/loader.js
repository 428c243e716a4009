/* The only classic script. Dash may call client-side callbacks before the modules are there; these wait. */
(function () {
  "use strict";

  const NAMESPACES = [
    "studio_asked", "studio_collectives", "studio_compare", "studio_explain", "studio_frame", "studio_graph",
    "studio_nodes", "studio_ranks", "studio_simulate", "studio_sql", "studio_sweep", "studio_timeline",
    "studio_trends", "studio_validate", "studio_workloads",
  ];

  /** @typedef {Record<string, (...values: any[]) => unknown>} Names the callbacks of a namespace */

  /** Dash's edge. @type {any} */
  const page = window;
  /** Those of studio.mjs, once it is there: of a page, a function that loads its modules.
     @type {Record<string, Names | (() => Promise<Names>)> | null} */
  let callbacks = null;
  /* In place of these Dash's polyfill has put functions that run two regular expressions a call: a
     twentieth of what a page of many fields takes. The page's first script has kept them. */
  Object.assign(page, page.studioNatives.numbers);
  Object.assign(page.Number, page.studioNatives.numbers);
  String.prototype.trim = page.studioNatives.trim;
  let bring = function () {};
  /** @type {Promise<void>} */
  const arrival = new Promise(function (resolve) { bring = resolve; });

  /** The callbacks of a namespace, or a promise of them. A page's modules are asked for once.
     @type {(namespace: string) => Names | Promise<Names>} */
  function load(namespace) {
    if (!callbacks) return arrival.then(function () { return load(namespace); });
    const names = callbacks[namespace] || {};
    if (typeof names !== "function") return names;
    const brought = callbacks;
    const loading = names();
    brought[namespace] = function () { return loading; };
    loading.then(function (loaded) { brought[namespace] = loaded; }, showFailure);
    return loading;
  }

  /** @type {(names: Names, namespace: string, name: string, values: ArrayLike<any>) => unknown} */
  function call(names, namespace, name, values) {
    const callback = names[name];
    if (!callback) throw new Error("studio.mjs has no callback " + namespace + "." + name);
    return callback(...Array.from(values));
  }

  /** @type {(namespace: string) => object} */
  function waiting(namespace) {
    return new Proxy({}, {
      get: function (_target, /** @type {string} */ name) {
        return function () {
          const values = arguments;
          const names = load(namespace);
          if (!(names instanceof Promise)) return call(names, namespace, name, values);
          return names.then(function (loaded) { return call(loaded, namespace, name, values); });
        };
      },
      has: function (_target, /** @type {string} */ name) {
        const names = load(namespace);
        return !(names instanceof Promise) && Boolean(names[name]);
      },
    });
  }

  /* Cytoscape warns on the console about every wheel sensitivity it is made with, dash-cytoscape's
     default too. It is set
     later, by graph/cytoscape.mjs. */
  function quietLibraries() {
    if (page.dash_cytoscape) delete page.dash_cytoscape.Cytoscape.defaultProps.wheelSensitivity;
  }
  quietLibraries();

  /** @typedef {{ type?: string, props?: Record<string, any> }} Part a component as Dash keeps it */

  /** What `speaks` found, by the children looked at: Dash makes new ones where anything in them changes.
     @type {WeakMap<object, boolean>} */
  const known = new WeakMap();

  /** Whether a field has an error, or a place for messages has one. @type {(part: Part) => boolean} */
  function speaks(part) {
    if (!part.props) return false;
    const children = part.props.children;
    const isMessage = part.type === "Div" && part.props.id && children && children.length;
    return Boolean(part.props.error || isMessage) || speaksIn(children);
  }

  /** @type {(children: unknown) => boolean} */
  function speaksIn(children) {
    if (!children || typeof children !== "object") return false;
    let found = known.get(children);
    if (found === undefined) {
      found = Array.isArray(children) ? children.some(speaksIn) : speaks(/** @type {Part} */ (children));
      known.set(children, found);
    }
    return found;
  }

  /** A fold whose content is drawn when it is needed: see studio/pages/base/fold.py. That it is drawn is a
     property that Dash keeps, so that Dash then brings the content as it is by now.
     @type {(props: { children: unknown[], className: string, open: boolean, drawn: boolean,
     setProps: (changed: { drawn: boolean }) => void }) => unknown} */
  function Fold(props) {
    const React = page.React;
    const isDrawn = props.drawn || props.open;
    const context = page.dash_component_api.useDashContext();
    const isTold = context.useSelector(function (/** @type {{ layout: any }} */ state) {
      const path = /** @type {string[]} */ (context.componentPath);
      const kept = path.reduce(function (part, key) { return part && part[key]; }, state.layout);
      return !isDrawn && Boolean(kept) && kept.props.children.slice(1).some(speaksIn);
    });
    function draw() {
      if (!isDrawn) props.setProps({ drawn: true });
    }
    React.useEffect(function () {
      if (isTold) draw();
      // What the browser's search looks for has to be there, also in closed folds.
      /** @param {KeyboardEvent} event */
      function look(event) {
        if (event.key === "F3" || ((event.ctrlKey || event.metaKey) && event.key === "f")) draw();
      }
      window.addEventListener("keydown", look);
      return function () { window.removeEventListener("keydown", look); };
    }, [isDrawn, isTold]);
    const [title, ...content] = props.children;
    const about = {
      className: props.className, open: props.open,
      onToggle: draw, onPointerEnter: draw, onFocus: draw,
    };
    return React.createElement("details", about, title, ...(isDrawn ? content : []));
  }

  /** @typedef {{ layout: unknown }} State What Dash knows, and in it the components with their properties */
  /** @typedef {{ getState: () => State, subscribe: (listen: () => void) => () => void }} Store */

  /** Tell components of what Dash notes for itself once a task. Each component looks for new properties
     whenever it is told, and Dash notes every component that is drawn and every step of every callback: the
     time of opening a page would grow with the square of its components. New properties are told at once, as
     a field that is typed into needs it. Those who subscribed before, Dash's own callbacks, are told as ever.
     @type {(store: Store) => void} */
  function gatherNotes(store) {
    const subscribe = store.subscribe;
    store.subscribe = function (listen) {
      let told = store.getState();
      let isWaiting = false;
      let isListening = true;
      function tell() {
        isWaiting = false;
        if (!isListening || store.getState() === told) return;
        told = store.getState();
        listen();
      }
      const unsubscribe = subscribe(function () {
        if (store.getState().layout !== told.layout) {
          tell();
        } else if (!isWaiting && store.getState() !== told) {
          isWaiting = true;
          queueMicrotask(tell);
        }
      });
      return function () {
        isListening = false;
        unsubscribe();
      };
    };
  }

  /* Dash lists its store here as soon as it has one, before any component subscribes. */
  if (!page.dash_stores) {
    /** @type {Store[]} */
    const stores = [];
    stores.push = function (/** @type {Store[]} */ ...added) {
      added.forEach(gatherNotes);
      return Array.prototype.push.apply(stores, added);
    };
    page.dash_stores = stores;
  }

  page.studio_parts = { Fold: Fold };
  page.dash_clientside = page.dash_clientside || {};
  NAMESPACES.forEach(function (namespace) {
    if (!page.dash_clientside[namespace]) page.dash_clientside[namespace] = waiting(namespace);
  });
  page.studioLoader = {
    load: load,
    quietLibraries: quietLibraries,
    showFailure: showFailure,
    ready: function (/** @type {typeof callbacks} */ brought) {
      callbacks = brought;
      bring();
    },
  };

  /** Several modules may fail to come; it is said once. */
  let hasFailed = false;

  function showFailure() {
    if (hasFailed) return;
    hasFailed = true;
    const box = document.createElement("div");
    box.setAttribute("role", "alert");
    box.className = "cs-toast";
    box.textContent = "Parts of this page could not be loaded. Reload it, or restart the studio.";
    document.body.appendChild(box);
  }

  /* A module that does not come fails its script element, one that breaks the window; neither error
     bubbles. */
  window.addEventListener("error", function (event) {
    const isScript = event.target instanceof HTMLScriptElement && event.target.type === "module";
    if (!callbacks && (isScript || /\.mjs/.test(event.filename || ""))) showFailure();
  }, true);
})();
