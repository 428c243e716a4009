/* Saving figures as PNG and SVG, and the tables behind them as CSV and TSV: see studio/pages/_export.py. */
(function () {
  "use strict";

  var SHOWN = 1000;
  var SHARP = 2; /* pixels of a PNG for one of the page */
  var drawers = {};

  /* A canvas says itself how it is drawn: {png: () => Promise<Blob>, svg: () => Promise<string>}. */
  function register(id, drawer) {
    drawers[id] = drawer;
  }

  function save(name, blob) {
    var link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    window.setTimeout(function () { URL.revokeObjectURL(link.href); }, 10000);
  }

  function complain(error) {
    window.dash_clientside.set_props("toast", { children: "This could not be saved: " + ((error && error.message) || "the browser gives no reason") });
  }

  function token(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  /* --- pictures ----------------------------------------------------------------------------------------------- */

  function svgOf(id) {
    if (drawers[id] && document.getElementById(id)) return drawers[id].svg();
    var host = document.getElementById(id);
    if (!host) return Promise.reject(new Error("the figure is not on this page"));
    var plot = host.matches(".js-plotly-plot") ? host : host.querySelector(".js-plotly-plot");
    if (plot) return plotly(plot, "svg", 1);
    var drawing = host.matches("svg") ? host : host.querySelector("svg");
    return drawing ? Promise.resolve(standalone(drawing)) : Promise.reject(new Error("there is no figure yet"));
  }

  function pngOf(id) {
    if (drawers[id] && document.getElementById(id)) return drawers[id].png();
    var host = document.getElementById(id);
    var plot = host && (host.matches(".js-plotly-plot") ? host : host.querySelector(".js-plotly-plot"));
    if (plot) return plotly(plot, "png", SHARP).then(bytesOf);
    return svgOf(id).then(rastered);
  }

  /* On the page a figure is transparent; a picture of its own brings the ground it was drawn for. */
  function plotly(plot, format, scale) {
    var ground = token("--cs-panel");
    var layout = Object.assign({}, plot.layout, { paper_bgcolor: ground, plot_bgcolor: ground });
    var box = plot.getBoundingClientRect();
    var wanted = { format: format, width: Math.round(box.width), height: Math.round(box.height), scale: scale };
    return window.Plotly.toImage({ data: plot.data, layout: layout, config: plot._context }, wanted).then(function (url) {
      return format === "svg" ? decodeURIComponent(url.slice(url.indexOf(",") + 1)) : url;
    });
  }

  /* Data URLs cannot be fetched here: the page may connect to its own server only. */
  function bytesOf(url) {
    var text = window.atob(url.slice(url.indexOf(",") + 1));
    var bytes = new Uint8Array(text.length);
    for (var at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
    return new Blob([bytes], { type: "image/png" });
  }

  var WORN = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "opacity", "font-family", "font-size", "font-weight", "text-anchor", "dominant-baseline", "paint-order", "display", "visibility"];

  /* A drawing apart from the page has neither its stylesheets nor its colours: every element takes its own along. */
  function standalone(drawing) {
    var copy = drawing.cloneNode(true);
    var from = [drawing].concat(Array.from(drawing.querySelectorAll("*")));
    [copy].concat(Array.from(copy.querySelectorAll("*"))).forEach(function (one, at) {
      var style = getComputedStyle(from[at]);
      one.setAttribute("style", WORN.map(function (name) { return name + ":" + style.getPropertyValue(name); }).join(";"));
      one.removeAttribute("class");
    });
    var box = drawing.getBoundingClientRect();
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    copy.setAttribute("width", Math.round(box.width));
    copy.setAttribute("height", Math.round(box.height));
    if (!copy.getAttribute("viewBox")) copy.setAttribute("viewBox", "0 0 " + Math.round(box.width) + " " + Math.round(box.height));
    copy.style.background = token("--cs-panel");
    return new XMLSerializer().serializeToString(copy);
  }

  function rastered(svg) {
    return new Promise(function (done, fail) {
      var image = new Image();
      var url = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
      image.onload = function () {
        var canvas = document.createElement("canvas");
        canvas.width = image.width * SHARP;
        canvas.height = image.height * SHARP;
        canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
        URL.revokeObjectURL(url);
        canvas.toBlob(function (blob) { if (blob) done(blob); else fail(new Error("the picture is too large")); });
      };
      image.onerror = function () { fail(new Error("the drawing cannot be read back")); };
      image.src = url;
    });
  }

  /* --- tables ------------------------------------------------------------------------------------------------- */

  /* A figure that only a script knows tells its numbers as it draws its pictures: {table: () => Promise<{head, rows}>}. */
  function tableOf(bar) {
    var drawer = drawers[bar.dataset.figure];
    if (drawer && drawer.table) return drawer.table();
    if (bar.dataset.table) return Promise.resolve(JSON.parse(bar.dataset.table));
    return fetch(bar.dataset.source).then(function (answer) {
      return answer.text().then(function (text) {
        if (!answer.ok) throw new Error(text.slice(0, 300));
        var rows = parsed(text);
        return { head: rows.shift() || [], rows: rows };
      });
    });
  }

  function parsed(text) {
    var rows = [], row = [], cell = "", quoted = false;
    for (var at = 0; at < text.length; at++) {
      var sign = text[at];
      if (quoted) {
        if (sign !== '"') cell += sign;
        else if (text[at + 1] === '"') { cell += '"'; at++; }
        else quoted = false;
      } else if (sign === '"') quoted = true;
      else if (sign === ",") { row.push(cell); cell = ""; }
      else if (sign === "\n") { row.push(cell); rows.push(row); row = []; cell = ""; }
      else if (sign !== "\r") cell += sign;
    }
    if (cell || row.length) { row.push(cell); rows.push(row); }
    return rows;
  }

  /* A text that a spreadsheet would take for a formula gets an apostrophe before it; a number is none. */
  function harmless(value) {
    var text = value === null || value === undefined ? "" : String(value);
    return /^[=+\-@\t\r]/.test(text) && isNaN(Number(text.replace(/ %$/, ""))) ? "'" + text : text;
  }

  function csv(table) {
    return [table.head].concat(table.rows).map(function (row) {
      return row.map(function (value) {
        var text = harmless(value);
        return /[",\n\r]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
      }).join(",");
    }).join("\n") + "\n";
  }

  function tsv(table) {
    return [table.head].concat(table.rows).map(function (row) {
      return row.map(function (value) { return harmless(value).replace(/[\t\r\n]+/g, " "); }).join("\t");
    }).join("\n");
  }

  function copy(text) {
    if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
    /* Opened from another machine without TLS a page has no clipboard of its own. */
    var box = document.createElement("textarea");
    box.value = text;
    (document.querySelector("dialog[open]") || document.body).appendChild(box);
    box.select();
    var done = document.execCommand("copy");
    box.remove();
    return done ? Promise.resolve() : Promise.reject(new Error("the browser does not let the page copy"));
  }

  function acknowledge(button, text) {
    var before = button.textContent;
    button.textContent = text;
    window.setTimeout(function () { button.textContent = before; }, 1500);
  }

  function made(tag, text, name) {
    var one = document.createElement(tag);
    if (text !== undefined) one.textContent = text;
    if (name) one.className = name;
    return one;
  }

  function isNumber(value) {
    return typeof value === "number" || (typeof value === "string" && value !== "" && !isNaN(Number(value)));
  }

  function show(bar, table) {
    var dialog = made("dialog", undefined, "cs-numbers");
    var title = bar.dataset.title;
    dialog.setAttribute("aria-label", title);
    var head = made("div", undefined, "cs-numbers-head");
    var rows = table.rows.length;
    var count = made("span", rows > SHOWN ? "the first " + SHOWN.toLocaleString("en") + " of " + rows.toLocaleString("en") + " rows; copies and files hold all" : rows.toLocaleString("en") + (rows === 1 ? " row" : " rows"), "cs-dim");
    var take = made("button", "Copy as TSV", "cs-button");
    var close = made("button", "Close", "cs-button");
    take.addEventListener("click", function () {
      copy(tsv(table)).then(function () { acknowledge(take, "Copied"); }, complain);
    });
    close.addEventListener("click", function () { dialog.close(); });
    dialog.addEventListener("close", function () { dialog.remove(); });
    dialog.addEventListener("click", function (event) { if (event.target === dialog) dialog.close(); });
    head.append(made("h2", title), count, take, close);
    var scroll = made("div", undefined, "cs-numbers-scroll");
    scroll.tabIndex = 0;
    var grid = made("table", undefined, "cs-table"), top = made("thead"), line = made("tr"), body = made("tbody");
    table.head.forEach(function (name, at) {
      var cell = made("th", name, table.rows.length && isNumber(table.rows[0][at]) ? "cs-num" : "");
      cell.scope = "col";
      line.append(cell);
    });
    top.append(line);
    table.rows.slice(0, SHOWN).forEach(function (row) {
      var shown = made("tr");
      row.forEach(function (value) { shown.append(made("td", value === null ? "" : String(value), isNumber(value) ? "cs-num" : "")); });
      body.append(shown);
    });
    grid.append(top, body);
    scroll.append(grid);
    dialog.append(head, scroll);
    document.body.append(dialog);
    dialog.showModal();
  }

  /* A table of the page as a spreadsheet takes it: rounded figures by their exact value, whose unit stands in the head; without
     marks of definitions and without columns that have no name, which hold buttons. */
  function fromPage(grid) {
    var units = {};
    function word(cell) {
      var copy = cell.cloneNode(true);
      copy.querySelectorAll(".cs-hint").forEach(function (mark) { mark.remove(); });
      return copy.textContent.trim();
    }
    function value(cell, at) {
      var exact = cell.querySelector("[data-exact]");
      if (!exact) return word(cell);
      var parts = /^([+−-]?[\d,]+(?:\.\d+)?)(?: ([A-Za-zµ/%]+))?/.exec(exact.dataset.exact);
      if (!parts) return exact.dataset.exact;
      var unit = parts[2] || "";
      if (!(at in units)) units[at] = unit;
      else if (units[at] !== unit) units[at] = null;
      return { number: parts[1].replace(/,/g, "").replace("−", "-"), unit: unit };
    }
    var lines = Array.from(grid.querySelectorAll("tr")).map(function (row) { return Array.from(row.children); });
    var head = (lines[0] || []).map(word);
    var named = head.map(function (name, at) { return name ? at : -1; }).filter(function (at) { return at >= 0; });
    var rows = lines.slice(1).map(function (line) {
      return named.map(function (at) { return line[at] ? value(line[at], at) : ""; });
    });
    return {
      head: named.map(function (at) { return head[at] + (units[at] ? " (" + units[at] + ")" : ""); }),
      rows: rows.map(function (row) {
        return row.map(function (one, place) {
          if (typeof one === "string") return one;
          return units[named[place]] === null && one.unit ? one.number + " " + one.unit : one.number;
        });
      }),
    };
  }

  var ACTS = {
    png: function (bar) {
      return pngOf(bar.dataset.figure).then(function (blob) { save(bar.dataset.name + ".png", blob); });
    },
    svg: function (bar) {
      return svgOf(bar.dataset.figure).then(function (text) { save(bar.dataset.name + ".svg", new Blob([text], { type: "image/svg+xml" })); });
    },
    csv: function (bar) {
      return tableOf(bar).then(function (table) { save(bar.dataset.name + ".csv", new Blob([csv(table)], { type: "text/csv" })); });
    },
    table: function (bar) {
      return tableOf(bar).then(function (table) { show(bar, table); });
    },
  };

  document.addEventListener("click", function (event) {
    if (!event.target.closest) return;
    var button = event.target.closest("[data-export]");
    var bar = button && button.closest(".cs-export");
    if (bar && ACTS[button.dataset.export]) ACTS[button.dataset.export](bar).catch(complain);
    var taken = event.target.closest("[data-copy]");
    var grid = taken && taken.closest(".cs-copied").querySelector("table");
    if (grid) copy(tsv(fromPage(grid))).then(function () { acknowledge(taken, "Copied"); }, complain);
  });

  /* A menu closes when something was chosen, by Escape, and when somebody looks elsewhere. */
  document.addEventListener("click", function (event) {
    document.querySelectorAll("details.cs-menu[open]").forEach(function (menu) {
      if (!menu.contains(event.target) || event.target.closest(".cs-menu > div button")) menu.open = false;
    });
  });
  document.addEventListener("keydown", function (event) {
    var menu = event.key === "Escape" && event.target.closest && event.target.closest("details.cs-menu[open]");
    if (!menu) return;
    menu.open = false;
    menu.querySelector("summary").focus();
    event.stopPropagation();
  }, true);

  /* The table of numbers that an address answers with as CSV, or one that is there: {name, title, source or table}. */
  function open(about) {
    var bar = { dataset: about };
    tableOf(bar).then(function (table) { show(bar, table); }).catch(complain);
  }

  window.studioExport = { open: open, parsed: parsed, register: register, save: save, csv: csv, tsv: tsv, copy: copy };
})();
