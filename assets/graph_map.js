/* The Graph page: a map of the whole graph above the drawing, with what is in the window marked; and saving. */
(function () {
  "use strict";

  var COLOURS = { 1: "host", 2: "memory", 3: "memory", 4: "compute", 5: "p2p", 6: "p2p", 7: "collective" };
  var known = { key: null, width: 0, height: 0, kind: null, shown: null, theme: null };
  var asked = null;

  function element(id) {
    return document.getElementById(id);
  }

  function token(name) {
    var hex = getComputedStyle(document.documentElement).getPropertyValue("--cs-" + name).trim();
    return [1, 3, 5].map(function (at) {
      return parseInt(hex.substr(at, 2), 16);
    });
  }

  function query(view, more) {
    var parts = new URLSearchParams(more || {});
    Object.keys(view).forEach(function (key) {
      if (key !== "job" && view[key] !== null && view[key] !== undefined) parts.set(key, view[key]);
    });
    return parts.toString();
  }

  function address(view, what, more) {
    return "/api/jobs/" + encodeURIComponent(view.job) + "/" + what + "?" + query(view, more);
  }

  /* --- the map ------------------------------------------------------------------------------------------------ */

  function load(view) {
    var key = JSON.stringify([view.job, view.rank || null]);
    if (asked === key) return;
    asked = key;
    var rank = view.rank ? { rank: view.rank } : {};
    fetch("/api/jobs/" + encodeURIComponent(view.job) + "/graph/map?" + new URLSearchParams(rank))
      .then(function (answer) {
        return answer.ok ? answer.arrayBuffer() : null;
      })
      .then(function (buffer) {
        if (!buffer || asked !== key) return;
        known = Object.assign({ key: key, theme: null }, window.studioUnpacked(buffer));
        draw();
      })
      .catch(function () {
        /* The page says that the studio does not answer; the next step asks again. */
        if (asked === key) asked = null;
      });
  }

  function draw() {
    var canvas = element("graph-map-canvas");
    var theme = document.documentElement.getAttribute("data-mantine-color-scheme");
    if (!canvas || !known.width || (known.theme === theme && canvas.dataset.key === known.key)) return;
    var width = known.width, height = known.height;
    canvas.width = width;
    canvas.height = height;
    canvas.dataset.key = known.key;
    known.theme = theme;
    var context = canvas.getContext("2d");
    var image = context.createImageData(width, height);
    var colours = {};
    for (var at = 0; at < width * height; at++) {
      if (!known.shown[at]) continue;
      var kind = known.kind[at];
      var colour = colours[kind] || (colours[kind] = token(COLOURS[kind] || "host"));
      image.data[4 * at] = colour[0];
      image.data[4 * at + 1] = colour[1];
      image.data[4 * at + 2] = colour[2];
      image.data[4 * at + 3] = 0.7 * known.shown[at];
    }
    context.putImageData(image, 0, 0);
    element("graph-map").dataset.ready = known.key;
  }

  /* Which layers are in the window: those of the nodes and blocks that are. */
  function mark() {
    var cy = window.studioGraph.cy(), box = element("graph-map-marks");
    if (!cy || !box || !window.studioGraph.ready()) return;
    var seen = cy.extent(), spans = [];
    cy.nodes().forEach(function (one) {
      var m = one.data("m"), at = one.position();
      if (!m || one.data("kind") === "frame") return;
      var wide = one.data("kind") === "block" ? 86 : 46;
      if (at.x + wide < seen.x1 || at.x - wide > seen.x2 || at.y + 26 < seen.y1 || at.y - 26 > seen.y2) return;
      spans.push(m);
    });
    spans.sort(function (one, other) {
      return one[0] - other[0];
    });
    var merged = [];
    spans.forEach(function (one) {
      var last = merged[merged.length - 1];
      if (last && one[0] <= last[1] + 0.002) last[1] = Math.max(last[1], one[1]);
      else merged.push([one[0], one[1]]);
    });
    var marks = merged.map(function (one) {
      return made("cs-map-view", one);
    });
    var node = window.studioGraph.chosen(cy);
    if (node.length && node.data("m")) marks.push(made("cs-map-node" + (node.data("m")[1] - node.data("m")[0] > 0.01 ? " cs-map-wide" : ""), node.data("m")));
    box.replaceChildren.apply(box, marks);
  }

  function made(name, span) {
    var one = document.createElement("div");
    one.className = name;
    one.style.left = (100 * span[0]).toFixed(3) + "%";
    one.style.width = "max(3px, " + (100 * (span[1] - span[0])).toFixed(3) + "%)";
    return one;
  }

  var turn = 0, wired = null;
  function tick() {
    turn = 0;
    draw();
    mark();
  }
  /* The marks follow the hand at a distance: each costs the page a layout. */
  function soon() {
    if (!turn) turn = window.setTimeout(tick, 80);
  }

  document.addEventListener("chakra:graph", function (event) {
    var view = event.detail.view, cy = window.studioGraph.cy();
    if (view.job) load(view);
    if (cy && cy !== wired) {
      wired = cy;
      cy.on("viewport", soon);
    }
    soon();
  });

  /* --- going there: the pointer and the keys aim, letting go and Enter take there --------------------------------- */

  var aim = null, held = false;
  var fingers = new Map(), apart = 0; /* where the fingers on the map are, and how far from each other two were */

  function aimAt(x, y) {
    var map = element("graph-map"), mark = element("graph-map-aim");
    aim = { x: clamp(x), y: clamp(y) };
    mark.hidden = false;
    mark.style.left = (100 * aim.x).toFixed(2) + "%";
    mark.style.top = (100 * aim.y).toFixed(2) + "%";
    map.setAttribute("aria-valuenow", String(Math.round(100 * aim.x)));
    map.setAttribute("aria-valuetext", Math.round(100 * aim.x) + " % of the depth, " + Math.round(100 * aim.y) + " % from the top; Enter goes there");
  }

  function go() {
    if (!aim || !known.width) return;
    var view = window.studioGraph.latest().view, place = { x: aim.x, y: aim.y }, mine = asked, page = window.location.pathname;
    if (view.rank) place.rank = view.rank;
    fetch("/api/jobs/" + encodeURIComponent(view.job) + "/graph/map/node?" + new URLSearchParams(place))
      .then(function (answer) {
        return answer.json();
      })
      .then(function (found) {
        /* An id means another node on another rank, and nothing on another page. */
        if (found.node && mine === asked && page === window.location.pathname) window.studioView.change({ node: found.node, block: null, at: null, show: window.studioGraph.latest().drawn.mode });
      });
  }

  function pointed(event) {
    var map = event.target.closest && event.target.closest("#graph-map");
    if (!map || !known.width || event.button > 0) return;
    if (event.pointerType === "touch" && pinched(map, event)) return;
    var box = map.getBoundingClientRect();
    if (event.type === "pointerdown") {
      held = true;
      map.setPointerCapture(event.pointerId);
    }
    if (!held) return;
    aimAt((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
    if (event.type !== "pointerup") return;
    held = false;
    element("graph-map-aim").hidden = true;
    go();
  }
  ["pointerdown", "pointermove", "pointerup"].forEach(function (name) {
    document.addEventListener(name, pointed);
  });
  document.addEventListener("pointercancel", function () {
    held = false;
    fingers.clear();
    apart = 0;
    if (element("graph-map-aim")) element("graph-map-aim").hidden = true;
  });

  /* The map always shows the whole graph: two fingers on it bring the drawing closer, whose part of the map shrinks or
     grows with them, and go nowhere. Tells whether that is what the hand does, until its last finger is gone. */
  function pinched(map, event) {
    var cy = window.studioGraph.cy();
    if (event.type === "pointerup") fingers.delete(event.pointerId);
    else if (event.type === "pointerdown" || fingers.has(event.pointerId)) fingers.set(event.pointerId, [event.clientX, event.clientY]);
    if (fingers.size === 2 && cy) {
      var at = Array.from(fingers.values()), now = Math.max(10, Math.hypot(at[0][0] - at[1][0], at[0][1] - at[1][1]));
      if (!apart) map.setPointerCapture(event.pointerId);
      else if (event.type === "pointermove") cy.zoom({ level: (cy.zoom() * now) / apart, renderedPosition: { x: cy.width() / 2, y: cy.height() / 2 } });
      apart = now;
      held = false;
      element("graph-map-aim").hidden = true;
    }
    var mine = apart > 0;
    if (!fingers.size) apart = 0;
    return mine;
  }

  var STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

  /* From where the selected node is, else what is in the window, else the beginning. */
  function begin() {
    var mark = document.querySelector("#graph-map-marks .cs-map-node") || document.querySelector("#graph-map-marks .cs-map-view");
    if (!aim || element("graph-map-aim").hidden) aim = { x: mark ? parseFloat(mark.style.left) / 100 : 0, y: 0.7 };
  }

  document.addEventListener("keydown", function (event) {
    if (event.target.id !== "graph-map" || !known.width || event.ctrlKey || event.altKey || event.metaKey) return;
    var step = STEPS[event.key], far = event.shiftKey ? 10 : 1;
    if (step) {
      begin();
      aimAt(aim.x + step[0] * far * Math.max(1 / known.width, 0.01), aim.y + step[1] * far * 0.125);
    } else if (event.key === "Home" || event.key === "End") {
      begin();
      aimAt(event.key === "Home" ? 0 : 1, aim.y);
    } else if (event.key === "Enter") go();
    else if (event.key === "Escape") element("graph-map-aim").hidden = true;
    else return;
    event.preventDefault();
    event.stopPropagation();
  }, true);
  document.addEventListener("focusout", function (event) {
    if (event.target.id === "graph-map") element("graph-map-aim").hidden = true;
  });

  function clamp(share) {
    return Math.min(1, Math.max(0, share));
  }

  /* --- saving ------------------------------------------------------------------------------------------------- */

  function save(kind) {
    var view = window.studioGraph.latest().view, cy = window.studioGraph.cy();
    var name = "graph-" + view.job + "." + kind;
    var theme = document.documentElement.getAttribute("data-mantine-color-scheme");
    if (kind === "png") {
      var ground = getComputedStyle(document.documentElement).getPropertyValue("--cs-bg").trim();
      cy.png({ output: "blob-promise", full: true, scale: 2, maxWidth: 8000, maxHeight: 8000, bg: ground }).then(function (blob) {
        window.studioExport.save(name, blob);
      });
      return;
    }
    if (kind === "table") {
      window.studioExport.open({ name: "graph-" + view.job, title: "What is drawn of the graph", source: address(view, "graph.csv") });
      return;
    }
    fetch(address(view, "graph." + kind, { theme: theme }))
      .then(function (answer) {
        return answer.blob();
      })
      .then(function (blob) {
        window.studioExport.save(name, blob);
      });
  }

  document.addEventListener("click", function (event) {
    var button = event.target.closest && event.target.closest("[data-graph-save]");
    if (!button || !window.studioGraph.cy()) return;
    save(button.dataset.graphSave);
  });
})();
