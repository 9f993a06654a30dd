const MARKS = {
  good: ["✓", "var(--jp-success-color1,#3d9a50)"],
  note: ["·", "var(--jp-info-color1,#2f8fb8)"],
  warn: ["!", "var(--jp-warn-color1,#c77700)"],
  bad: ["✗", "var(--jp-error-color1,#d64545)"],
  off: ["‖", "var(--jp-ui-font-color2,#808080)"],
};
// A hand that holds a button is not still; further than this, in pixels, it gives the press up.
const STILL = 8;
const EVERY = 5000, BUSY = 5000, GONE = 30000, PATIENCE = 60000, TOLD = 2000;
const AWAY = 60000, TOUCHES = ["pointerdown", "pointermove", "wheel", "keydown"];
const ENDED = ["dead", "terminating", "restarting", "autorestarting"];

const NOTEBOOK = {
  gone: "The kernel was restarted or has ended: run the cell again.",
  silent: "The kernel is busy, was restarted or has ended. If no cell is running, run this cell again.",
  busy: "The kernel is busy: what is clicked waits until its cell has ended.",
};
const PAGE = {
  gone: "This page was away too long: reload it.",
  silent: "The console is busy or has ended: if it stays so, reload this page.",
  busy: "The console is busy: what is clicked waits.",
};

