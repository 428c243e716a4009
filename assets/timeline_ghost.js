/* Another run of the job in the same lanes: its bars below those of the run shown, and how much each node differs. */
(function (t) {
  "use strict";

  t.ghost = ""; /* id of the other run, or "recorded" */
  var known = new Map(); /* times of single nodes in both runs */
  var lit = null;

  t.onLoad.push(function () {
    t.ghost = "";
    known.clear();
    lit = null;
  });

  t.onBefore.push(function (view) {
    var wanted = view.ghost && view.ghost !== (t.chart.run || "recorded") ? view.ghost : "";
    if (wanted === t.ghost) return;
    t.ghost = wanted;
    t.forgetGhost();
    known.clear();
    lit = null;
    t.reach(0);
    if (!wanted) return;
    var mine = t.chart;
    t.get(t.address("/ghost", { ghost: wanted }))
      .then(function (answer) { return answer.json(); })
      .then(function (answer) {
        if (mine !== t.chart || wanted !== t.ghost) return;
        t.reach(answer.span);
        t.windowKey = null;
        t.apply();
      })
      .catch(function (error) {
        if (mine !== t.chart || wanted !== t.ghost) return;
        t.ghost = "";
        t.say(t.dom.status, error && error.message ? error.message : "The other run cannot be read.");
        t.draw();
      });
  });

  /* The choice of the other run: a select, where there is another. */
  t.onApply.push(function () {
    var box = t.element("timeline-other");
    if (!box || !t.source) return;
    var others = (t.source.others || []).filter(function (one) { return one.value !== (t.chart.run || "recorded"); });
    var words = JSON.stringify(others), select = box.querySelector("select");
    if (box.getAttribute("data-others") !== words) {
      box.setAttribute("data-others", words);
      box.textContent = "";
      select = null;
      if (others.length) {
        select = document.createElement("select");
        select.id = "timeline-ghost";
        select.className = "cs-timeline-other";
        select.setAttribute("aria-label", "Another run in the same lanes");
        select.title = "Show another run in the same lanes, below this one";
        [{ value: "", label: "no other run" }].concat(others).forEach(function (one) {
          var option = document.createElement("option");
          option.value = one.value;
          option.textContent = one.value ? "with " + one.label : one.label;
          select.appendChild(option);
        });
        box.appendChild(select);
      }
    }
    if (select && select.value !== t.ghost) select.value = t.ghost;
    var chosen = others.filter(function (one) { return one.value === t.ghost; })[0];
    t.ghostName = chosen ? chosen.label.split(" · ")[0] : "";
    if (t.element("timeline-differences")) t.element("timeline-differences").hidden = !t.ghost;
  });
  document.addEventListener("change", function (event) {
    if (event.target.id === "timeline-ghost") t.change({ ghost: event.target.value || null });
  });

  function label() {
    return t.ghost === "recorded" ? "as recorded" : t.ghostName || "the other run";
  }

  /* Find out when a node ran in the other run. */
  function contrast(bar) {
    if (!t.ghost || !bar) {
      lit = null;
      return;
    }
    var key = bar.rank + "/" + bar.index, mine = t.chart, other = t.ghost;
    lit = known.get(key) || null;
    if (lit) return;
    t.later("contrast", 40, function () {
      if (mine !== t.chart || other !== t.ghost) return;
      t.get(t.address("/difference", { ghost: other, rank: bar.rank, index: bar.index }))
        .then(function (answer) { return answer.json(); })
        .then(function (answer) {
          if (mine !== t.chart || other !== t.ghost) return;
          if (known.size > 500) known.clear();
          known.set(key, { row: bar.row, rank: bar.rank, here: answer.here, there: answer.there });
          lit = known.get(key);
          t.resay();
          t.draw();
        })
        .catch(function () { /* The bar alone is told. */ });
    });
  }

  function signed(ns) {
    return (ns > 0 ? "+" : ns < 0 ? "−" : "±") + t.time(Math.abs(ns));
  }

  function differs(bar) {
    var found = t.ghost && known.get(bar.rank + "/" + bar.index);
    if (!found) return "";
    if (!found.there) return " · " + label() + ": did not run";
    var here = found.here[1] - found.here[0], there = found.there[1] - found.there[0], more = here - there;
    var words = " · " + label() + " " + t.time(there);
    words += more ? ": here " + signed(more) + (there ? " (" + (more > 0 ? "+" : "−") + ((100 * Math.abs(more)) / there).toFixed(1) + " %)" : "") : ": the same";
    var shift = found.here[0] - found.there[0];
    return words + (shift ? ", issued " + t.time(Math.abs(shift)) + (shift > 0 ? " later" : " earlier") : "");
  }

  /* The same node in the other run, tied to itself. */
  t.overlays.push(function (pen, wide, high) {
    if (!lit || !lit.there || !t.ghost) return;
    var place = t.placeOfRow(lit.row), below = t.ghostPlace(place);
    if (place.behind || place.y > high || place.y + place.height < t.AXIS) return;
    pen.save();
    pen.beginPath();
    pen.rect(t.GUTTER, t.AXIS, wide - t.GUTTER, high - t.AXIS);
    pen.clip();
    var x0 = t.limit(t.x(lit.here[0])), x1 = Math.max(t.limit(t.x(lit.here[1])), x0 + 2);
    var u0 = t.limit(t.x(lit.there[0])), u1 = Math.max(t.limit(t.x(lit.there[1])), u0 + 2);
    pen.strokeStyle = t.look.text;
    pen.lineWidth = 1.2;
    pen.strokeRect(x0 + 0.5, place.y + 0.5, x1 - x0 - 1, place.height - 1);
    pen.strokeRect(u0 + 0.5, below.y + 0.5, u1 - u0 - 1, below.height - 1);
    pen.beginPath();
    pen.moveTo(x0, place.y + place.height);
    pen.lineTo(u0, below.y);
    pen.moveTo(x1, place.y + place.height);
    pen.lineTo(u1, below.y);
    pen.stroke();
    pen.restore();
  });

  t.contrast = contrast;
  t.differs = differs;
  t.signed = signed;
  t.buttons["timeline-differences"] = function () {
    t.change({ by: "difference", mark: t.marked ? t.marked.join("-") : "0-" + t.chart.own });
  };
})(window.studioTimeline = window.studioTimeline || {});
