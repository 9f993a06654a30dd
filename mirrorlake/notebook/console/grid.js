// A table that a person searches, sorts and chooses from while its rows change. What they did survives every update.
const STEP = 300;
const TOUCHED = "button,input,a";

const text = (cell) => String((cell !== null && typeof cell === "object" ? cell.text : cell) ?? "");
const order = (cell) => (cell !== null && typeof cell === "object" ? (cell.sort ?? cell.text) : cell);
const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};
// Long names wrap where BREAK says, short ones nowhere, and none within what is UNBROKEN, as in all our HTML (render/content.py).
const unbroken = (text) => make("span", { className: "ml-grid-unbroken" }, text);
const wrapped = (word) => {
  if ([...word].length <= SHORT_NAME) return UNBROKEN.test(word) ? [unbroken(word)] : [word];
  return word.split(BREAK).flatMap((part, at) => {
    const parts = part.split(UNBROKEN).map((one, at) => (at % 2 ? unbroken(one) : one));
    return at ? [make("wbr"), ...parts] : parts;
  });
};
const breakable = (text) => text.split(/(\s+)/).flatMap(wrapped);

function compare(a, b) {
  // What is not known comes last, whichever way the column is sorted.
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), undefined, { numeric: true });
}

function sorted(rows, { key, down }) {
  if (!key) return rows;
  const known = (row) => order(row.cells[key]) !== null && order(row.cells[key]) !== undefined;
  const there = rows.filter(known).sort((a, b) => compare(order(a.cells[key]), order(b.cells[key])) * (down ? -1 : 1));
  return [...there, ...rows.filter((row) => !known(row))];
}

