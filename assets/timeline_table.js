/* The marked window as a table: where its time went. */
(function (t) {
  "use strict";

  var key = ""; /* the address of what is shown */
  var found = null;
  var by = "category", per = "rank";
  var sorted = { column: -1, falling: true };

  t.onLoad.push(function () {
    key = "";
    found = null;
  });

  t.onApply.push(function (view) {
    var panel = t.element("timeline-window");
    if (!panel) return;
    var was = panel.hidden;
    panel.hidden = !t.marked || t.marked[1] <= t.marked[0];
    by = ["category", "group", "name", "difference", "counters"].indexOf(view.by) < 0 ? "category" : view.by;
    if (by === "difference" && !t.ghost) by = "category";
    var whole = by === "difference" || by === "counters"; /* of nodes, or of all ranks together */
    per = view.per === "all" && !whole ? "all" : "rank";
    panel.querySelector("[data-window-by=difference]").hidden = !t.ghost;
    panel.querySelector("[data-window-per]").parentNode.hidden = whole;
    press(panel, "by", by);
    press(panel, "per", per);
    if (panel.hidden) {
      key = "";
      return;
    }
    t.say(t.element("timeline-window-title"), t.time(t.marked[1] - t.marked[0]) + " from " + t.moment(t.marked[0]));
    if (was) {
      t.measure();
      t.arrange(view.top);
    }
    ask();
  });

  function press(panel, name, value) {
    panel.querySelectorAll("[data-window-" + name + "]").forEach(function (button) {
      button.setAttribute("aria-pressed", String(button.getAttribute("data-window-" + name) === value));
    });
  }

  function query() {
    if (by === "difference") return { from: t.marked[0], to: t.marked[1], ghost: t.ghost };
    if (by === "counters") return { from: t.marked[0], to: t.marked[1] };
    return { from: t.marked[0], to: t.marked[1], by: by, per: per };
  }

  function path() {
    return by === "difference" ? "/differences" : by === "counters" ? "/counters/window" : "/window";
  }

  function ask() {
    var wanted = t.address(path(), query());
    if (wanted === key) return;
    key = wanted;
    var box = t.element("timeline-window-table");
    t.later("window", 300, function () {
      if (key === wanted && !(found && found.key === wanted)) t.say(t.element("timeline-window-count"), "Adding up…");
    });
    t.get(wanted)
      .then(function (answer) { return answer.json(); })
      .then(function (answer) {
        if (key !== wanted) return;
        found = answer;
        found.key = wanted;
        found.window = t.marked[1] - t.marked[0];
        sorted = { column: -1, falling: true };
        show(box);
      })
      .catch(function (error) {
        if (key === wanted) t.say(t.element("timeline-window-count"), error.message || "The studio does not answer.");
      });
  }

  /* Columns: title, kind of what stands in them, and for bars what is full. */
  function shaped() {
    if (by === "difference") {
      return {
        head: [["rank", "rank"], ["node", "node"], ["name", "text"], ["here", "time"], ["other run", "time"], ["difference", "signed"], ["", "change"], ["issued here", "time"], ["other run", "time"]],
        rows: found.rows.map(function (row) { return [row[0], row[1], row[2], row[3], row[4], row[5], row[4] ? row[5] / row[4] : 0, row[6], row[7]]; }),
      };
    }
    if (by === "counters") {
      return {
        head: [["counter", "counter"], ["mean", "measure"], ["greatest", "measure"], ["first at", "moment"], ["for", "time"]],
        rows: found.rows.map(function (row) { return [row[0], row[2], row[3], row[4], row[5] - row[4], row[1], row[6]]; }),
      };
    }
    if (per === "all") {
      var most = Math.max.apply(null, found.rows.map(function (row) { return row[3]; }).concat(1));
      return {
        head: [["what", "text"], ["ranks", "count"], ["nodes", "count"], ["total", "time", most], ["mean of a rank", "time"], ["least", "time"], ["on rank", "rank"], ["most", "time"], ["on rank", "rank"], ["most / mean", "ratio"]],
        rows: found.rows.map(function (row) { return [row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7], row[8], row[4] ? row[7] / row[4] : 1]; }),
      };
    }
    if (by !== "category") {
      return {
        head: [["rank", "rank"], [by === "group" ? "comm group" : "name", "text"], ["nodes", "count"], ["time", "time", found.window], ["of the window", "share"]],
        rows: found.rows,
      };
    }
    var names = [], lines = new Map();
    found.rows.forEach(function (row) {
      if (names.indexOf(row[1]) < 0) names.push(row[1]);
      if (!lines.has(row[0])) lines.set(row[0], {});
      lines.get(row[0])[row[1]] = row[3];
    });
    names.sort(function (a, b) { return place(a) - place(b); });
    return {
      head: [["rank", "rank"]].concat(names.map(function (name) { return [name, "time", found.window]; })),
      rows: Array.from(lines.entries()).map(function (line) { return [line[0]].concat(names.map(function (name) { return line[1][name] || 0; })); }),
    };
  }

  var ORDER = ["compute", "collective", "send", "receive", "memory", "CPU", "idle"];

  function place(name) {
    return ORDER.indexOf(name);
  }

  var WORDS = { text: true, counter: true };

  function show(box) {
    var table = shaped();
    if (sorted.column >= 0) {
      table.rows = table.rows.slice().sort(function (a, b) {
        var one = a[sorted.column], two = b[sorted.column];
        var order = typeof one === "string" ? one.localeCompare(two) : one - two;
        return sorted.falling ? -order : order;
      });
    }
    var drawn = table.rows.slice(0, 600);
    var node = document.createElement("table"), head = node.createTHead().insertRow(), body = node.createTBody();
    node.className = "cs-table";
    table.head.forEach(function (column, at) {
      var cell = document.createElement("th"), button = document.createElement("button");
      cell.scope = "col";
      if (!WORDS[column[1]]) cell.className = "cs-num";
      button.textContent = column[0];
      button.setAttribute("data-window-sort", at);
      if (sorted.column === at) cell.setAttribute("aria-sort", sorted.falling ? "descending" : "ascending");
      cell.appendChild(button);
      head.appendChild(cell);
    });
    drawn.forEach(function (row) {
      var line = body.insertRow();
      table.head.forEach(function (column, at) { fill(line.insertCell(), column, row[at], row); });
    });
    box.textContent = drawn.length ? "" : "Nothing ran in this window.";
    if (drawn.length) box.appendChild(node);
    var count = found.count > found.rows.length || drawn.length < table.rows.length;
    /* Times of a line that make more than the window want a reason. */
    var split = table.head.length > 2 && table.head.slice(1).every(function (column) { return column[1] === "time"; });
    var over = split && table.rows.some(function (row) {
      return row.slice(1).reduce(function (sum, one) { return sum + one; }, 0) > found.window * 1.0005;
    });
    var note = over ? "what overlaps counts in every column; idle is when nothing ran" : "";
    t.say(t.element("timeline-window-count"), count ? drawn.length.toLocaleString("en") + " of " + found.count.toLocaleString("en") + " rows; the copy has all" : note);
  }

  function fill(cell, column, value, row) {
    var kind = column[1];
    if (!WORDS[kind]) cell.className = "cs-num";
    if (kind === "counter") {
      cell.textContent = value;
      cell.title = row[6];
    } else if (kind === "measure") {
      cell.textContent = t.measured(row[5], value);
      cell.title = row[5] === "share" ? String(value) : value.toLocaleString("en", { maximumFractionDigits: 6 }) + " " + row[5];
    } else if (kind === "moment") {
      cell.textContent = t.moment(value);
      cell.title = value.toLocaleString("en") + " ns";
    } else if (kind === "rank" || kind === "node") {
      var link = document.createElement("a");
      if (kind === "node") {
        link.href = window.studioView.address(window.location.pathname, Object.assign(window.studioView.read(), { rank: row[0], node: value }));
        link.setAttribute("data-view", JSON.stringify({ rank: String(row[0]), node: String(value) }));
        link.textContent = value;
        cell.appendChild(link);
        return;
      }
      link.href = window.studioView.address(window.location.pathname, Object.assign(window.studioView.read(), { top: value }));
      link.setAttribute("data-view", JSON.stringify({ top: String(value) }));
      link.textContent = value;
      cell.appendChild(link);
    } else if (kind === "time") {
      cell.textContent = value ? t.time(Math.round(value)) : "0";
      cell.title = Math.round(value).toLocaleString("en") + " ns";
      if (column[2]) {
        cell.classList.add("cs-window-bar");
        cell.style.setProperty("--share", ((100 * value) / column[2]).toFixed(2) + "%");
      }
    } else if (kind === "signed") {
      cell.textContent = (value > 0 ? "▲ " : value < 0 ? "▼ " : "") + t.signed(value);
      cell.title = value.toLocaleString("en") + " ns";
      cell.classList.add(value > 0 ? "cs-worse" : value < 0 ? "cs-better" : "cs-same");
    } else if (kind === "change") {
      cell.textContent = value ? (value > 0 ? "+" : "−") + (100 * Math.abs(value)).toFixed(1) + " %" : "";
    } else if (kind === "share") {
      cell.textContent = (100 * value).toFixed(value < 0.1 ? 2 : 1) + " %";
      cell.title = String(value);
    } else if (kind === "ratio") {
      cell.textContent = value.toFixed(2);
      cell.title = String(value);
    } else if (kind === "count") {
      cell.textContent = value.toLocaleString("en");
    } else {
      cell.textContent = value;
    }
  }

  /* The table of the server, whole. */
  function copy(button) {
    var text = t.get(t.address(path() + ".tsv", query())).then(function (answer) { return answer.text(); });
    text
      .then(function (copied) { return window.navigator.clipboard.writeText(copied); })
      .then(function () { t.say(button, "Copied"); }, function () { t.say(button, "Not copied"); })
      .then(function () { window.setTimeout(function () { t.say(button, "Copy TSV"); }, 1500); });
  }

  t.buttons["timeline-window-copy"] = copy;
  t.buttons["timeline-window-close"] = function () { t.change({ mark: null }); };

  document.addEventListener("click", function (event) {
    var button = event.target.closest && event.target.closest("#timeline-window button");
    if (!button || !t.chart || !t.chart.ready) return;
    if (button.hasAttribute("data-window-by")) t.change({ by: button.getAttribute("data-window-by") === "category" ? null : button.getAttribute("data-window-by") });
    if (button.hasAttribute("data-window-per")) t.change({ per: button.getAttribute("data-window-per") === "rank" ? null : "all" });
    if (button.hasAttribute("data-window-sort") && found) {
      var column = Number(button.getAttribute("data-window-sort"));
      sorted = { column: column, falling: sorted.column === column ? !sorted.falling : column > 0 };
      show(t.element("timeline-window-table"));
      t.element("timeline-window-table").querySelectorAll("th button")[column].focus();
    }
  });
})(window.studioTimeline = window.studioTimeline || {});
