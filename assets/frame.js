/* The frame: one view, held in the address, that every page reads and changes. */
(function () {
  "use strict";

  var KEY = "mantine-color-scheme-value";

  function read() {
    var view = {};
    new URLSearchParams(window.location.search).forEach(function (value, key) {
      view[key] = value;
    });
    return view;
  }

  function address(path, view) {
    var parts = new URLSearchParams();
    Object.keys(view).forEach(function (key) {
      if (view[key] !== null && view[key] !== undefined && view[key] !== "") parts.set(key, String(view[key]));
    });
    var text = parts.toString();
    return text ? path + "?" + text : path;
  }

  /* Change parts of the view: null takes a part out. Steps the user takes can be walked back; typing cannot. */
  function change(patch, options) {
    var before = read();
    var view = Object.assign({}, before, patch);
    var next = address(window.location.pathname, view);
    if (next === address(window.location.pathname, before)) return;
    var replace = options && options.replace;
    window.history[replace ? "replaceState" : "pushState"](null, "", next);
    publish();
  }

  function publish() {
    var view = read();
    window.dash_clientside.set_props("view", { data: view });
    var news = parts(view);
    if (news.job !== undefined) awaitJob();
    Object.keys(news).forEach(function (part) {
      if (news[part] !== undefined) window.dash_clientside.set_props(part, { data: news[part] });
    });
  }

  /* What still shows the job before is seen to: it is dimmed until the other one is there. */
  function awaitJob() {
    var content = document.getElementById("content"), quiet = 0, enough = 10;
    content.setAttribute("data-awaited", "");
    window.clearInterval(awaitJob.timer);
    awaitJob.timer = window.setInterval(function () {
      if (document.querySelector("._dash-loading-callback")) {
        quiet = 0;
        enough = 2;
      } else quiet++;
      if (quiet < enough) return;
      window.clearInterval(awaitJob.timer);
      content.removeAttribute("data-awaited");
    }, 100);
  }

  /* What the frame shows of a view, as texts: it is asked for again when it changes, not at every step. */
  var PARTS = {
    job: function (view) { return view.job || null; },
    "shown-run": function (view) { return JSON.stringify([view.job || null, view.run || null]); },
    selection: function (view) {
      return JSON.stringify(view.job && view.node ? { job: view.job, run: view.run, rank: view.rank, node: view.node } : {});
    },
    searched: function (view) { return JSON.stringify(view.q ? view : {}); },
    /* What the server looks up, to tell what of it is not there. */
    named: function (view) {
      return JSON.stringify([window.location.pathname, view.job, view.run, view.rank, view.with, view.ghost].map(function (part) { return part === undefined ? null : part; }));
    },
  };
  var seen = {};
  /* Undefined is what has not changed. */
  function parts(view) {
    var news = {};
    Object.keys(PARTS).forEach(function (part) {
      var now = PARTS[part](view);
      news[part] = now === seen[part] ? undefined : (seen[part] = now);
    });
    return news;
  }

  /* Another address of the studio, without loading it anew. */
  function visit(href) {
    window.history.pushState(null, "", href);
    window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
    window.scrollTo(0, 0);
  }

  function go(path, view) {
    visit(address(path, view));
  }

  /* How times are written: the server reads the same cookie. */
  function timeUnit() {
    var found = /(?:^|; )studio-time=(s|ms|us|ns)(?:;|$)/.exec(document.cookie);
    return found ? found[1] : "auto";
  }

  function say(text) {
    window.dash_clientside.set_props("said", { children: text });
    window.clearTimeout(say.timer);
    say.timer = window.setTimeout(function () {
      window.dash_clientside.set_props("said", { children: "" });
    }, 2500);
  }

  function copied(text) {
    if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
    /* Served to other machines without encryption the clipboard is closed to scripts; the old way still works. */
    var area = document.createElement("textarea");
    area.value = text;
    document.body.appendChild(area);
    area.select();
    var done = document.execCommand("copy");
    area.remove();
    return done ? Promise.resolve() : Promise.reject(new Error("refused"));
  }

  var reported = 0; /* clicks on the button that are answered already */
  function saveReport(run) {
    var view = read();
    var sides = [view.job + "/" + run].concat(window.location.pathname === "/compare" && view.with ? view.with.split(",") : []);
    say("Writing the report…");
    fetch("/api/report?" + new URLSearchParams(sides.map(function (side) { return ["side", side]; }))).then(function (answer) {
      if (answer.ok) {
        return answer.blob().then(function (blob) {
          var link = document.createElement("a");
          link.href = URL.createObjectURL(blob);
          link.download = (/filename="([^"]+)"/.exec(answer.headers.get("Content-Disposition")) || [0, "report.html"])[1];
          link.click();
          window.setTimeout(function () { URL.revokeObjectURL(link.href); }, 10000);
          say("Report saved.");
        });
      }
      return answer.json().then(function (told) {
        throw new Error((told.error && told.error.message) || "The studio answered with " + answer.status + ".");
      });
    }).catch(function (error) {
      say(error.message);
    });
  }

  function systemScheme() {
    return window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  }

  function stored() {
    try {
      var value = window.localStorage.getItem(KEY);
      return value === "light" || value === "dark" ? value : "auto";
    } catch (error) {
      return "auto";
    }
  }

  function applyTheme(choice) {
    var scheme = choice === "auto" ? systemScheme() : choice;
    document.documentElement.setAttribute("data-mantine-color-scheme", scheme);
    return scheme;
  }

  var NAMES = { auto: "Theme: system", light: "Theme: light", dark: "Theme: dark" };
  var MARKS = { auto: "\u25d0", light: "\u25cb", dark: "\u25cf" };
  var stepped = 0; /* clicks on the button that count already */
  var NEXT = { auto: "light", light: "dark", dark: "auto" };

  /* Within a page the view is followed. Dash, told of the step too, would draw the page anew, empty, over what the view
     has brought. To another page Dash goes, and the view comes with it: see viewFromAddress. */
  var shown = window.location.pathname;
  function follow(event) {
    if (window.location.pathname !== shown) {
      shown = window.location.pathname;
      return;
    }
    event.stopImmediatePropagation();
    window.setTimeout(publish, 0);
  }
  window.addEventListener("popstate", follow);
  window.addEventListener("_dashprivate_pushstate", follow);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", function () {
    if (stored() === "auto") window.dash_clientside.set_props("theme", { data: applyTheme("auto") });
  });

  window.addEventListener("chakra:imported", function (event) {
    window.dash_clientside.set_props("imported", { data: event.detail.job });
    if (document.getElementById("home-jobs")) window.dash_clientside.set_props("home-refresh", { data: event.detail.job });
  });

  /* A select forgets its value while its choices arrive: only who touches it, or the list of its choices, empties it. */
  var touched = null;
  function touch(event) {
    var list = event.target.closest && event.target.closest("[role=listbox]");
    touched = (list && document.querySelector("[aria-controls='" + CSS.escape(list.id) + "']")) || event.target;
  }
  function isTouched(id) {
    var select = document.getElementById(id), field = select && select.closest(".mantine-Select-root");
    return Boolean(field && touched && field.contains(touched));
  }
  document.addEventListener("pointerdown", touch, true);
  document.addEventListener("keydown", touch, true);

  window.studioView = { read: read, change: change, address: address, isTouched: isTouched, visit: visit, go: go, timeUnit: timeUnit, say: say, copied: copied };

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    studio_frame: {
      /* What was said of one job is taken back when another is shown. */
      unsaid: function () { return null; },
      viewFromAddress: function () {
        var view = read(), news = parts(view);
        return [view].concat(Object.keys(PARTS).map(function (part) {
          return news[part] === undefined ? window.dash_clientside.no_update : news[part];
        }));
      },
      /* Links keep the job, the run and the selection; what only one page knows stays behind. */
      navLinks: function (view, ids) {
        return ids.map(function (id) {
          return address(id.nav, { job: view.job, run: view.run, rank: view.rank, node: view.node });
        });
      },
      switchJob: function (job, view) {
        if (job && job !== view.job) {
          go(window.location.pathname === "/" ? "/overview" : window.location.pathname, { job: job });
        }
        return window.dash_clientside.no_update;
      },
      /* A window of one run says nothing of another. */
      switchRun: function (run, known) {
        if (run && known && run !== known) change({ run: run, from: null, to: null, mark: null });
        return window.dash_clientside.no_update;
      },
      toggleTheme: function (clicks) {
        var choice = stored();
        /* Dash tells of two clicks in a row at once. */
        for (; stepped < (clicks || 0); stepped++) choice = NEXT[choice];
        if (clicks) {
          try {
            if (choice === "auto") window.localStorage.removeItem(KEY);
            else window.localStorage.setItem(KEY, choice);
          } catch (error) {
            /* A private window without storage: the choice lasts until the page is left. */
          }
        }
        return [applyTheme(choice), MARKS[choice], NAMES[choice], NAMES[choice]];
      },
      /* The address is the view, so the link is all there is to share. */
      share: function (clicks) {
        if (clicks) {
          copied(window.location.href).then(function () {
            say("Link to this view copied.");
          }, function () {
            say("The browser does not let the link be copied; it is the address above.");
          });
        }
        return window.dash_clientside.no_update;
      },
      /* Saved by a request of our own, so that what goes wrong is said here and not on a page of its own. */
      report: function (clicks, run) {
        /* Dash tells of a click and of the run that has come meanwhile at once. */
        if (clicks > reported) saveReport(run);
        reported = clicks || 0;
        return !run;
      },
      switchTime: function (unit) {
        var now = timeUnit();
        if (!unit) return now;
        if (unit !== now) {
          document.cookie = "studio-time=" + unit + "; path=/; max-age=31536000; samesite=strict";
          window.location.reload();
        }
        return window.dash_clientside.no_update;
      },
      showInspector: function (view, aside) {
        var open = Boolean(view.job && view.node);
        return Object.assign({}, aside, { collapsed: { desktop: !open, mobile: !open } });
      },
    },
  });

  /* One tip for all question marks: a component for each would cost more than the page it stands on. */
  var tip = null;
  function showTip(event) {
    var mark = event.target.closest && event.target.closest("[data-hint]");
    if (!mark) return hideTip();
    if (!tip) {
      tip = document.createElement("div");
      tip.className = "cs-tip";
      /* Screen readers are told by the label of the mark. */
      tip.setAttribute("aria-hidden", "true");
      document.body.appendChild(tip);
    }
    tip.textContent = mark.getAttribute("data-hint");
    tip.hidden = false;
    var at = mark.getBoundingClientRect();
    var left = Math.min(Math.max(6, at.left + at.width / 2 - tip.offsetWidth / 2), window.innerWidth - tip.offsetWidth - 6);
    var above = at.top - tip.offsetHeight - 6;
    tip.style.left = left + "px";
    tip.style.top = (above > 6 ? above : at.bottom + 6) + "px";
  }
  function hideTip() {
    if (tip) tip.hidden = true;
  }
  ["mouseover", "focusin", "click"].forEach(function (name) {
    document.addEventListener(name, showTip);
  });
  document.addEventListener("scroll", hideTip, true);
  document.addEventListener("keydown", function (event) {
    if (event.key === "Escape") hideTip();
  });

  /* A choice that has no room for its name tells it on hover. */
  document.addEventListener("pointerover", function (event) {
    var box = event.target;
    if (!box.matches) return;
    if (box.matches("input.mantine-Select-input")) box.title = box.scrollWidth > box.clientWidth ? box.value : "";
    else if (box.matches("select") && box.selectedOptions.length) box.title = box.selectedOptions[0].textContent;
  });

  /* Anything that selects carries what it selects: <a data-view='{"rank":3,"node":"118"}'>. A plain click changes the
     view in place; with a modifier the browser opens the link. */
  document.addEventListener("click", function (event) {
    var target = event.target.closest && event.target.closest("[data-view]");
    if (!target || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    event.stopPropagation();
    change(JSON.parse(target.getAttribute("data-view")));
  }, true);
  /* Links that Dash does not know of (see still.js) lead to other pages as its own do: without loading anything anew. */
  document.addEventListener("click", function (event) {
    var target = event.target.closest && event.target.closest("a[data-link]");
    if (!target || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || event.button !== 0) return;
    event.preventDefault();
    visit(target.getAttribute("href"));
  });
  /* Opened in a tab of its own it leads to the view as it is by then, not as it was when the link was drawn. */
  document.addEventListener("pointerdown", function (event) {
    var target = event.target.closest && event.target.closest("a[data-view]");
    if (target) target.href = address(window.location.pathname, Object.assign(read(), JSON.parse(target.getAttribute("data-view"))));
  }, true);
})();
