/* The Graph page: selection, keys and the camera. What is drawn comes from the server, places included. */
(function () {
  "use strict";

  var READABLE = 0.75;
  var CLOSEST_FIT = 1.15;
  var AFAR = 0.6;
  var MARGIN = 24;
  var SETTLING = 1500;
  var NODE = { width: 100, height: 42 };
  var BLOCK = { width: 180, height: 60 };
  var DEFAULTS = { depth: "2", dir: "both", deps: "both", q: "", colour: "type" };
  var CONTROLS = ["rank", "show", "by", "depth", "dir", "deps", "q", "colour", "with"];

  var COLOURS = { comp: "compute", coll: "collective", send: "p2p", recv: "p2p", load: "memory", store: "memory", meta: "host", other: "host" };

  /* In the address: what is open is said, and it is nothing. Without a word the server chooses. */
  var NOTHING = "none";
  var pin = null;
  var wired = null;
  var framed = null;
  var latest = { drawn: {}, view: {}, hits: [] };
  var waiting = null;
  var typed = null;
  var given = {};
  var mounted = null;
  var coming = null;
  var painted = null;
  var resizing = false; /* whether Cytoscape is told of its size for the sake of the drawing that is framed next */
  var opening = null; /* what was asked to be open, until a drawing has it so */
  var touched = false; /* whether the user has done anything since the drawing was framed */
  var lead = null;

  /* Cytoscape warns on the console about every wheel sensitivity it is handed, even its own default of 1, which
     dash-cytoscape always hands over. Without that default it gets none; the sensitivity is set on the renderer below. */
  if (window.dash_cytoscape) delete window.dash_cytoscape.Cytoscape.defaultProps.wheelSensitivity;

  function element(id) {
    return document.getElementById(id);
  }

  function graph() {
    var box = element("graph-cy"), cy = box && box._cyreg ? box._cyreg.cy : null;
    return cy && !cy.destroyed() ? cy : null;
  }

  function change(patch, options) {
    window.studioView.change(patch, options);
  }

  function select(ref) {
    var patch = { node: ref };
    /* Looking around moves nothing: the neighbourhood keeps its centre. */
    if (ref !== null && ["near", "path", "gate"].indexOf(latest.drawn.mode) >= 0) patch.at = latest.drawn.centre;
    if (latest.drawn.mode === "fold") {
      patch.show = "fold";
      patch.block = null;
      /* What is open around a selected node stays open when the selection moves on. */
      patch.open = opened().join(",") || NOTHING;
    }
    change(patch);
  }

  /* --- blocks ------------------------------------------------------------------------------------------------- */

  /* A block that is opened or closed before the answer to the one before has come leaves that one as it was asked for. */
  function opened() {
    var asked = opening && (opening.join(",") || NOTHING) === window.studioView.read().open;
    return asked ? opening : latest.drawn.opened;
  }

  function open(blocks, path) {
    opening = blocks;
    change({ show: "fold", open: blocks.join(",") || NOTHING, block: path, node: null });
  }

  function selectBlock(path) {
    change({ show: "fold", block: path, node: null, open: opened().join(",") || NOTHING });
  }

  function corner(one) {
    var at = one.position();
    var zoom = one.cy().zoom();
    var pan = one.cy().pan();
    return { x: (at.x - one.width() / 2) * zoom + pan.x, y: (at.y - one.height() / 2) * zoom + pan.y };
  }

  /* Opening and closing happens in place: the left upper corner of the block stays where it is on the screen. */
  function keepPlace(cy, path, byKey) {
    var one = cy.$id("b" + path);
    if (!one.length) one = cy.$id("f" + path);
    pin = one.length ? Object.assign({ path: path, byKey: byKey, since: Date.now() }, corner(one)) : null;
  }

  function openBlock(cy, path, byKey) {
    keepPlace(cy, path, byKey);
    open(opened().filter(function (one) {
      return one !== path;
    }).concat(path), path);
  }

  function closeBlock(cy, path) {
    keepPlace(cy, path);
    open(opened().filter(function (one) {
      return one !== path && one.indexOf(path + ".") !== 0;
    }), path);
  }

  /* The block that what is selected stands in, "" at the top. */
  function around(cy) {
    var one = chosen(cy);
    if (!one.length) return "";
    if (one.data("kind") === "frame") return one.data("block");
    return one.data("inside") || "";
  }

  function tinted(name, share) {
    var style = getComputedStyle(document.documentElement);
    var hex = function (key) {
      return style.getPropertyValue(key).trim();
    };
    var colour = hex("--cs-" + name), ground = hex("--cs-panel");
    return (
      "#" +
      [1, 3, 5]
        .map(function (at) {
          var mixed = parseInt(colour.substr(at, 2), 16) * share + parseInt(ground.substr(at, 2), 16) * (1 - share);
          return Math.round(mixed).toString(16).padStart(2, "0");
        })
        .join("")
    );
  }

  function percent(share) {
    return Math.min(100, 100 * share).toFixed(2) + "%";
  }

  /* A block is filled with bands: one per kind of its nodes, as wide as their share. */
  function dress(cy) {
    var theme = document.documentElement.getAttribute("data-mantine-color-scheme");
    cy.nodes('[kind = "block"]').forEach(function (one) {
      if (one.data("hue")) return void one.removeData("stops colours");
      if (one.scratch("cs-theme") === theme && one.data("stops")) return;
      one.scratch("cs-theme", theme);
      var colours = [], stops = [], at = 0;
      one.data("parts").forEach(function (part) {
        var colour = tinted(COLOURS[part[0]] || "host", 0.24);
        colours.push(colour, colour);
        stops.push(percent(at), percent(at + part[1]));
        at += part[1];
      });
      one.data({ colours: colours.join(" "), stops: stops.join(" ") });
    });
  }

  /* --- camera ------------------------------------------------------------------------------------------------- */

  function still() {
    return window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  }

  /* By the places of the nodes, which are known, and not by what Cytoscape measures of every label and edge. */
  function extent(cy) {
    var left = Infinity, top = Infinity, right = -Infinity, bottom = -Infinity;
    cy.nodes().forEach(function (one) {
      var at = one.position();
      var data = one.data();
      var wide = (data.w || (data.kind === "block" ? BLOCK.width : NODE.width)) / 2;
      var high = (data.h || (data.kind === "block" ? BLOCK.height : NODE.height)) / 2;
      left = Math.min(left, at.x - wide);
      right = Math.max(right, at.x + wide);
      top = Math.min(top, at.y - high);
      bottom = Math.max(bottom, at.y + high);
    });
    return { left: left, right: right, top: top, bottom: bottom };
  }

  function fit(cy) {
    if (!cy.nodes().length) return;
    var all = extent(cy);
    var wide = all.right - all.left;
    var high = all.bottom - all.top;
    var zoom = Math.min((cy.width() - 2 * MARGIN) / wide, (cy.height() - 2 * MARGIN) / high, CLOSEST_FIT);
    look(cy, zoom, { x: (all.left + all.right) / 2, y: (all.top + all.bottom) / 2 });
  }

  function look(cy, zoom, at) {
    cy.stop(); /* a glide to somewhere else */
    cy.viewport({ zoom: zoom, pan: { x: cy.width() / 2 - at.x * zoom, y: cy.height() / 2 - at.y * zoom } });
  }

  /* A new drawing is shown whole if that can be read, else around the node it is about. */
  function frame(cy) {
    if (pin) {
      var kept = cy.$id("f" + pin.path);
      if (!kept.length) kept = cy.$id("b" + pin.path);
      if (kept.length) {
        var now = corner(kept);
        cy.panBy({ x: pin.x - now.x, y: pin.y - now.y });
        if (pin.byKey) uncover(cy, kept);
      }
      pin = null;
      /* When the window settles this is not framed again. */
      if (kept.length) return void (touched = true);
    }
    fit(cy);
    var node = chosen(cy);
    if (!node.length && latest.drawn.centre) node = cy.getElementById(latest.drawn.centre);
    if (cy.zoom() < READABLE && node.length) {
      var bounds = extent(cy);
      look(cy, READABLE, { x: within(node.position("x"), bounds.left, bounds.right, cy.width()), y: within(node.position("y"), bounds.top, bounds.bottom, cy.height()) });
    }
  }

  /* Where to look so that a place is in sight and no more of the window stays empty than must. */
  function within(place, low, high, size) {
    var half = (size / 2 - MARGIN) / READABLE;
    return high - low < 2 * half ? (low + high) / 2 : Math.min(Math.max(place, low + half), high - half);
  }

  /* What was opened by a key and leaves the window moves into it; under the pointer nothing moves. */
  function uncover(cy, one) {
    var at = corner(one);
    var wide = one.width() * cy.zoom(), high = one.height() * cy.zoom();
    var by = { x: 0, y: 0 };
    if (at.x + wide > cy.width() - 8) by.x = Math.max(cy.width() - 8 - wide - at.x, Math.min(0, 8 - at.x));
    if (at.y + high > cy.height() - 8) by.y = Math.max(cy.height() - 8 - high - at.y, Math.min(0, 8 - at.y));
    if (!by.x && !by.y) return;
    if (still()) cy.panBy(by);
    else cy.animate({ panBy: by, duration: 160 });
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
    if (latest.view.node) return cy.getElementById(String(latest.view.node));
    if (!latest.view.block || latest.drawn.mode !== "fold") return cy.collection();
    var one = cy.getElementById("b" + latest.view.block);
    return one.length ? one : cy.getElementById("f" + latest.view.block);
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
      if (node.length && node.data("kind") === "frame") node.addClass("cs-on");
      else if (node.length) {
        var near = node.closedNeighborhood();
        cy.elements().difference(near).not('[kind = "frame"]').addClass("cs-off");
        near.addClass("cs-near");
        node.addClass("cs-on");
      } else if (hits.size) {
        cy.elements().not(".cs-hit").not('[kind = "frame"]').addClass("cs-off");
      }
    });
  }

  /* What the legend hides is still there, faintly: nothing moves. */
  function filter(cy) {
    var hidden = new Set((latest.view.hide || "").split(",").filter(Boolean));
    document.querySelectorAll("#graph-legend [data-filter]").forEach(function (one) {
      one.setAttribute("aria-pressed", hidden.has(one.dataset.filter) ? "false" : "true");
    });
    cy.batch(function () {
      cy.elements(".cs-hidden").removeClass("cs-hidden");
      if (!hidden.size) return;
      var gone = cy.nodes().filter(function (one) {
        var data = one.data();
        if (data.kind === "frame") return false;
        if (data.hue) return hidden.has(data.hue);
        if (!data.parts) return hidden.has(data.kind);
        return data.parts.every(function (part) {
          return hidden.has(part[0]);
        });
      });
      gone.addClass("cs-hidden");
      gone.connectedEdges().addClass("cs-hidden");
    });
  }

  function toggled(key) {
    var hidden = (latest.view.hide || "").split(",").filter(Boolean);
    var at = hidden.indexOf(key);
    if (at < 0) hidden.push(key);
    else hidden.splice(at, 1);
    change({ hide: hidden.join(",") || null }, { replace: true });
  }

  function ready(cy) {
    var wanted = latest.drawn.nodes || 0;
    if (!cy || cy.nodes().length !== wanted) return false;
    if (!latest.drawn.first) return true;
    var told = cy.getElementById(latest.drawn.first).data("drawing");
    return Boolean(told && told.key === latest.drawn.key);
  }

  /* The first node says what the drawing is. With its arrival, and so before anything is painted, the camera is set. */
  function arrived(event) {
    var told = event.target.data && event.target.data("drawing");
    if (!told || told.key === latest.drawn.key || told === coming) return;
    coming = told;
    window.queueMicrotask(function () {
      if (coming !== told) return;
      coming = null;
      latest = { drawn: told, view: window.studioView.read(), hits: latest.hits };
      sync(600);
    });
  }

  /* The elements arrive in React's own time: wait for them, then paint and, once per drawing, set the camera. */
  function sync(tries) {
    window.clearTimeout(waiting);
    if (!latest.drawn.key) return;
    var cy = graph();
    if (!ready(cy)) {
      if (tries > 0) waiting = window.setTimeout(sync, 8, tries - 1);
      return;
    }
    wire(cy);
    if (latest.drawn.mode === "fold") dress(cy);
    if (framed !== latest.drawn.key || !cy.scratch("cs-framed")) {
      framed = latest.drawn.key;
      cy.scratch("cs-framed", true);
      touched = false;
      cy.scratch("cs-afar", null);
      /* It learns of its size late, and until then takes no finger, and no click for one on a node. */
      resizing = true;
      cy.resize();
      resizing = false;
      cy.batch(function () {
        frame(cy);
        print(cy);
        paint(cy);
        filter(cy);
      });
      announce();
      element("graph-canvas").dataset.ready = latest.drawn.key;
      painted = looks(latest);
      return;
    }
    if (painted === looks(latest)) return;
    painted = looks(latest);
    paint(cy);
    filter(cy);
    announce();
    if (chosen(cy).length && chosen(cy).data("kind") !== "frame") bringIntoView(cy, chosen(cy));
  }

  /* All that the marks on a drawing come from. */
  function looks(shown) {
    var view = shown.view, theme = document.documentElement.getAttribute("data-mantine-color-scheme");
    return JSON.stringify([shown.drawn.key, view.node, view.block, view.q, view.hide, view.anchor, view.at, shown.hits, theme]);
  }

  function announce() {
    document.dispatchEvent(new CustomEvent("chakra:graph", { detail: { view: latest.view } }));
  }

  /* --- pointer ------------------------------------------------------------------------------------------------ */

  function tip(node) {
    var box = element("graph-tip");
    if (!box) return;
    box.hidden = !node;
    if (!node) return;
    var data = node.data();
    var lines = [data.name || "(no name)", data.type + (data.bytes ? " · " + data.bytes : "") + " · id " + data.id];
    if (data.block !== undefined) {
      lines[1] = data.count.toLocaleString("en-US") + " nodes" + (data.time ? " · " + data.time + " in all" : "") + (data.bytes ? " · " + data.bytes : "");
      lines.push(data.kind === "frame" ? "double click to close" : "double click to open");
    }
    if (data.value) lines.splice(2, 0, data.value);
    if (data.crit) lines.push("on the critical path");
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
    /* What dash-cytoscape reports to Dash: the window after every frame, all elements after every change, everything
       known of a node after every hover. Nobody asks for it, and each report draws the page anew. */
    ["viewport", "add", "remove", "dragfree"].forEach(function (name) {
      cy.off(name);
    });
    ["tap", "mouseover", "mouseout"].forEach(function (name) {
      cy.off(name, "node");
      cy.off(name, "edge");
    });
    cy.on("add data", "node", arrived);
    cy.on("tap", function (event) {
      if (event.target === cy) select(null);
      else if (event.target.data("block") !== undefined) selectBlock(event.target.data("block"));
      else if (event.target.isNode()) select(event.target.id());
    });
    cy.on("dbltap", "node", function (event) {
      var data = event.target.data();
      if (data.block !== undefined) return data.kind === "frame" ? closeBlock(cy, data.block) : openBlock(cy, data.block);
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
    /* The inspector of a link opens after the drawing has been framed: it is framed again. Once the user has done
       anything, what is looked at stays where it is. */
    cy.on("resize", function () {
      if (resizing || cy.destroyed()) return; /* destroyed: the page is being left */
      var node = chosen(cy);
      /* What was asked for comes next, and is put in its place then. */
      if (pin && Date.now() - pin.since < SETTLING) return;
      if (!touched) frame(cy);
      else if (node.length && node.data("kind") !== "frame") bringIntoView(cy, node);
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
      if (latest.drawn.mode === "fold") {
        first = cy.nodes('[kind = "block"]');
        if (first.length) selectBlock(first[0].data("block"));
        else if (cy.nodes().length) select(cy.nodes()[0].id());
      } else if (first) select(first);
      return;
    }
    var next;
    if (key === "ArrowUp") next = nearest(node.incomers("node"), node);
    if (key === "ArrowDown") next = nearest(node.outgoers("node"), node);
    if (key === "ArrowLeft") next = beside(cy, node, -1);
    if (key === "ArrowRight") next = beside(cy, node, 1);
    if (next && next.data("block") !== undefined) selectBlock(next.data("block"));
    else if (next) select(next.id());
    else if (node.data("hidden") > 0 && (key === "ArrowUp" || key === "ArrowDown")) change({ at: null });
  }

  function typing(target) {
    return Boolean(target.closest && target.closest("input, textarea, select, [contenteditable], [role=listbox]"));
  }

  /* Arrows scroll what has the focus; they walk the graph only from the page itself. */
  function onGraph(target) {
    return target === document.body || target.id === "content" || Boolean(target.closest && target.closest("#graph-page, #graph-canvas"));
  }

  /* A step leads to a hit whose own neighbours are still to be asked for. Steps that are faster wait for them. */
  var stepped = null, owed = [];
  function stepping(event) {
    var button = event.target.closest && event.target.closest("#graph-next, #graph-previous");
    if (!button) return;
    var to = button.getAttribute("data-view");
    if (to === stepped && window.studioView.read().node === String(JSON.parse(to).node)) {
      owed.push({ id: button.id, until: Date.now() + 10000 });
      event.stopPropagation();
    } else stepped = to;
  }

  function stepOn() {
    var button = owed.length ? element(owed[0].id) : null;
    if (!button || button.getAttribute("data-view") === stepped) return;
    if (owed.shift().until < Date.now()) owed = [];
    else button.click();
    owed.forEach(function (one) { one.until = Date.now() + 10000; });
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

  function zoomBy(cy, factor) {
    cy.zoom({ level: cy.zoom() * factor, renderedPosition: { x: cy.width() / 2, y: cy.height() / 2 } });
  }

  function enter(cy) {
    var data = chosen(cy).data();
    if (!data) return;
    if (data.kind === "block") openBlock(cy, data.block, true);
    else if (data.kind === "frame") closeBlock(cy, data.block);
    else change({ node: data.id, at: null, show: "near" });
  }

  function beginPath() {
    if (latest.view.node) change({ anchor: latest.view.node, at: null, show: "path" });
  }

  function nextHit(back) {
    var button = element(back ? "graph-previous" : "graph-next");
    if (button) button.click();
  }

  function pageKey(event, cy) {
    if (event.key.indexOf("Arrow") === 0) step(cy, event.key);
    else if (event.key === "Enter") {
      if (event.target.closest("button, a, [role=radiogroup]")) return;
      enter(cy);
    } else if (event.key === "Backspace") {
      if (around(cy)) closeBlock(cy, around(cy));
    } else if (event.key === "+" || event.key === "=") zoomBy(cy, 1.3);
    else if (event.key === "-") zoomBy(cy, 1 / 1.3);
    else if (event.key === "0") zoomBy(cy, 1 / cy.zoom());
    else if (event.key === "c" || event.key === "C") element("graph-crit").click();
    else if (event.key === "w" || event.key === "W") element("graph-wide").click();
    else if (event.key === "?") element("graph-help-list").showModal();
    else if (event.key === "p" || event.key === "P") beginPath();
    else if (event.key === "n" || event.key === "N") nextHit(event.key === "N");
    else if (event.key === "f" || event.key === "F") fit(cy);
    else if (event.key === "/") {
      element("graph-q").focus();
      element("graph-q").select();
    } else if (event.key === "Escape") change({ node: null, block: null });
    else return;
    event.preventDefault();
  }

  document.addEventListener("click", stepping, true);
  document.addEventListener("pointerdown", function (event) {
    if (!event.target.closest("#graph-next, #graph-previous")) owed = [];
  }, true);
  ["pointerdown", "wheel", "keydown"].forEach(function (name) {
    document.addEventListener(name, function () { touched = true; }, { capture: true, passive: true });
  });

  document.addEventListener("keydown", function (event) {
    var cy = graph();
    if (!cy || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || document.querySelector("dialog[open]")) return;
    /* The key before this one may have changed the view, of which Dash tells only later. */
    latest.view = window.studioView.read();
    if (event.target.id === "graph-q") searchKey(event);
    else if (!typing(event.target) && onGraph(event.target)) pageKey(event, cy);
  });

  document.addEventListener("click", function (event) {
    if (!event.target.closest || !graph()) return;
    /* The click before this one may have changed the view, of which Dash tells only later. */
    latest.view = window.studioView.read();
    if (event.target.id === "graph-fit") fit(graph());
    if (event.target.id === "graph-help") element("graph-help-list").showModal();
    if (event.target.id === "graph-help-close") element("graph-help-list").close();
    if (event.target.id === "graph-crit") change({ crit: latest.view.crit ? null : "1" });
    if (event.target.id === "graph-wide") change({ wide: latest.view.wide ? null : "1" });
    var entry = event.target.closest("#graph-legend [data-filter]");
    if (entry) toggled(entry.dataset.filter);
  });

  /* --- controls ⇄ view ---------------------------------------------------------------------------------------- */

  function held(view) {
    var values = Object.assign({}, DEFAULTS);
    CONTROLS.forEach(function (key) {
      if (view[key] !== undefined) values[key] = view[key];
    });
    return values;
  }

  window.studioGraph = {
    cy: graph,
    latest: function () {
      return latest;
    },
    chosen: chosen,
    select: select,
    ready: function () {
      return ready(graph());
    },
  };

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    studio_graph: {
      controls: function (view, drawn, ranks) {
        var keep = window.dash_clientside.no_update;
        var values = held(view);
        if (values.rank === undefined) values.rank = ranks && ranks.length ? ranks[0] : null;
        values.show = drawn.mode || keep;
        ["crit", "wide"].forEach(function (name) {
          if (element("graph-" + name)) element("graph-" + name).setAttribute("aria-pressed", view[name] ? "true" : "false");
        });
        var other = element("graph-with") && element("graph-with").closest(".cs-graph-field");
        if (other) other.toggleAttribute("data-off", drawn.colour !== "difference");
        /* Where the address names none, the first that there is. */
        if (values["with"] === undefined || values["with"] === view.run) values["with"] = drawn.against || keep;
        values.by = drawn.by && drawn.mode === "fold" ? drawn.by : keep;
        var field = element("graph-q");
        /* What is being typed is newer than the view it leads to. */
        if (field && document.activeElement === field && typed === values.q) values.q = keep;
        ["depth", "dir"].forEach(function (name) {
          var label = element("graph-" + name) && element("graph-" + name).closest(".cs-graph-field");
          if (label) label.toggleAttribute("data-off", drawn.mode !== "near");
        });
        var by = element("graph-by") && element("graph-by").closest(".cs-graph-field");
        if (by) by.toggleAttribute("data-off", drawn.mode !== "fold");
        /* A control that is told what it holds already costs as much as one that changes. */
        if (mounted !== field) given = {};
        mounted = field;
        return CONTROLS.map(function (key) {
          if (values[key] === keep || values[key] === given[key]) return keep;
          return (given[key] = values[key]);
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
          if (key === "colour") patch.hide = null;
          if (key === "rank") patch.anchor = null;
          if (key === "rank" || key === "by") patch.open = patch.block = null;
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
        if (opening && latest.drawn.opened && opening.every(function (one) { return latest.drawn.opened.indexOf(one) >= 0; })) opening = null;
        if (graph()) wire(graph());
        sync(600);
        window.setTimeout(stepOn, 0);
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
