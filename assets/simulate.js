/* The Simulate page: the address follows the form and the form the address; the topology is drawn as SVG. */
(function () {
  "use strict";

  var SVG = "http://www.w3.org/2000/svg";
  var LARGEST = 1.7;
  var own = null;
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
      /* What the form shows already is not sent again: it would overwrite what is being typed. */
      follow: function (view, form) {
        var now = window.studioView.read();
        if (window.location.pathname !== "/simulate") return skip();
        if (form && form.config && (!own || own.split(" ")[0] !== now.job)) own = place(form.job, form.config);
        if (now.job && own === place(now.job, now.config || "")) return skip();
        return { job: now.job || "", config: now.config || (now.job ? remembered(now.job) : ""), run: now.run || "" };
      },
      /* A new state of the system is a step of the history, but for the letters typed into one field. */
      go: function (step) {
        if (!step || !step.config) return skip();
        if (step.own) own = place(step.job, step.config);
        remember(step.job, step.config);
        if (window.studioView.read().job === step.job) window.studioView.change({ config: step.config }, { replace: step.replace });
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