function csv(columns, rows, separator) {
  const quoted = (value) => {
    // A spreadsheet would run a text that begins like a formula.
    const safe = typeof value === "string" && /^[=+@\t\r]/.test(value) ? `'${value}` : text(value);
    return /["\n\r]/.test(safe) || safe.includes(separator) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const plain = (cell) => (cell !== null && typeof cell === "object" ? cell.text : cell);
  const lines = rows.flatMap((row) => [row, ...row.parts]).map((row) => columns.map((column) => plain(row.cells[column.key])));
  return [columns.map((column) => column.title), ...lines].map((line) => line.map(quoted).join(separator)).join("\r\n");
}

function render({ model, el }) {
  const state = { query: "", sort: { key: null, down: false }, open: new Set(), shown: STEP, hidden: new Set(), all: false };
  const lines = new Map();
  const label = model.get("label");

  const search = make("input", { type: "search", placeholder: "Filter", ariaLabel: `Filter ${label}` });
  const count = make("span", { className: "ml-grid-count", role: "status" });
  const copy = make("button", { type: "button", textContent: "Copy", title: "Copy the rows that are shown" });
  const save = make("button", { type: "button", textContent: "CSV", title: "Save the rows that are shown as a CSV file" });
  const head = make("thead");
  const body = make("tbody");
  const table = make("table", {}, head, body);
  const frame = make("div", { className: "ml-grid-frame", tabIndex: 0, role: "region", ariaLabel: label }, table);
  const more = make("button", { type: "button", className: "ml-grid-more" });
  const empty = make("div", { className: "ml-grid-empty" });
  el.classList.add("ml-grid");
  const fold = make("button", { type: "button", className: "ml-grid-fold" });
  el.append(make("div", { className: "ml-grid-tools" }, search, count, copy, save, fold), frame, more, empty);

  const columns = () => model.get("columns");
  const chosen = () => new Set(model.get("selected"));
  const choose = (keys) => {
    model.set("selected", [...keys]);
    model.save_changes();
  };

  function matches(row) {
    const words = state.query.toLowerCase().split(/\s+/).filter(Boolean);
    const all = [row, ...row.parts].map((one) => columns().map((column) => text(one.cells[column.key])).join(" ")).join(" ").toLowerCase();
    return words.every((word) => all.includes(word));
  }

  const found = () => sorted(model.get("rows").filter(matches), state.sort);

  function pick(key) {
    if (model.get("select") === "one") return choose([key]);
    const keys = chosen();
    keys.delete(key) || keys.add(key);
    choose(keys);
  }

  function cell(column, value) {
    const whole = text(value);
    const { short = whole, title = "", link, mark, sign } = value !== null && typeof value === "object" ? value : {};
    const shown = column.kind === "prose" ? whole : short;
    const td = make("td", { className: `ml-grid-${column.kind}` });
    td.dataset.column = column.key;
    if (title || shown !== whole) td.title = title || whole;
    const said = mark ? `${sign} ${shown}` : shown;
    const parts = column.kind === "mark" ? [said] : breakable(said);
    const content = mark ? [make("span", { className: `ml-mark ml-mark-${mark}` }, ...parts)] : parts;
    td.append(...(link ? [opening(link, content)] : content));
    return td;
  }

  function opening(link, parts) {
    // A button would be one block, which does not go on in the next line.
    const anchor = make("a", { className: "ml-grid-link", role: "link", tabIndex: 0 }, ...parts);
    anchor.addEventListener("click", (event) => {
      event.stopPropagation();
      model.send({ open: link });
    });
    anchor.addEventListener("keydown", (event) => event.key === "Enter" && anchor.click());
    return anchor;
  }

  function line(row, part) {
    const tr = make("tr", { className: part ? "ml-grid-part" : "" });
    tr.dataset.key = row.key;
    if (model.get("select") === "many") {
      const box = make("td", { className: "ml-grid-box" });
      if (!part) {
        const input = make("input", { type: "checkbox", ariaLabel: `Choose ${row.key}` });
        input.addEventListener("change", () => pick(row.key));
        box.append(input);
      }
      tr.append(box);
    }
    columns().forEach((column, at) => {
      const td = cell(column, row.cells[column.key]);
      if (at === 0 && row.parts?.length) {
        const opener = make("button", { type: "button", className: "ml-grid-open", ariaLabel: `Parts of ${row.key}` });
        opener.addEventListener("click", (event) => {
          event.stopPropagation();
          state.open.delete(row.key) || state.open.add(row.key);
          draw();
        });
        td.prepend(opener);
      }
      tr.append(td);
    });
    if (model.get("select") === "one" && !part) {
      tr.tabIndex = 0;
      tr.classList.add("ml-grid-pick");
      tr.addEventListener("click", () => pick(row.key));
      tr.addEventListener("keydown", (event) => {
        if (event.target !== tr) return;
        if (event.key === "Enter" || event.key === " ") pick(row.key);
        else if (event.key === "ArrowDown") tr.nextElementSibling?.focus();
        else if (event.key === "ArrowUp") tr.previousElementSibling?.focus();
        else return;
        event.preventDefault();
      });
    }
    return tr;
  }

  // A row is made again only where it says something else, so that focus and the place of the page stay.
  function kept(row, part) {
    const id = JSON.stringify([part, row.key]);
    const said = JSON.stringify([columns(), model.get("select"), row.cells, row.parts?.length ?? 0]);
    const held = lines.get(id);
    if (held?.said === said) return held.tr;
    const tr = line(row, part);
    lines.set(id, { said, tr });
    return tr;
  }

  function place(wanted) {
    const active = document.activeElement;
    const within = body.contains(active) ? active.closest("tr") : null;
    const index = within ? [...within.querySelectorAll(TOUCHED)].indexOf(active) : -1;
    wanted.forEach((tr, at) => {
      if (body.children[at] !== tr) body.insertBefore(tr, body.children[at] ?? null);
    });
    while (body.children.length > wanted.length) body.lastElementChild.remove();
    if (within && document.activeElement !== active) {
      const tr = wanted.find((one) => one.dataset.key === within.dataset.key);
      (index < 0 ? tr : tr?.querySelectorAll(TOUCHED)[index])?.focus({ preventScroll: true });
    }
  }

  function drawHead() {
    const tr = make("tr");
    if (model.get("select") === "many") {
      const all = make("input", { type: "checkbox", ariaLabel: "Choose all rows that are shown" });
      all.addEventListener("change", () => {
        const keys = chosen();
        found().forEach((row) => (all.checked ? keys.add(row.key) : keys.delete(row.key)));
        choose(keys);
      });
      tr.append(make("th", { className: "ml-grid-box", scope: "col" }, all));
    }
    for (const column of columns()) {
      const button = make("button", { type: "button", title: column.help || `Sort by ${column.title}` }, column.title);
      button.addEventListener("click", () => {
        const same = state.sort.key === column.key;
        state.sort = same && state.sort.down ? { key: null, down: false } : { key: column.key, down: same };
        draw();
      });
      const th = make("th", { className: `ml-grid-${column.kind}`, scope: "col" }, button);
      th.dataset.column = column.key;
      tr.append(th);
    }
    head.replaceChildren(tr);
  }

  function draw() {
    const rows = found();
    const all = model.get("rows").length;
    const seen = rows.slice(0, state.shown);
    place(seen.flatMap((row) => [kept(row, false), ...(state.open.has(row.key) ? row.parts.map((one) => kept(one, true)) : [])]));
    const keys = chosen();
    for (const tr of body.children) {
      const is = keys.has(tr.dataset.key) && !tr.classList.contains("ml-grid-part");
      const box = tr.querySelector("td.ml-grid-box input");
      if (box) box.checked = is;
      tr.classList.toggle("ml-grid-chosen", is);
      is ? tr.setAttribute("aria-current", "true") : tr.removeAttribute("aria-current");
      const opener = tr.querySelector(".ml-grid-open");
      if (opener) {
        const open = state.open.has(tr.dataset.key);
        opener.setAttribute("aria-expanded", String(open));
        opener.textContent = open ? "▾" : "▸";
      }
    }
    for (const th of head.querySelectorAll("th[data-column]")) {
      const is = th.dataset.column === state.sort.key;
      th.setAttribute("aria-sort", is ? (state.sort.down ? "descending" : "ascending") : "none");
    }
    const box = head.querySelector("th.ml-grid-box input");
    if (box) {
      const picked = rows.filter((row) => keys.has(row.key)).length;
      box.checked = picked > 0 && picked === rows.length;
      box.indeterminate = picked > 0 && picked < rows.length;
    }
    const picked = model.get("select") === "many" ? `, ${keys.size} chosen` : "";
    const said = (rows.length === all ? `${all}` : `${rows.length} of ${all}`) + picked;
    // A screen reader says it only where it differs.
    if (count.textContent !== said) count.textContent = said;
    more.hidden = rows.length <= seen.length;
    more.textContent = `Show ${Math.min(STEP, rows.length - seen.length)} more of ${rows.length - seen.length}`;
    search.hidden = all < 3 && !state.query;
    frame.hidden = all === 0;
    empty.hidden = rows.length > 0;
    empty.textContent = all === 0 ? model.get("empty") : "No row matches the filter.";
    fit();
  }

  // As in a terminal (render/text.py): those that the table names, then numbers from the last, texts, verdicts; never a reason.
  function leastFirst() {
    const named = model.get("least"), ranks = ["number", "text", "mark"];
    const others = columns().slice(1).filter(({ key, kind }) => !named.includes(key) && ranks.includes(kind)).reverse();
    return [...named, ...others.sort((a, b) => ranks.indexOf(a.kind) - ranks.indexOf(b.kind)).map(({ key }) => key)];
  }

  // The least important columns go until the others fit. They come back when the table gets wider, or when a person wants them.
  function fit() {
    const cells = table.querySelectorAll("[data-column]");
    const hide = () => cells.forEach((one) => (one.hidden = !state.all && state.hidden.has(one.dataset.column)));
    hide();
    for (const key of state.all || !frame.clientWidth ? [] : leastFirst()) {
      if (table.offsetWidth <= frame.clientWidth) break;
      state.hidden.add(key);
      hide();
    }
    const left = columns().filter((column) => state.hidden.has(column.key)).map((column) => column.title);
    fold.hidden = !left.length;
    fold.textContent = state.all ? "Fit the page" : `Show ${left.length} more ${left.length === 1 ? "column" : "columns"}`;
    fold.title = left.join(", ");
  }

  // Rows that are gone keep no element, no choice and no open parts.
  function renew() {
    const keys = new Set(model.get("rows").map((row) => row.key));
    for (const key of state.open) if (!keys.has(key)) state.open.delete(key);
    if (lines.size > 4 * (keys.size + STEP)) lines.clear();
    draw();
  }

  search.addEventListener("input", () => {
    state.query = search.value;
    state.shown = STEP;
    draw();
  });
  fold.addEventListener("click", () => {
    state.all = !state.all;
    draw();
  });
  more.addEventListener("click", () => {
    state.shown += STEP;
    draw();
  });
  copy.addEventListener("click", async () => {
    const rows = csv(columns(), found(), "\t");
    try {
      await navigator.clipboard.writeText(rows);
    } catch {
      // A page without TLS has no clipboard of its own.
      const area = make("textarea", { value: rows });
      el.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    count.textContent = `copied ${found().length}`;
  });
  save.addEventListener("click", () => {
    const address = URL.createObjectURL(new Blob(["\ufeff", csv(columns(), found(), ",")], { type: "text/csv" }));
    make("a", { href: address, download: model.get("file") }).click();
    URL.revokeObjectURL(address);
  });

  const heads = () => {
    state.hidden.clear();
    drawHead();
    renew();
  };
  model.on("change:columns", heads);
  model.on("change:rows", renew);
  model.on("change:selected", draw);
  model.on("change:empty", draw);
  let width = 0;
  const size = new ResizeObserver(() => {
    // Out of sight it has no width, and what comes meanwhile is not measured.
    if (el.clientWidth === width) return;
    width = el.clientWidth;
    state.hidden.clear();
    fit();
  });
  size.observe(el);
  heads();
  return () => {
    size.disconnect();
    model.off("change:columns", heads);
    model.off("change:rows", renew);
    model.off("change:selected", draw);
    model.off("change:empty", draw);
  };
}

export default { initialize, render };
