/* The Simulate page: the address follows the form and the form the address; the topology is drawn as SVG. */
(function () {
  "use strict";

  var SVG = "http://www.w3.org/2000/svg";
  var LARGEST = 1.7;
  var EVERY_MS = 400; /* between two looks at what is under way */
  /* Where the address was when the page last looked, and how often it had gone there by itself: by a link, or back. */
  var seen = null, turn = 0;
  var timer = 0;
  var skip = function () { return window.dash_clientside.no_update; };

  function place(job, config) {
    return job + " " + config;
  }

  function remembered(job) {
    try {
      return window.sessionStorage.getItem("sim-config " + job) || "";
    } catch (error) {
      return "";
    }
  }

  function remember(job, config) {
    try {
      window.sessionStorage.setItem("sim-config " + job, config);
    } catch (error) {
      /* Without storage the address alone knows the system. */
    }
  }

  function wanted(now) {
    seen = place(now.job || "", now.config || "");
    turn += 1;
    return { job: now.job || "", config: now.config || (now.job ? remembered(now.job) : ""), run: now.run || "", turn: turn };
  }

  function look() {
    if (document.getElementById("sim-active")) window.dash_clientside.set_props("sim-tick", { data: Date.now() });
  }

  function make(name, attributes, into) {
    var made = document.createElementNS(SVG, name);
    Object.keys(attributes).forEach(function (key) {
      made.setAttribute(key, String(attributes[key]));
    });
    into.appendChild(made);
    return made;
  }

  function shape(one, into) {
    var at = one.at, made;
    if (one.kind === "rect") made = make("rect", { x: at[0], y: at[1], width: at[2], height: at[3], rx: 3 }, into);
    else if (one.kind === "line") made = make("line", { x1: at[0], y1: at[1], x2: at[2], y2: at[3] }, into);
    else if (one.kind === "path") made = make("path", { d: one.d }, into);
    else {
      made = make("text", { x: at[0], y: at[1] }, into);
      made.textContent = one.text;
    }
    made.setAttribute("class", one.look);
    if (one.width) made.style.strokeWidth = one.width;
    if (one.title) make("title", {}, made).textContent = one.title;
  }

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    studio_simulate: {
      /* The form is asked for where the address has gone by itself; where it followed the form, that is there already. */
      follow: function (view, form) {
        var now = window.studioView.read(), here = place(now.job || "", now.config || "");
        if (window.location.pathname !== "/simulate") return skip();
        if (form && form.job === now.job && here === seen) return skip();
        return wanted(now);
      },
      /* A new state of the system is a step of the history, but for the letters typed into one field. Where the address has
         gone elsewhere meanwhile, it is the form that has to come after. */
      go: function (step) {
        var now = window.studioView.read();
        if (!step || window.location.pathname !== "/simulate") return skip();
        if (step.turn !== turn) {
          /* Of its own: what follows from an answer does not call this again. */
          window.dash_clientside.set_props("sim-show", { data: wanted(now) });
          return skip();
        }
        if (place(now.job || "", now.config || "") !== seen) return skip(); /* "follow" is about to be called. */
        remember(step.job, step.config);
        seen = place(step.job, step.config);
        window.studioView.change({ config: step.config }, { replace: step.replace });
        return skip();
      },
      /* Which run of which job the page shows; told only when that is another. */
      which: function (view, form, known) {
        var now = window.studioView.read(), job = form && form.job === now.job ? now.job : "";
        var shown = { job: job, run: job ? now.run || "" : "" };
        return known && known.job === shown.job && known.run === shown.run ? skip() : shown;
      },
      progress: function (items) {
        window.clearTimeout(timer);
        (items || []).forEach(function (item) {
          var row = document.querySelector("[data-progress='" + window.CSS.escape(item.id) + "']"), bar = row && row.querySelector("progress");
          if (!row) return;
          row.querySelector(".sim-stand").textContent = item.said;
          if (!item.total) return;
          bar.max = item.total;
          bar.value = item.done;
        });
        if (items && items.length) timer = window.setTimeout(look, EVERY_MS);
        return skip();
      },
      finished: function (run) {
        if (run && run.job === window.studioView.read().job) window.studioView.change({ run: run.run }, { replace: true });
        return skip();
      },
      draw: function (drawing) {
        /* The file input inside the upload component takes no label of its own. */
        var chooser = document.querySelector("#sim-upload input");
        if (chooser) chooser.setAttribute("aria-label", "ASTRA-sim's files to import");
        var box = document.getElementById("sim-drawing");
        if (!box) return skip();
        box.replaceChildren();
        if (!drawing || !drawing.shapes) return "";
        var svg = make("svg", { viewBox: "0 0 " + drawing.width + " " + drawing.height, role: "img", "aria-label": drawing.sentence }, box);
        svg.style.maxWidth = drawing.width * LARGEST + "px";
        svg.style.height = Math.min(drawing.height * LARGEST, 250) + "px";
        /* Texts of a drawing that is made smaller stay readable. */
        svg.style.fontSize = Math.max(11, 11 * drawing.width / 430, 11 * drawing.height / 250) + "px";
        drawing.shapes.forEach(function (one) { shape(one, svg); });
        return drawing.sentence;
      },
    },
  });
})();
