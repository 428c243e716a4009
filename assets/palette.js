/* The command palette (Ctrl+K): jumps to pages, jobs, runs, ranks and nodes. */
(function () {
  "use strict";

  var dialog = null, input, list, items = [], active = 0, asked = 0, timer = 0;
  var answered = null; /* the words of which the list is */
  var entered = false; /* Enter was pressed before the list was there */

  function build() {
    dialog = document.createElement("dialog");
    dialog.className = "cs-palette";
    dialog.setAttribute("aria-label", "Jump to");
    input = document.createElement("input");
    input.type = "text";
    input.placeholder = "Page, job, run, rank, node name or id";
    input.autocomplete = "off";
    input.spellcheck = false;
    [["role", "combobox"], ["aria-label", "Jump to"], ["aria-expanded", "true"], ["aria-controls", "palette-list"], ["aria-autocomplete", "list"]].forEach(set(input));
    list = document.createElement("ul");
    list.id = "palette-list";
    [["role", "listbox"], ["aria-label", "Found"]].forEach(set(list));
    dialog.append(input, list);
    document.body.appendChild(dialog);
    input.addEventListener("input", function () {
      entered = false;
      window.clearTimeout(timer);
      timer = window.setTimeout(ask, 120);
    });
    dialog.addEventListener("keydown", keys);
    dialog.addEventListener("click", function (event) {
      if (event.target === dialog) dialog.close();
      var row = event.target.closest("[role=option]");
      if (row) choose(items[Number(row.dataset.at)]);
    });
  }

  function set(node) {
    return function (pair) {
      node.setAttribute(pair[0], pair[1]);
    };
  }

  function open() {
    if (!dialog) build();
    if (dialog.open) return dialog.close();
    input.value = "";
    answered = null;
    entered = false;
    items = [];
    list.textContent = "";
    dialog.showModal();
    ask();
  }

  function ask() {
    var number = ++asked, words = input.value;
    window.clearTimeout(timer);
    var query = new URLSearchParams({ q: words, job: window.studioView.read().job || "" });
    fetch("/api/palette?" + query).then(function (answer) {
      if (!answer.ok) throw new Error("The studio answered with " + answer.status + ".");
      return answer.json();
    }).then(function (found) {
      if (number === asked) show(words, found, "Nothing is called that.");
    }, function () {
      if (number === asked) show(words, [], "The studio does not answer.");
    });
  }

  /* What was typed is what is meant, also where its list is still to come. */
  function enter() {
    if (input.value === answered) {
      if (items.length) choose(items[active]);
      return;
    }
    entered = true;
    ask();
  }

  function show(words, found, nothing) {
    if (!dialog.open) return;
    items = found;
    answered = words;
    list.textContent = "";
    items.forEach(function (item, at) {
      var row = document.createElement("li");
      row.id = "palette-" + at;
      row.dataset.at = String(at);
      row.setAttribute("role", "option");
      [["kind", item.kind], ["title", item.title], ["about", item.about]].forEach(function (part) {
        var span = document.createElement("span");
        span.className = "cs-palette-" + part[0];
        span.textContent = part[1];
        row.appendChild(span);
      });
      list.appendChild(row);
    });
    if (!items.length) {
      var row = document.createElement("li");
      row.className = "cs-dim";
      row.textContent = nothing;
      list.appendChild(row);
    }
    point(0);
    if (entered && words === input.value && items.length) choose(items[0]);
  }

  function point(at) {
    active = Math.max(0, Math.min(at, items.length - 1));
    Array.from(list.children).forEach(function (row, index) {
      if (!items.length) return;
      row.setAttribute("aria-selected", String(index === active));
      if (index === active) row.scrollIntoView({ block: "nearest" });
    });
    if (items.length) input.setAttribute("aria-activedescendant", "palette-" + active);
    else input.removeAttribute("aria-activedescendant");
  }

  function keys(event) {
    if (event.key === "ArrowDown") point(active + 1);
    else if (event.key === "ArrowUp") point(active - 1);
    else if (event.key === "Enter") enter();
    else {
      /* Keys of the page below mean nothing here; Escape closes, as everywhere. */
      event.stopPropagation();
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  function choose(item) {
    dialog.close();
    var view = window.studioView.read();
    if (item.path) {
      var kept = { job: view.job, run: view.run, rank: view.rank, node: view.node };
      return window.studioView.go(item.path, kept);
    }
    if (item.kind === "rank") return lead(item.view, view);
    var home = window.location.pathname === "/";
    if (home || item.kind === "job") {
      var next = item.kind === "job" ? item.view : Object.assign({}, view, item.view);
      return window.studioView.go(home ? (item.kind === "node" ? "/graph" : "/overview") : window.location.pathname, next);
    }
    window.studioView.change(item.view);
  }

  /* A rank is seen where its lanes, its nodes or its graph are; from elsewhere the way leads to its graph. */
  function lead(rank, view) {
    var here = window.location.pathname;
    if (here === "/timeline") return window.studioView.change(Object.assign({ top: rank.rank }, rank));
    if (here === "/graph") return window.studioView.change(rank);
    if (here !== "/nodes") return window.studioView.go("/graph", Object.assign({ job: view.job, run: view.run }, rank));
    var filters;
    try {
      filters = JSON.parse(view.f || "{}");
    } catch (_) {
      filters = {};
    }
    window.studioView.change(Object.assign({ f: JSON.stringify(Object.assign({}, filters, { rank: ["matches", rank.rank] })) }, rank));
  }

  document.addEventListener("keydown", function (event) {
    if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      event.stopPropagation();
      open();
    }
  }, true);
  document.addEventListener("click", function (event) {
    if (event.target.closest && event.target.closest("#palette-open")) open();
  });
})();