function span(ms) {
  const s = Math.floor(ms / 1000), m = Math.floor(s / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
  if (m < 1) return `${s} s`;
  if (h < 1) return `${m} min ${s % 60} s`;
  return d < 1 ? `${h} h ${m % 60} min` : `${d} d ${h % 24} h`;
}

// A button may move while it is held, as what is above it changes. A browser then clicks only what both places have in
// common, which is no button. Here what was pressed is what is clicked.
function watchPresses(within) {
  let pressed = null, at = [0, 0];
  function press(event) {
    const hit = event.isPrimary && event.button === 0 && within(event.target) ? event.target : null;
    pressed = hit && (hit.closest("label") ?? hit.closest("button,input[type=checkbox],tr.ml-grid-pick"));
    at = [event.clientX, event.clientY];
  }
  function release(event) {
    const held = pressed;
    pressed = null;
    if (!held || held.disabled || held.contains(event.target)) return;
    if (Math.hypot(event.clientX - at[0], event.clientY - at[1]) < STILL) held.click();
  }
  document.addEventListener("pointerdown", press, true);
  document.addEventListener("pointerup", release, true);
  return () => {
    document.removeEventListener("pointerdown", press, true);
    document.removeEventListener("pointerup", release, true);
  };
}

function render({ model, el }) {
  const beats = model.get("beats"), words = document.querySelector(".ml-page") ? PAGE : NOTEBOOK;
  const badge = document.createElement("span"), said = document.createElement("span");
  badge.className = "ml-pulse-badge";
  said.className = "ml-pulse-words";
  el.append(badge, " ", said);
  if (beats) {
    el.setAttribute("role", "status");
    el.setAttribute("aria-live", "polite");
  }
  // Until the kernel has said how old it is now, an answer has a time and no age: this may be a reload.
  let at = performance.now(), fresh = false, number = 0;
  let heard = at, asked = null, unanswered = null, told = "";
  let reading = model.get("reading") || {};
  let touched = at;

  function take(value) {
    reading = value || {};
    at = performance.now();
    fresh = true;
  }
  function ask() {
    asked = performance.now();
    if (unanswered === null) unanswered = asked;
    number += 1;
    model.send({ ask: number, hidden: document.hidden, untouched_ms: performance.now() - touched });
  }
  function kernel() {
    const manager = model.widget_manager;
    const found = manager && (manager.kernel || manager._kernel);
    return found && found.status ? found.status : null;
  }
  function link() {
    const status = kernel();
    if (el.closest(".jupyter-widgets-disconnected") || ENDED.includes(status)) return "gone";
    const waited = unanswered === null ? 0 : performance.now() - unanswered;
    // An idle kernel that does not answer has forgotten the question: it was restarted.
    if (waited >= GONE && status === "idle") return "gone";
    if (waited >= GONE && status === null) return "silent";
    return waited >= BUSY ? "busy" : "alive";
  }
  function put(mark, word, text) {
    const [sign, colour] = MARKS[mark];
    const whole = `${sign} ${word}|${text}`;
    if (whole === told) return;
    told = whole;
    badge.textContent = `${sign} ${word}`;
    badge.style.borderColor = colour;
    said.textContent = text;
  }
  function rest(gone) {
    const root = el.closest(".ml-console");
    for (const child of root ? root.children : []) {
      if (child.contains(el)) continue;
      child.inert = gone;
      child.style.opacity = gone ? "0.55" : "";
    }
  }
  function beat() {
    const now = performance.now();
    if (asked === null ? now - heard >= EVERY : now - asked >= GONE) ask();
    const state = link();
    rest(state === "gone" || state === "silent");
    el.style.display = state === "alive" ? "none" : "";
    if (state === "gone") put("bad", "no kernel", words.gone);
    else if (state === "silent") put("bad", "no answer", words.silent);
    // Said once and not every second: a screen reader reads what changes.
    else if (state === "busy") put("warn", "busy", words.busy);
    else put("good", "kernel", "");
  }
  function tick() {
    if (beats) return beat();
    if (asked !== null && performance.now() - asked >= GONE) ask();
    const passed = performance.now() - at;
    const age = reading.age_ms == null ? null : reading.age_ms + passed;
    const asking = reading.asking_ms == null ? null : reading.asking_ms + passed;
    const problem = reading.problem || "";
    const gone = link() === "gone";
    if (age === null) {
      if (problem) return put("bad", "failed", problem);
      return asking === null || gone ? put("off", "not asked yet", "") : put("note", "asking", `since ${span(asking)}`);
    }
    if (!fresh && !gone) return put("note", "shown again", `as of ${reading.as_of}`);
    const patient = asking !== null && asking <= PATIENCE && !gone;
    const when = `as of ${reading.as_of}, ${age < 1000 ? "now" : span(age) + " ago"}`;
    const also = patient && asking >= TOLD ? `, asking since ${span(asking)}` : "";
    if (problem) return put("bad", "stale", `${when}${also}. ${problem}`);
    if (gone || (age > reading.limit_ms && !patient)) return put("warn", "stale", when);
    put("good", "live", when + also);
  }
  function changed() { take(model.get("reading")); tick(); }
  function answered(message) {
    // ipywidgets sends a field's last change once the kernel has taken the one before, which it has when this comes.
    if (message?.settle !== undefined) model.send({ settled: message.settle });
    if (!message || message.answer === undefined) return;
    heard = performance.now();
    asked = unanswered = null;
    take(message.reading);
    tick();
  }
  // While nobody touches it, the kernel looks less often; whoever comes back is told at once.
  function touch() {
    const away = performance.now() - touched;
    touched = performance.now();
    if (away >= AWAY && asked === null) ask();
  }
  // A page that slept knows nothing of the time.
  function woke() { if (!document.hidden && asked === null) ask(); }

  model.on("change:reading", changed);
  model.on("msg:custom", answered);
  document.addEventListener("visibilitychange", woke);
  if (beats) for (const event of TOUCHES) document.addEventListener(event, touch, { passive: true });
  const timer = setInterval(tick, 1000);
  const forget = beats ? watchPresses((one) => el.closest(".ml-console")?.contains(one)) : () => {};
  ask();
  tick();
  return () => {
    clearInterval(timer);
    forget();
    rest(false);
    document.removeEventListener("visibilitychange", woke);
    for (const event of TOUCHES) document.removeEventListener(event, touch);
    model.off("change:reading", changed);
    model.off("msg:custom", answered);
  };
}
export default { initialize, render };
