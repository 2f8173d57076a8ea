// Comforts on top of a page that works without them: theme, tooltips by mouse and keyboard,
// switching series, sorting, CSV. All numbers are read from the tables in the page.
(() => {
  "use strict";
  const root = document.documentElement;
  root.classList.add("js");
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];

  // Theme: follows the system until the reader chooses; the choice is kept where that is allowed.
  const theme = document.querySelector(".theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const label = () => { theme.textContent = dark() ? "Light" : "Dark"; };
  try { root.dataset.theme = localStorage.getItem("halfpower-theme") || ""; } catch { }
  theme.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("halfpower-theme", root.dataset.theme); } catch { }
    label();
  });
  system.addEventListener("change", label);
  label();

  // CSV: exact values from data-v, quoted as RFC 4180 asks.
  const field = (text) => /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  const exact = (cell) => cell.dataset.v ?? cell.textContent.replace(/^\u2013$/, "");
  const csv = (table) => all("tr", table)
    .map((row) => [...row.cells].map((cell) => field(cell.dataset.csv ?? exact(cell))).join(","))
    .join("\r\n") + "\r\n";
  for (const button of all(".csv")) {
    button.addEventListener("click", () => {
      const text = csv(button.closest("figure").querySelector("table"));
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
      link.download = button.dataset.name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }

  // Sorting: by the exact value where there is one.
  const key = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
  };
  const compare = (a, b) => typeof a === "number" ? (typeof b === "number" ? a - b : -1)
    : typeof b === "number" ? 1 : a.localeCompare(b);
  for (const head of all(".sortable th")) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.ariaSort !== "ascending";
      for (const other of head.parentNode.cells) other.ariaSort = null;
      head.ariaSort = up ? "ascending" : "descending";
      const body = head.closest("table").tBodies[0];
      const sign = up ? 1 : -1;
      const column = head.cellIndex;
      body.append(...[...body.rows].sort((a, b) => sign * compare(key(a, column), key(b, column))));
    });
  }

  // Charts.
  for (const figure of all("figure.chart")) {
    const svg = figure.querySelector(".plot > svg");
    const tip = figure.querySelector(".tip");
    const table = figure.querySelector(".data table");
    const heads = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
    const rows = table.tBodies[0].rows;
    const marks = all(".mark", svg).map((mark) => {
      const at = mark.transform.baseVal[0]?.matrix;
      return { mark, group: mark.parentNode,
        x: at ? at.e : Number(mark.dataset.x), y: at ? at.f : Number(mark.dataset.y) };
    });
    let shown = null;

    const line = (name, text) => {
      const row = document.createElement("div");
      const term = document.createElement("span");
      term.textContent = name;
      row.append(term, text);
      return row;
    };
    const hide = () => {
      shown?.mark.classList.remove("on");
      shown = null;
      tip.hidden = true;
    };
    const show = (point) => {
      if (point === shown) return;
      hide();
      if (!point) return;
      shown = point;
      point.mark.classList.add("on");
      const cells = [...rows[point.mark.dataset.r].cells].map((cell) => cell.textContent);
      const name = document.createElement("b");
      name.textContent = cells[0];
      const known = (index) => index > 0 && cells[index] && cells[index] !== "\u2013";
      const lines = heads.map((head, i) => known(i) ? line(head, cells[i]) : "");
      tip.replaceChildren(name, ...lines);
      tip.hidden = false;
      const scale = svg.clientWidth / svg.viewBox.baseVal.width;
      const [x, y] = [point.x * scale, point.y * scale];
      const left = x + 14 + tip.offsetWidth > svg.clientWidth ? x - 14 - tip.offsetWidth : x + 14;
      tip.style.left = `${Math.max(0, left)}px`;
      tip.style.top = `${Math.max(0, y - tip.offsetHeight / 2)}px`;
    };
    const visible = () => marks.filter((point) => !point.group.hasAttribute("display"));
    const nearest = (points, x, y, limit) => {
      let best = null;
      for (const point of points) {
        const distance = Math.hypot(point.x - x, point.y - y);
        if (limit > distance) [best, limit] = [point, distance];
      }
      return best;
    };
    const pointed = (event) => {
      const box = svg.getBoundingClientRect();
      const scale = svg.viewBox.baseVal.width / box.width;
      const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
      show(nearest(visible(), x, y, 40));
    };
    svg.addEventListener("pointermove", pointed);
    svg.addEventListener("pointerdown", pointed);
    svg.addEventListener("pointerleave", hide);

    // Keyboard: left and right along a series, up and down to another one.
    svg.tabIndex = 0;
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (event) => {
      const points = visible();
      if (event.key === "Escape") return hide();
      const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (!step || !points.length) return;
      event.preventDefault();
      if (!shown) return show(points[0]);
      const along = event.key === "ArrowLeft" || event.key === "ArrowRight";
      const groups = [...new Set(points.map((point) => point.group))];
      const index = groups.indexOf(shown.group);
      const group = along ? shown.group : groups[(index + step + groups.length) % groups.length];
      const same = points.filter((point) => point.group === group);
      const next = same[Math.min(Math.max(same.indexOf(shown) + step, 0), same.length - 1)];
      show(along ? next : nearest(same, shown.x, shown.y, Infinity));
    });

    for (const button of all(".legend button", figure)) {
      button.addEventListener("click", () => {
        const off = button.ariaPressed === "true";
        button.ariaPressed = String(!off);
        const group = svg.querySelector(`[data-s="${button.dataset.s}"]`);
        if (off) group?.setAttribute("display", "none"); else group?.removeAttribute("display");
        hide();
      });
    }
  }
})();
