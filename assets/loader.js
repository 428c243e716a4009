/* The only classic script. Dash may call client-side callbacks before the modules are there; each waits for them. */
(function () {
  "use strict";

  const NAMESPACES = [
    "studio_asked", "studio_collectives", "studio_compare", "studio_frame", "studio_graph", "studio_nodes",
    "studio_simulate", "studio_timeline",
  ];

  /* Callbacks by namespace and name, once studio.mjs has brought them. */
  let callbacks = null;
  let bring;
  const arrival = new Promise(function (resolve) { bring = resolve; });

  function call(namespace, name, values) {
    const callback = callbacks[namespace] && callbacks[namespace][name];
    if (!callback) throw new Error("studio.mjs has no callback " + namespace + "." + name);
    return callback.apply(null, values);
  }

  function waiting(namespace) {
    return new Proxy({}, {
      get: function (_target, name) {
        return function () {
          const values = arguments;
          if (callbacks) return call(namespace, name, values);
          return arrival.then(function () { return call(namespace, name, values); });
        };
      },
      has: function (_target, name) { return Boolean(callbacks && callbacks[namespace] && callbacks[namespace][name]); },
    });
  }

  window.dash_clientside = window.dash_clientside || {};
  NAMESPACES.forEach(function (namespace) {
    if (!window.dash_clientside[namespace]) window.dash_clientside[namespace] = waiting(namespace);
  });
  window.studioLoader = {
    ready: function (brought) {
      callbacks = brought;
      bring();
    },
  };

  /* Errors of scripts do not bubble. A module that cannot be loaded fails its script element, one that breaks the window. */
  window.addEventListener("error", function (event) {
    const isScript = event.target instanceof HTMLScriptElement && event.target.type === "module";
    if (callbacks || !(isScript || /\.mjs/.test(event.filename || ""))) return;
    const box = document.createElement("div");
    box.setAttribute("role", "alert");
    box.className = "cs-toast";
    box.textContent = "Parts of this page could not be loaded. Reload it; if that does not help, restart the studio.";
    document.body.appendChild(box);
  }, true);
})();
