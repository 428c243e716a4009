/* Buttons that ask the server for something: see studio/pages/_asked.py. One request after the other, so that none is lost. */
(function () {
  "use strict";

  var PATIENCE_MS = 20000;
  var TYPED_MS = 3000; /* fields tell Dash of what was typed some 0.2 s after the last letter */
  var STEP_MS = 30;
  var queues = {};
  var count = 0;
  var typed = null; /* the field of the last letter */

  function queue(store) {
    if (!queues[store]) queues[store] = { waiting: [], busy: 0 };
    return queues[store];
  }

  /* What was typed a moment before a click counts: whether Dash knows of it. */
  function isToldOf(field) {
    if (!field || !field.isConnected || field.id[0] !== "{") return true;
    var known = window.dash_component_api.getLayout(JSON.parse(field.id));
    return !known || (known.props.value || "") === field.value;
  }

  /* What is asked for is asked of the job that is open. */
  function page() {
    return window.location.pathname + " " + (window.studioView.read().job || "");
  }

  function next(store) {
    var line = queue(store), one;
    /* The answer to what was asked on a page that has been left is heard by nobody. */
    if (line.busy && !line.home.isConnected) line.busy = 0;
    do {
      if (line.busy || !line.waiting.length) return;
      one = line.waiting.shift();
    } while (one.page !== page());
    line.busy = count += 1;
    line.home = document.getElementById(store + "-heard");
    /* An answer that never comes, as when the studio was stopped, does not hold the next one for ever. */
    window.setTimeout(answered, PATIENCE_MS, store, line.busy);
    send(store, one.page, Object.assign({ number: line.busy }, one.what), TYPED_MS / STEP_MS);
  }

  function send(store, asked, what, tries) {
    var line = queue(store);
    if (line.busy !== what.number) return;
    if (tries && !isToldOf(typed)) {
      window.setTimeout(send, STEP_MS, store, asked, what, tries - 1);
      return;
    }
    if (asked === page() && line.home.isConnected) window.dash_clientside.set_props(store, { data: what });
    else answered(store, what.number);
  }

  function answered(store, number) {
    if (queue(store).busy !== number) return;
    queue(store).busy = 0;
    next(store);
  }

  function ask(button) {
    var around = button.closest(".cs-renaming"), field = around && around.querySelector("input");
    var what = { verb: button.getAttribute("data-verb"), of: button.getAttribute("data-of") || "", text: field ? field.value : "" };
    put(button.getAttribute("data-ask"), what);
  }

  function put(store, what) {
    queue(store).waiting.push({ what: what, page: page() });
    next(store);
  }

  /* Where the page was left with the answer under way nobody says that the next one may be asked. */
  window.setInterval(function () {
    Object.keys(queues).forEach(function (store) { if (queues[store].waiting.length) next(store); });
  }, 200);

  document.addEventListener("click", function (event) {
    var button = event.target.closest && event.target.closest("[data-ask]");
    if (button && !button.disabled) ask(button);
  });
  document.addEventListener("input", function (event) {
    typed = event.target.matches(".mantine-TextInput-input") ? event.target : null;
  }, true);
  /* In the field beside such a button Enter is a click on it; Escape leaves all as it was. */
  document.addEventListener("keydown", function (event) {
    var around = !event.isComposing && event.target.tagName === "INPUT" && event.target.closest(".cs-renaming");
    var button = around && around.querySelector("[data-ask]");
    if (!button) return;
    if (event.key === "Enter") ask(button);
    if (event.key === "Escape") put(button.getAttribute("data-ask"), { verb: "rename", of: "", text: "" });
  });

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    studio_asked: {
      answered: function (answer) {
        if (answer) answered(answer.store, answer.number);
        if (answer && answer.go) window.studioView.visit(answer.go);
        return window.dash_clientside.no_update;
      },
    },
  });
})();
