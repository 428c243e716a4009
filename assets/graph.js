/* The Graph page: selection, keys and the camera. What is drawn comes from the server, places included. */
(function () {
  "use strict";

  var READABLE = 0.75;
  var CLOSEST_FIT = 1.15;
  var AFAR = 0.6;
  var MARGIN = 24;
  var SETTLING = 1500;
  var NODE = { width: 100, height: 42 };
  var DEFAULTS = { depth: "5", dir: "both", deps: "both", q: "" };
  var CONTROLS = ["rank", "show", "depth", "dir", "deps", "q"];

  var wired = null;
  var framed = null;
  var latest = { drawn: {}, view: {}, hits: [] };
  var waiting = null;
  var typed = null;
  var given = {};
  var lead = null;

  /* Cytoscape warns on the console about every wheel sensitivity it is handed, even its own default of 1, which
     dash-cytoscape always hands over. Without that default it gets none; the sensitivity is set on the renderer below. */
  if (window.dash_cytoscape) delete window.dash_cytoscape.Cytoscape.defaultProps.wheelSensitivity;

  function element(id) {
    return document.getElementById(id);
  }

  function graph() {
    var box = element("graph-cy");
    return box && box._cyreg ? box._cyreg.cy : null;
  }

  function change(patch, options) {
    window.studioView.change(patch, options);
  }

  function select(ref) {
    var patch = { node: ref };
    /* Looking around moves nothing: the neighbourhood keeps its centre. */
    if (ref !== null && latest.drawn.mode === "near") patch.at = latest.drawn.centre;
    change(patch);
  }

  /* --- camera ------------------------------------------------------------------------------------------------- */

  function still() {
    return window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  }

  /* By the places of the nodes, which are known, and not by what Cytoscape measures of every label and edge. */
  function fit(cy) {
    if (!cy.nodes().length) return;
    var left = Infinity, top = Infinity, right = -Infinity, bottom = -Infinity;
    cy.nodes().forEach(function (one) {
      var at = one.position();
      left = Math.min(left, at.x);
      right = Math.max(right, at.x);
      top = Math.min(top, at.y);
      bottom = Math.max(bottom, at.y);
    });
    var wide = right - left + NODE.width;
    var high = bottom - top + NODE.height;
    var zoom = Math.min((cy.width() - 2 * MARGIN) / wide, (cy.height() - 2 * MARGIN) / high, CLOSEST_FIT);
    look(cy, zoom, { x: (left + right) / 2, y: (top + bottom) / 2 });
  }

  function look(cy, zoom, at) {
    cy.viewport({ zoom: zoom, pan: { x: cy.width() / 2 - at.x * zoom, y: cy.height() / 2 - at.y * zoom } });
  }

  /* A new drawing is shown whole if that can be read, else around the node it is about. */
  function frame(cy) {
    fit(cy);
    var node = chosen(cy);
    if (!node.length && latest.drawn.centre) node = cy.getElementById(latest.drawn.centre);
    if (cy.zoom() < READABLE && node.length) look(cy, READABLE, node.position());
  }

  /* From afar a node has room for one short word in larger print. */
  function print(cy) {
    var afar = cy.zoom() < AFAR;
    if (cy.scratch("cs-afar") === afar) return;
    cy.scratch("cs-afar", afar);
    cy.nodes().toggleClass("cs-afar", afar);
  }

  function bringIntoView(cy, node) {
    var box = node.renderedBoundingBox();
    if (box.x1 >= 0 && box.y1 >= 0 && box.x2 <= cy.width() && box.y2 <= cy.height()) return;
    var zoom = Math.max(cy.zoom(), READABLE);
    if (still()) {
      cy.zoom(zoom);
      cy.center(node);
    } else {
      cy.stop();
      cy.animate({ center: { eles: node }, zoom: zoom, duration: 160 });
    }
  }

  /* --- what is highlighted ------------------------------------------------------------------------------------ */

  function chosen(cy) {
    return latest.view.node ? cy.getElementById(String(latest.view.node)) : cy.collection();
  }

  function paint(cy) {
    var hits = new Set(latest.view.q ? latest.hits : []);
    var node = chosen(cy);
    cy.batch(function () {
      cy.elements().removeClass("cs-on cs-near cs-off cs-hit cs-over");
      if (hits.size) {
        cy.nodes().forEach(function (one) {
          if (hits.has(one.id())) one.addClass("cs-hit");
        });
      }
      if (node.length) {
        var near = node.closedNeighborhood();
        cy.elements().difference(near).addClass("cs-off");
        near.addClass("cs-near");
        node.addClass("cs-on");
      } else if (hits.size) {
        cy.elements().not(".cs-hit").addClass("cs-off");
      }
    });
  }

  function ready(cy) {
    var wanted = latest.drawn.nodes || 0;
    if (!cy || cy.nodes().length !== wanted) return false;
    return !latest.drawn.first || cy.getElementById(latest.drawn.first).data("drawing") === latest.drawn.key;
  }

  /* The elements arrive in React's own time: wait for them, then paint and, once per drawing, set the camera. */
  function sync(tries) {
    window.clearTimeout(waiting);
    if (!latest.drawn.key) return;
    var cy = graph();
    if (!ready(cy)) {
      if (tries > 0) waiting = window.setTimeout(sync, 25, tries - 1);
      return;
    }
    wire(cy);
    if (framed !== latest.drawn.key || !cy.scratch("cs-framed")) {
      framed = latest.drawn.key;
      cy.scratch("cs-framed", Date.now());
      cy.scratch("cs-afar", null);
      cy.batch(function () {
        frame(cy);
        print(cy);
        paint(cy);
      });
      element("graph-canvas").dataset.ready = latest.drawn.key;
      return;
    }
    paint(cy);
    if (chosen(cy).length) bringIntoView(cy, chosen(cy));
  }

  /* --- pointer ------------------------------------------------------------------------------------------------ */

  function tip(node) {
    var box = element("graph-tip");
    if (!box) return;
    box.hidden = !node;
    if (!node) return;
    var data = node.data();
    var lines = [data.name || "(no name)", data.type + (data.bytes ? " · " + data.bytes : "") + " · id " + data.id];
    if (data.hidden) lines.push(data.hidden + (data.hidden === 1 ? " dependency" : " dependencies") + " not drawn: double click to centre");
    box.textContent = lines.join("\n");
    var at = node.renderedBoundingBox();
    var canvas = element("graph-canvas");
    box.style.left = Math.max(4, Math.min(at.x1, canvas.clientWidth - box.offsetWidth - 4)) + "px";
    var below = at.y2 + 8;
    box.style.top = (below + box.offsetHeight > canvas.clientHeight ? Math.max(4, at.y1 - box.offsetHeight - 8) : below) + "px";
  }

  function hover(node, on) {
    node.toggleClass("cs-over", on);
    node.connectedEdges().toggleClass("cs-over", on);
    tip(on ? node : null);
    element("graph-canvas").style.cursor = on ? "pointer" : "";
  }

  function wire(cy) {
    if (wired === cy) return;
    wired = cy;
    cy.renderer().wheelSensitivity = 0.3;
    cy.on("tap", function (event) {
      if (event.target === cy) select(null);
      else if (event.target.isNode()) select(event.target.id());
    });
    cy.on("dbltap", "node", function (event) {
      change({ node: event.target.id(), at: null, show: "near" }, { replace: true });
    });
    cy.on("mouseover", "node", function (event) {
      hover(event.target, true);
    });
    cy.on("mouseout", "node", function (event) {
      hover(event.target, false);
    });
    cy.on("viewport", function () {
      print(cy);
      tip(null);
    });
    /* The inspector of a link opens just after the drawing has been framed: it is framed again. Later, what the user
       looks at stays where it is. */
    cy.on("resize", function () {
      var node = chosen(cy);
      if (Date.now() - cy.scratch("cs-framed") < SETTLING) frame(cy);
      else if (node.length) bringIntoView(cy, node);
    });
  }

  /* --- keys --------------------------------------------------------------------------------------------------- */

  function nearest(nodes, node) {
    var best = null;
    var least = Infinity;
    nodes.forEach(function (one) {
      var gap = Math.abs(one.position("x") - node.position("x")) + Math.abs(one.position("y") - node.position("y")) / 4;
      if (one.id() !== node.id() && gap < least) {
        least = gap;
        best = one;
      }
    });
    return best;
  }

  function beside(cy, node, side) {
    var best = null;
    cy.nodes().forEach(function (one) {
      if (Math.abs(one.position("y") - node.position("y")) > 1) return;
      var gap = (one.position("x") - node.position("x")) * side;
      if (gap > 0 && (!best || gap < (best.position("x") - node.position("x")) * side)) best = one;
    });
    return best;
  }

  function step(cy, key) {
    var node = chosen(cy);
    if (!node.length) {
      var first = latest.drawn.centre || (cy.nodes().length ? cy.nodes()[0].id() : null);
      if (first) select(first);
      return;
    }
    var next;
    if (key === "ArrowUp") next = nearest(node.incomers("node"), node);
    if (key === "ArrowDown") next = nearest(node.outgoers("node"), node);
    if (key === "ArrowLeft") next = beside(cy, node, -1);
    if (key === "ArrowRight") next = beside(cy, node, 1);
    if (next) select(next.id());
    else if (node.data("hidden") > 0 && (key === "ArrowUp" || key === "ArrowDown")) change({ at: null });
  }

  function typing(target) {
    return Boolean(target.closest && target.closest("input, textarea, select, [contenteditable], [role=listbox]"));
  }

  /* Arrows scroll what has the focus; they walk the graph only from the page itself. */
  function onGraph(target) {
    return target === document.body || target.id === "content" || Boolean(target.closest && target.closest("#graph-page, #graph-canvas"));
  }

  function searchKey(event) {
    if (event.key === "Escape") {
      change({ q: null }, { replace: true });
      event.target.blur();
      element("graph-canvas").focus();
    } else if (event.key === "Enter") {
      event.preventDefault();
      var button = element(event.shiftKey ? "graph-previous" : "graph-next");
      if (event.target.value === (latest.view.q || "") && button) button.click();
      else lead = event.target.value;
    }
  }

  function pageKey(event, cy) {
    if (event.key.indexOf("Arrow") === 0) step(cy, event.key);
    else if (event.key === "f" || event.key === "F") fit(cy);
    else if (event.key === "/") {
      element("graph-q").focus();
      element("graph-q").select();
    } else if (event.key === "Escape") select(null);
    else return;
    event.preventDefault();
  }

  document.addEventListener("keydown", function (event) {
    var cy = graph();
    if (!cy || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target.id === "graph-q") searchKey(event);
    else if (!typing(event.target) && onGraph(event.target)) pageKey(event, cy);
  });

  document.addEventListener("click", function (event) {
    if (event.target.id === "graph-fit" && graph()) fit(graph());
  });

  /* --- controls ⇄ view ---------------------------------------------------------------------------------------- */

  function held(view) {
    var values = Object.assign({}, DEFAULTS);
    CONTROLS.forEach(function (key) {
      if (view[key] !== undefined) values[key] = view[key];
    });
    return values;
  }

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    studio_graph: {
      controls: function (view, drawn, ranks) {
        var keep = window.dash_clientside.no_update;
        var values = held(view);
        if (values.rank === undefined) values.rank = ranks && ranks.length ? ranks[0] : null;
        values.show = drawn.mode || keep;
        var field = element("graph-q");
        /* What is being typed is newer than the view it leads to. */
        if (field && document.activeElement === field && typed === values.q) values.q = keep;
        ["depth", "dir"].forEach(function (name) {
          var label = element("graph-" + name) && element("graph-" + name).closest(".cs-graph-field");
          if (label) label.toggleAttribute("data-off", drawn.mode === "whole");
        });
        return CONTROLS.map(function (key) {
          if (values[key] !== keep) given[key] = values[key];
          return values[key];
        });
      },
      write: function () {
        var values = arguments;
        var changed = window.dash_clientside.callback_context.triggered.map(function (one) {
          return one.prop_id.split(".")[0].replace("graph-", "");
        });
        changed.forEach(function (key) {
          var value = values[CONTROLS.indexOf(key)];
          /* What the view gave to a control is no wish of the user; by now the view may have gone on. */
          if (value === null || value === undefined || value === given[key]) return;
          given[key] = value;
          if (key === "q") typed = value;
          var patch = {};
          patch[key] = value === DEFAULTS[key] ? null : value;
          if (key === "rank" || value === "whole") patch.at = null;
          /* Ids mean other nodes on other ranks. */
          if (key === "rank") patch.node = null;
          /* Arrows walk the graph next, not the control that was clicked. */
          if (key === "show") element("graph-canvas").focus();
          change(patch, { replace: key === "q" });
        });
        return window.dash_clientside.no_update;
      },
      show: function (drawn, view, hits) {
        latest = { drawn: drawn || {}, view: view || {}, hits: hits || [] };
        sync(200);
        if (lead !== null && lead === view.q && hits.length) {
          lead = null;
          window.setTimeout(function () {
            if (element("graph-next")) element("graph-next").click();
          }, 0);
        }
        return window.dash_clientside.no_update;
      },
    },
  });
})();
