// Stands last in a page under test: uses the page as a reader would, and writes what it saw as
// JSON into an element of its own, or to the page that frames it.
(() => {
  "use strict";
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const texts = (row) => [...row.cells].map((cell) => cell.textContent);
  const numbers = (row) => texts(row).filter((text) => text && text !== "\u2013");
  const saw = {};

  // What a tooltip says, and what it should say of the mark that is lit.
  const shown = (figure) => {
    const tip = figure.querySelector(".tip");
    const lit = all(".mark.on", figure);
    if (tip.hidden || lit.length !== 1) return { hidden: tip.hidden, lit: lit.length };
    const rows = figure.querySelector(".data table").tBodies[0].rows;
    return { row: Number(lit[0].dataset.r), series: Number(lit[0].parentNode.dataset.s),
      text: tip.textContent, wanted: numbers(rows[lit[0].dataset.r]) };
  };
  // The middle of a round mark, the end of a bar.
  const middle = (mark) => {
    const box = mark.getBoundingClientRect();
    const x = mark.dataset.x ? box.right : box.left + box.width / 2;
    return { clientX: x, clientY: box.top + box.height / 2, bubbles: true };
  };
  const point = (mark) =>
    mark.ownerSVGElement.dispatchEvent(new PointerEvent("pointermove", middle(mark)));
  const leave = (svg) => svg.dispatchEvent(new PointerEvent("pointerleave"));
  const press = (svg, key) =>
    svg.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  const distance = (a, b) => Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);

  const useChart = (figure) => {
    const svg = figure.querySelector(".plot > svg");
    const marks = all(".mark", svg);
    const rows = [...figure.querySelector(".data table").tBodies[0].rows];
    const drawn = new Set(marks.map((mark) => Number(mark.dataset.r)));
    const chart = { id: figure.id, rows: rows.length, marks: marks.length, drawn: drawn.size,
      undrawn: rows.filter((_, row) => !drawn.has(row)).map((row) => row.cells[2].dataset.v) };

    const wanted = marks[Math.floor(marks.length / 2)];
    point(wanted);
    chart.hover = shown(figure);
    chart.hover_off_by = distance(middle(wanted), middle(figure.querySelector(".on") ?? svg));
    leave(svg);
    chart.left = shown(figure);

    svg.focus();
    chart.focused = document.activeElement === svg;
    press(svg, "ArrowRight");
    chart.first_key = shown(figure);
    press(svg, "ArrowRight");
    chart.second_key = shown(figure);
    press(svg, "ArrowDown");
    chart.down_key = shown(figure);
    press(svg, "Escape");
    chart.escaped = shown(figure);

    const buttons = all(".legend button", figure);
    const toggle = buttons[0];
    const group = svg.querySelector(`g[data-s="${toggle.dataset.s}"]`);
    const state = () => ({ pressed: toggle.ariaPressed, drawn: getComputedStyle(group).display });
    chart.series = buttons.length;
    toggle.click();
    chart.off = state();
    point(group.querySelector(".mark"));
    chart.hover_off = shown(figure).series ?? null;
    leave(svg);
    toggle.click();
    chart.on = state();
    return chart;
  };

  const useTheme = () => {
    const button = document.querySelector(".theme");
    const look = () => ({ theme: document.documentElement.dataset.theme,
      background: getComputedStyle(document.body).backgroundColor, button: button.textContent });
    const states = [look()];
    for (let clicks = 0; clicks < 2; clicks += 1) {
      button.click();
      states.push(look());
    }
    return states;
  };

  const useDownloads = () => {
    // Reading a Blob takes another process, which a browser without a window does not wait for:
    // what goes in is kept, and its size is compared.
    const saved = [];
    const [OwnBlob, click] = [Blob, HTMLAnchorElement.prototype.click];
    globalThis.Blob = class extends OwnBlob {
      constructor(parts, options) {
        super(parts, options);
        saved.push({ text: parts.join(""), type: this.type, size: this.size });
      }
    };
    HTMLAnchorElement.prototype.click = function () {
      Object.assign(saved.at(-1), { file: this.download, scheme: this.protocol });
    };
    const value = (cell) => cell.dataset.csv ?? cell.dataset.v
      ?? (cell.textContent === "\u2013" ? "" : cell.textContent);
    const downloads = all(".csv").map((button) => {
      button.click();
      const rows = all("tr", button.closest("figure").querySelector("table"));
      return { ...saved.at(-1), rows: rows.map((row) => [...row.cells].map(value)) };
    });
    globalThis.Blob = OwnBlob;
    HTMLAnchorElement.prototype.click = click;
    return downloads;
  };

  const useSorting = (figure) => {
    const table = figure.querySelector("table");
    return [...table.tHead.rows[0].cells].map((head) => {
      const column = head.cellIndex;
      const button = head.querySelector("button");
      const look = () => ({ sort: head.ariaSort, cells: [...table.tBodies[0].rows]
        .map((row) => row.cells[column].dataset.v ?? row.cells[column].textContent) });
      const orders = [];
      for (let clicks = 0; clicks < 2; clicks += 1) {
        button.click();
        orders.push(look());
      }
      return { label: head.textContent, number: head.classList.contains("n"), orders };
    });
  };

  const measure = () => {
    const root = document.documentElement;
    const beyond = (element) => element.getBoundingClientRect().right > innerWidth + 0.5
      && !element.closest(".scroller, .skip, .tip");
    const seen = (element) => element.checkVisibility();
    return { inner: innerWidth, scroll: root.scrollWidth,
      beyond: all("body *").filter(beyond).map((e) => `${e.tagName} ${e.textContent}`),
      buttons: all("button").filter(seen).map((button) => button.textContent),
      tools: all(".quiet, nav, .data, .skip, .tip").filter(seen).length,
      charts: all(".plot > svg").filter(seen).length };
  };

  saw.layout = measure();
  if (parent === window) {
    saw.theme = useTheme();
    saw.charts = all("figure.chart").map(useChart);
    saw.downloads = useDownloads();
    saw.sorted = useSorting(document.getElementById("points"));
  }
  saw.resources = performance.getEntriesByType("resource").map((entry) => entry.name);
  saw.page = location.href;
  saw.complaints = complaints;
  if (parent !== window) {
    parent.postMessage({ frame: name, saw }, "*");
    return;
  }
  const result = document.createElement("pre");
  result.id = "test-result";
  result.textContent = JSON.stringify(saw);
  document.body.append(result);
})();
