/* The node list: its rows come page by page from the server; filters, order and selection are those of the address. */
(function () {
  "use strict";

  var GRID = "nodes-grid";
  var TEXTS = { name: 1, type: 1, collective: 1, group: 1 };
  var LEAST = ["waits_for", "operations", "end_ns", "recorded_start_ns", "id", "collective", "start_ns", "group", "recorded_duration_ns", "type"];
  /* What of the shown run is called so where what was recorded stands beside it: heading, and width in both cases. */
  var OF_RUN = { start_ns: ["Start", 104, 104], end_ns: ["End", 104, 104], duration_ns: ["Duration", 94, 128] };
  var RECORDED = ["recorded_start_ns", "recorded_duration_ns"];
  /* How addresses of an earlier studio compare numbers, as people write it today. */
  var SIGNS = { equals: "", notEqual: "!= ", greaterThan: "> ", greaterThanOrEqual: ">= ", lessThan: "< ", lessThanOrEqual: "<= " };

  var api = null; /* of the grid on the page */
  var list = {}; /* what the grid shows: job, q, f, sort */
  var selected = null; /* "rank/ref" */
  var chosenHere = null; /* the selection this page made itself: nothing to scroll to */
  var typed = null; /* what the search box was last told or said */
  var rankShown = null;
  var lastFilter = {};
  var later = window.studioTimers();

  function element(id) {
    return document.getElementById(id);
  }

  function show(id, visible) {
    var found = element(id);
    if (found) found.hidden = !visible;
  }

  /* ---- filters and order, as the address and as the grid write them ---- */

  function shorten(one) {
    var parts = [one.type];
    if (one.filter !== undefined && one.filter !== null) parts.push(one.filter);
    return parts;
  }

  function filterText(model) {
    var short = {};
    Object.keys(model).sort().forEach(function (column) {
      var one = model[column];
      short[column] = one.operator ? [one.operator].concat(one.conditions.map(shorten)) : shorten(one);
    });
    return Object.keys(short).length ? JSON.stringify(short) : "";
  }

  function readFilters(text) {
    try {
      var found = text ? JSON.parse(text) : {};
      return found && typeof found === "object" && !Array.isArray(found) ? found : {};
    } catch (error) {
      return {};
    }
  }

  function lengthen(text, parts) {
    if (!text && parts[0] in SIGNS) parts = ["matches", SIGNS[parts[0]] + parts[1]];
    if (!text && parts[0] === "inRange") parts = ["matches", parts[1] + ".." + parts[2]];
    var one = { filterType: "text", type: parts[0] };
    if (parts.length > 1) one.filter = String(parts[1]);
    return one;
  }

  function gridFilters(text) {
    var short = readFilters(text);
    var model = {};
    Object.keys(short).forEach(function (column) {
      var parts = short[column];
      if (!Array.isArray(parts) || !api.getColumn(column)) return;
      var text = Boolean(TEXTS[column]);
      model[column] = parts[0] === "AND" || parts[0] === "OR"
        ? { filterType: "text", operator: parts[0], conditions: parts.slice(1).map(lengthen.bind(null, text)) }
        : lengthen(text, parts);
    });
    return model;
  }

  function orderText(columns) {
    return columns
      .filter(function (column) { return column.sort; })
      .sort(function (a, b) { return a.sortIndex - b.sortIndex; })
      .map(function (column) { return (column.sort === "desc" ? "-" : "") + column.colId; })
      .join(",");
  }

  function numbered(columns) {
    return columns.map(function (column, index) { return { colId: column.colId, sort: column.sort, sortIndex: index }; });
  }

  function gridOrder(text) {
    return (text || "").split(",").filter(Boolean).map(function (name, index) {
      var falls = name[0] === "-";
      return { colId: falls ? name.slice(1) : name, sort: falls ? "desc" : "asc", sortIndex: index };
    });
  }

  function address(path, more) {
    var view = Object.assign({ run: list.run || null, q: list.q, f: list.f, sort: list.sort }, more);
    return window.studioView.address("/api/jobs/" + encodeURIComponent(list.job) + path, view);
  }

  /* ---- rows ---- */

  function source() {
    var mine = list, grid = api;
    return {
      getRows: function (params) {
        /* After a change in the grid it asks before the address has it; the list of the new address will ask again. */
        if (mine !== list || filterText(params.filterModel) !== mine.filters || orderText(numbered(params.sortModel)) !== mine.order) return params.failCallback();
        fetch(address("/nodes", { start: params.startRow, end: params.endRow }))
          .then(function (answer) { return answer.json(); })
          .then(function (found) {
            /* With the page that was left its grid is gone, and takes no answer. */
            if (grid.isDestroyed()) return;
            if (mine !== list) return params.failCallback();
            if (found.error) throw found.error;
            report(null);
            params.successCallback(found.rows, found.count);
            list.found = { total: found.total, count: found.count, empty: found.empty, simulated: found.simulated };
            describe(list.found);
            mark();
          })
          .catch(function (error) {
            if (grid.isDestroyed()) return;
            params.failCallback();
            if (mine !== list) return;
            mine.failed = true;
            report(error.hint === undefined ? { message: "The studio does not answer.", hint: "Is it still running?" } : error);
          });
      },
    };
  }

  function describe(found) {
    var all = found.total.toLocaleString("en") + (found.total === 1 ? " node" : " nodes");
    say("nodes-count", found.count === found.total ? all : found.count.toLocaleString("en") + " of " + all);
    show("nodes-empty", found.count === 0);
    saved(found.count);
    entitle(found.simulated);
    arrange(found);
  }

  /* What is listed, in its order; the server gives that many nodes at most. */
  var SAVED = 200000;

  function saved(count) {
    var bar = document.querySelector("#nodes-save .cs-export");
    if (!bar) return;
    bar.dataset.source = address("/nodes.csv", {});
    bar.dataset.title = count > SAVED ? "the first " + SAVED.toLocaleString("en") + " of " + count.toLocaleString("en") + " nodes" : "the nodes";
  }

  /* Headings say which times are which. */
  function entitle(simulated) {
    var changed = Object.keys(OF_RUN).filter(function (name) {
      var told = api.getColumn(name).getColDef();
      var wanted = OF_RUN[name][0] + (simulated ? " in run" : "");
      if (told.headerName === wanted) return false;
      told.headerName = wanted;
      return true;
    });
    if (!changed.length) return;
    api.setColumnWidths(changed.map(function (name) { return { key: name, newWidth: OF_RUN[name][simulated ? 2 : 1] }; }));
    api.refreshHeader();
  }

  /* Columns without a single value are left out, and in a narrow window those that matter least. Both is said. What was
     recorded has columns of its own only while a run is shown, or where the address filters or sorts by them. */
  function arrange(found) {
    var empty = found.empty;
    var used = list.f + "," + list.sort;
    var width = element(GRID).clientWidth - 20;
    var left = api.getColumns().filter(function (column) {
      var name = column.getColId();
      return empty.indexOf(name) < 0 && (found.simulated || RECORDED.indexOf(name) < 0 || used.indexOf(name) >= 0);
    });
    var narrow = [];
    LEAST.forEach(function (name) {
      var needed = left.reduce(function (sum, column) { return sum + (column.getColId() === "name" ? column.getMinWidth() : column.getActualWidth()); }, 0);
      var column = api.getColumn(name);
      if (needed <= width || left.indexOf(column) < 0 || used.indexOf(name) >= 0) return;
      left.splice(left.indexOf(column), 1);
      narrow.push(title(name));
    });
    var cell = api.getFocusedCell();
    api.getColumns().forEach(function (column) {
      var wanted = left.indexOf(column) >= 0;
      if (wanted !== column.isVisible()) api.setColumnsVisible([column], wanted);
    });
    /* The row keeps the focus where the column that had it went. */
    if (cell && !cell.column.isVisible()) api.setFocusedCell(cell.rowIndex, "name");
    var words = [];
    if (empty.length) words.push("no node has: " + empty.map(title).join(", "));
    if (narrow.length) words.push("no room for: " + narrow.join(", "));
    say("nodes-lacks", words.join(" · "));
  }

  function title(name) {
    return api.getColumn(name).getColDef().headerName.toLowerCase();
  }

  function say(id, text) {
    var box = element(id);
    if (box && box.textContent !== text) box.textContent = text;
  }

  function report(error) {
    var box = element("nodes-error");
    if (!box || (!error && !box.firstChild)) return;
    box.textContent = "";
    box.className = error ? "cs-error" : "";
    if (!error) return;
    ["strong", "p", "p"].forEach(function (tag, index) {
      var line = document.createElement(tag);
      line.textContent = ["The nodes cannot be listed", error.message, error.hint][index] || "";
      box.appendChild(line);
    });
    show("nodes-empty", false);
    say("nodes-count", "");
  }

  /* ---- selection ---- */

  function mark() {
    var node = selected && api.getRowNode(selected);
    if (node && node.data) {
      if (!node.isSelected()) node.setSelected(true, true);
    } else if (api.getSelectedNodes().length) {
      api.deselectAll();
    }
  }

  function choose(data, replace) {
    if (!data) return;
    chosenHere = data.rank + "/" + data.ref;
    window.studioView.change({ rank: data.rank, node: data.ref }, { replace: replace });
  }

  function reveal(view) {
    var mine = list;
    var wanted = selected;
    fetch(address("/nodes/position", { rank: view.rank, node: view.node }))
      .then(function (answer) { return answer.json(); })
      .then(function (found) {
        if (mine !== list || wanted !== selected || typeof found.position !== "number") return;
        scroll(mine, found.position, 20);
      })
      .catch(function () {
        /* The inspector says what is wrong with the node. */
      });
  }

  /* Rows that are not known to exist yet cannot be scrolled to. The grid takes them in a moment after they have come. */
  function scroll(mine, position, tries) {
    if (mine !== list || mine.failed || api.isDestroyed()) return;
    if (position < api.getDisplayedRowCount()) {
      if (api.isLastRowIndexKnown() || !tries) return api.ensureIndexVisible(position, "middle");
    }
    if (tries) later("scroll", 50, function () { scroll(mine, position, mine.found ? tries - 1 : tries); });
  }

  function followSelection(view) {
    var wanted = view.node ? (view.rank === undefined ? firstRank() : view.rank) + "/" + view.node : null;
    if (wanted === selected) return;
    selected = wanted;
    mark();
    if (wanted && wanted !== chosenHere) reveal({ rank: wanted.split("/")[0], node: view.node });
    chosenHere = null;
  }

  function firstRank() {
    var row = api.getDisplayedRowAtIndex(0);
    return row && row.data ? row.data.rank : "0";
  }

  /* ---- the grid ---- */

  function ready(grid) {
    api = grid;
    list = {};
    selected = null;
    api.addEventListener("filterChanged", changed.bind(null, "filter"));
    api.addEventListener("sortChanged", changed.bind(null, "sort"));
    api.addEventListener("gridSizeChanged", function () { later("arrange", 100, function () { if (!api.isDestroyed() && list.found) arrange(list.found); }); });
    api.addEventListener("rowClicked", function (event) { choose(event.data, false); });
    var root = element(GRID);
    root.addEventListener("keydown", function (event) {
      if (!event.target.closest(".ag-row")) return;
      if (event.key === "Enter") return choose(focused(), false);
      /* With the inspector open it follows the focus; without, looking around opens nothing. */
      if (selected && /^(Arrow(Up|Down)|Page(Up|Down)|Home|End)$/.test(event.key)) later("focus", 120, function () { choose(focused(), true); });
    });
  }

  function focused() {
    var cell = !api.isDestroyed() && api.getFocusedCell();
    var row = cell && api.getDisplayedRowAtIndex(cell.rowIndex);
    return row && row.data;
  }

  /* The person changed filters or order in the grid. While the grid comes about, Dash puts back what it had last heard of
     them; then the address has it right. Steps can be walked back; what is typed letter by letter cannot. */
  function changed(what, event) {
    window.setTimeout(function () {
      if (api.isDestroyed() || !list.job) return;
      var f = filterText(api.getFilterModel());
      var sort = orderText(api.getColumnState());
      if (f === list.filters && sort === list.order) return;
      if (!(what === "filter" ? event.source === "columnFilter" : /^ui/.test(event.source))) return filtered(list);
      var column = what === "filter" && event.columns && event.columns[0] ? event.columns[0].getColId() : "";
      var typing = column && lastFilter.column === column && Date.now() - lastFilter.at < 2000;
      lastFilter = { column: column, at: Date.now() };
      window.studioView.change({ f: f || null, sort: sort || null }, { replace: Boolean(typing) });
    }, 0);
  }

  function sameFilters(text) {
    return filterText(gridFilters(text)) === filterText(api.getFilterModel());
  }

  /* Filter and order the grid as the address says. */
  function filtered(next) {
    if (!sameFilters(next.f)) api.setFilterModel(gridFilters(next.f));
    if (orderText(api.getColumnState()) !== next.sort) {
      api.applyColumnState({ state: gridOrder(next.sort), defaultState: { sort: null, sortIndex: null } });
    }
  }

  function apply(view) {
    var next = { job: view.job, run: view.run || "", q: view.q || "", f: view.f || "", sort: view.sort || "" };
    var same = next.job === list.job && next.run === list.run && next.q === list.q && next.f === list.f && next.sort === list.sort;
    if (!same) {
      /* What the person did to the grid after the address was written is on its way: see changed. */
      var ahead = next.job === list.job && (filterText(api.getFilterModel()) !== list.filters || orderText(api.getColumnState()) !== list.order);
      if (next.job !== list.job) {
        say("nodes-count", "");
        selected = null;
      }
      list = next;
      show("nodes-empty", false);
      if (ahead) {
        list.filters = filterText(gridFilters(next.f));
        list.order = orderText(gridOrder(next.sort).filter(function (one) { return api.getColumn(one.colId); }));
      } else {
        filtered(next);
        list.filters = filterText(api.getFilterModel());
        list.order = orderText(api.getColumnState());
      }
      api.setGridOption("datasource", source());
      api.ensureIndexVisible(0, "top");
    } else if (list.found) {
      describe(list.found);
    }
    showControls(next);
    followSelection(view);
  }

  function showControls(next) {
    /* Also where nothing changed: walking back draws the page anew. But not under the fingers of who types. */
    if (!document.activeElement || document.activeElement.id !== "nodes-search") {
      typed = next.q;
      window.dash_clientside.set_props("nodes-search", { value: next.q });
    }
    var rank = readFilters(next.f).rank;
    var one = Array.isArray(rank) && (rank[0] === "equals" || rank[0] === "matches") && /^\d+$/.test(rank[1]) ? String(rank[1]) : null;
    rankShown = one;
    window.dash_clientside.set_props("nodes-rank", { value: one });
    show("nodes-clear", Boolean(next.q || next.f));
  }

  /* The page may be drawn before its grid is, and again with another one. */
  function withGrid(act, tries) {
    var found = window.dash_ag_grid && element(GRID) && window.dash_ag_grid.getApi(GRID);
    /* Once it is ready the grid gets a source of rows from Dash; ours has to come after. */
    if (found && !found.isDestroyed() && found.getGridOption("datasource")) {
      if (found !== api) {
        typed = rankShown = null;
        ready(found);
      }
      act();
    } else if (tries) {
      later("grid", 30, function () { withGrid(act, element("nodes-page") ? tries : tries - 1); });
    }
  }

  function follow() {
    withGrid(function () {
      var view = window.studioView.read();
      if (view.job) apply(view);
    }, 300);
  }

  document.addEventListener("click", function (event) {
    if (event.target.closest && event.target.closest("[data-nodes-clear]")) window.studioView.change({ q: null, f: null });
  });

  window.dash_clientside = window.dash_clientside || {};
  window.dash_clientside.studio_nodes = {
    follow: function (view) {
      show("nodes-none", !view.job);
      show("nodes-page", Boolean(view.job));
      follow();
      return window.dash_clientside.no_update;
    },
    search: function (value) {
      var text = value || "";
      if (text !== typed) {
        typed = text;
        later("search", 200, function () {
          window.studioView.change({ q: text || null }, { replace: true });
        });
      }
      return window.dash_clientside.no_update;
    },
    pickRank: function (value) {
      if (!value && rankShown && !window.studioView.isTouched("nodes-rank")) {
        later("rank", 100, function () { window.dash_clientside.set_props("nodes-rank", { value: rankShown }); });
      } else if ((value || null) !== rankShown) {
        rankShown = value || null;
        var filters = readFilters(list.f);
        if (value) filters.rank = ["matches", value];
        else delete filters.rank;
        var sorted = {};
        Object.keys(filters).sort().forEach(function (key) { sorted[key] = filters[key]; });
        window.studioView.change({ f: Object.keys(sorted).length ? JSON.stringify(sorted) : null });
      }
      return window.dash_clientside.no_update;
    },
  };

  var TAIL = 16;

  /* A long name keeps its end, which tells operators of one prefix apart, and loses of its middle what has no room. The
     name itself lies unseen above what is drawn, for everything that reads or points. */
  function name(props) {
    var text = String(props.value === null || props.value === undefined ? "" : props.value), create = window.React.createElement;
    if (text.length < TAIL + 6) return text;
    var cut = text.length - TAIL, code = text.charCodeAt(cut);
    if (code >= 0xdc00 && code < 0xe000) cut--; /* not between the halves of one sign */
    return create("span", { className: "cs-ends" },
      create("span", { "aria-hidden": "true", "data-head": text.slice(0, cut), "data-tail": text.slice(cut) }),
      create("span", { className: "cs-ends-whole" }, text));
  }

  window.dashAgGridComponentFunctions = Object.assign(window.dashAgGridComponentFunctions || {}, { nodesName: name });

  function any() {
    return true;
  }

  window.dashAgGridFunctions = Object.assign(window.dashAgGridFunctions || {}, { nodesAny: any });
})();
