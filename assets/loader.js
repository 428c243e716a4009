/* The only classic script. Dash may call client-side callbacks before the modules are there; these wait. */
(function () {
  "use strict";

  const NAMESPACES = [
    "studio_asked", "studio_collectives", "studio_compare", "studio_frame", "studio_graph", "studio_nodes",
    "studio_simulate", "studio_timeline",
  ];

  /** @typedef {Record<string, Record<string, (...values: any[]) => unknown>>} Callbacks by namespace,
     name */

  /** Dash's edge. @type {any} */
  const page = window;
  /** Those of studio.mjs, once it is there. @type {Callbacks | null} */
  let callbacks = null;
  let bring = function () {};
  /** @type {Promise<void>} */
  const arrival = new Promise(function (resolve) { bring = resolve; });

  /** @type {(namespace: string, name: string, values: ArrayLike<any>) => unknown} */
  function call(namespace, name, values) {
    const callback = callbacks?.[namespace]?.[name];
    if (!callback) throw new Error("studio.mjs has no callback " + namespace + "." + name);
    return callback(...Array.from(values));
  }

  /** @type {(namespace: string) => object} */
  function waiting(namespace) {
    return new Proxy({}, {
      get: function (_target, /** @type {string} */ name) {
        return function () {
          const values = arguments;
          if (callbacks) return call(namespace, name, values);
          return arrival.then(function () { return call(namespace, name, values); });
        };
      },
      has: function (_target, /** @type {string} */ name) { return Boolean(callbacks?.[namespace]?.[name]); },
    });
  }

  /* Cytoscape warns on the console about every wheel sensitivity it is made with, dash-cytoscape's
     default too. It is set
     later, by graph/cytoscape.mjs. */
  if (page.dash_cytoscape) delete page.dash_cytoscape.Cytoscape.defaultProps.wheelSensitivity;

  page.dash_clientside = page.dash_clientside || {};
  NAMESPACES.forEach(function (namespace) {
    if (!page.dash_clientside[namespace]) page.dash_clientside[namespace] = waiting(namespace);
  });
  page.studioLoader = {
    ready: function (/** @type {Callbacks} */ brought) {
      callbacks = brought;
      bring();
    },
  };

  /* A module that does not come fails its script element, one that breaks the window; neither error
     bubbles. */
  window.addEventListener("error", function (event) {
    const isScript = event.target instanceof HTMLScriptElement && event.target.type === "module";
    if (callbacks || !(isScript || /\.mjs/.test(event.filename || ""))) return;
    const box = document.createElement("div");
    box.setAttribute("role", "alert");
    box.className = "cs-toast";
    box.textContent = "Parts of this page could not be loaded. Reload it, or restart the studio.";
    document.body.appendChild(box);
  }, true);
})();
