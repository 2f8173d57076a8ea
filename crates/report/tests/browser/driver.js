// Stands last in a page under test: uses the page as a reader would, and writes what it saw as
// JSON into an element of its own, or to the page that frames it.
(async () => {
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
  // The middle of a round mark or of a cell, the end of a bar.
  const middle = (mark) => {
    const box = mark.getBoundingClientRect();
    const x = mark.matches(".bar") ? box.right : box.left + box.width / 2;
    return { clientX: x, clientY: box.top + box.height / 2, bubbles: true };
  };
  const point = (mark) =>
    mark.ownerSVGElement.dispatchEvent(new PointerEvent("pointermove", middle(mark)));
  const leave = (svg) => svg.dispatchEvent(new PointerEvent("pointerleave"));
  // The address of the page follows the view after a pause.
  const settled = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
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

  // Reading a Blob takes another process, which a browser without a window does not wait for: what
  // goes in is kept, and its size is compared. A link that would be saved is kept as well.
  const saved = [];
  const pictures = [];
  const catchDownloads = () => {
    const OwnBlob = Blob;
    globalThis.Blob = class extends OwnBlob {
      constructor(parts, options) {
        super(parts, options);
        saved.push({ text: parts.join(""), type: this.type, size: this.size });
      }
    };
    HTMLAnchorElement.prototype.click = function () {
      if (this.protocol === "data:") pictures.push({ file: this.download, url: this.href });
      else Object.assign(saved.at(-1), { file: this.download, scheme: this.protocol });
    };
  };

  const useDownloads = () => {
    const value = (cell) => cell.dataset.csv ?? cell.dataset.v
      ?? (cell.textContent === "\u2013" ? "" : cell.textContent);
    const downloads = all(".csv").map((button) => {
      button.click();
      const rows = all("tr", button.closest("figure").querySelector("table"));
      return { ...saved.at(-1), rows: rows.map((row) => [...row.cells].map(value)) };
    });
    return downloads;
  };

  // Each chart as SVG, read as another program would, and the first few as PNG.
  const useVectors = () => all('.picture[data-name$=".svg"]').map((button) => {
    const shown = all(".plot .mark:not(.dot)", button.closest("figure"));
    button.click();
    const { text, type, file } = saved.at(-1);
    const read = new DOMParser().parseFromString(text, "image/svg+xml");
    const left = all("*", read).flatMap((node) => [...node.attributes])
      .filter(({ name }) => /^(class|style|data-|on)/.test(name));
    return { file, type, error: read.querySelector("parsererror")?.textContent ?? "",
      root: read.documentElement.localName, left: left.length, shown: shown.length,
      shapes: read.querySelectorAll("path, rect").length,
      variables: /var\(|light-dark|url\(/.test(text),
      names: all("text", read).map((node) => node.textContent),
      wanted: all(".legend button, h3", button.closest("figure")).map((e) => e.textContent.trim()),
      background: read.querySelector("rect").getAttribute("fill") };
  });
  const usePictures = async () => {
    const buttons = all('.picture[data-name$=".png"]').slice(0, 2);
    for (const button of buttons) button.click();
    for (let tries = 0; tries < 40 && pictures.length < buttons.length; tries += 1) {
      await settled(50);
    }
    return pictures.map(({ file, url }) => {
      const bytes = atob(url.split(",")[1]);
      const number = (at) => [0, 1, 2, 3]
        .reduce((sum, i) => sum * 256 + bytes.charCodeAt(at + i), 0);
      return { file, kind: bytes.slice(1, 4), width: number(16), height: number(20),
        size: bytes.length };
    });
  };

  // The middle of a cell of a heat map, as the place of a mark.
  const placeOf = (cell) => {
    const [inside, around] = [cell, cell.closest(".plot > svg")]
      .map((one) => one.getBoundingClientRect());
    const scale = cell.closest(".plot > svg").viewBox.baseVal.width / around.width;
    const x = (inside.left + inside.width / 2 - around.left) * scale;
    return `translate(${x} ${(inside.top + inside.height / 2 - around.top) * scale})`;
  };
  // What a chart shows: labels of its axes, places of its marks, its range in words.
  const look = (figure) => {
    const seen = (node) => getComputedStyle(node).display !== "none";
    const svg = figure.querySelector(".plot > svg");
    const labels = (side) => all(`.axes text.${side}:not(.name)`, svg).filter(seen)
      .map((text) => text.textContent);
    return { x: labels("x"), y: labels("y"), range: figure.querySelector(".range")?.textContent,
      off: all('.legend button[aria-pressed="false"]', figure).map((button) => button.dataset.s),
      line: all("path.line", svg).map((path) => path.getAttribute("d")),
      marks: all(".mark", svg).map((mark) => mark.getAttribute("transform") ?? placeOf(mark)) };
  };
  const numbersOf = (texts) => texts.flatMap((text) => text.match(/-?[\d.]+/g).map(Number));
  const furthest = (a, b) => {
    const [one, other] = [numbersOf(a), numbersOf(b)];
    return one.length === other.length
      ? Math.max(0, ...one.map((value, index) => Math.abs(value - other[index]))) : Infinity;
  };
  // Drags from one place of a drawing to another, in shares of the area of its data.
  const drag = (svg, from, to) => {
    const box = svg.getBoundingClientRect();
    const scale = box.width / svg.viewBox.baseVal.width;
    const [left, right, top, bottom] = svg.dataset.frame.split(" ").map(Number);
    const event = (type, [x, y]) => new PointerEvent(type, { bubbles: true, button: 0,
      clientX: box.left + (left + (right - left) * x) * scale,
      clientY: box.top + (top + (bottom - top) * y) * scale });
    svg.dispatchEvent(event("pointerdown", from));
    svg.dispatchEvent(event("pointermove", [(from[0] + to[0]) / 2, (from[1] + to[1]) / 2]));
    svg.dispatchEvent(event("pointermove", to));
    const drawn = all(".drag", svg).length;
    svg.dispatchEvent(event("pointerup", to));
    return drawn;
  };
  const useZoom = async (figure) => {
    const svg = figure.querySelector(".plot > svg");
    const [left, right] = svg.dataset.frame.split(" ").map(Number);
    const before = look(figure);
    const rectangles = drag(svg, [0.25, 0.5], [0.75, 0.52]);
    await settled(200);
    const zoomed = look(figure);
    // The middle half now fills the area: each mark is twice as far from the middle.
    const spread = (text) => text.replace(/[\d.-]+/, (x) =>
      left + (Number(x) - left - (right - left) / 4) * 2);
    const found = { id: figure.id, rectangles, before: before.x, zoomed: zoomed.x,
      y_kept: String(zoomed.y) === String(before.y), range: zoomed.range, link: location.hash,
      off_by: furthest(before.marks.map(spread), zoomed.marks),
      left_over: all(".drag", svg).length };

    svg.focus();
    press(svg, "0");
    await settled(200);
    const whole = look(figure);
    found.whole = { x: whole.x, range: whole.range, link: location.hash,
      off_by: furthest(before.marks, whole.marks),
      line: String(before.line) === String(whole.line) };

    // Around the second point, four times as near; then along the series to its end and back.
    press(svg, "ArrowRight");
    press(svg, "ArrowRight");
    const place = () => middle(figure.querySelector(".on"));
    const at = place();
    press(svg, "+");
    press(svg, "+");
    found.moved = distance(at, place());
    found.near = look(figure).range;
    const rows = new Set();
    const group = figure.querySelector(".on").parentNode;
    const box = svg.getBoundingClientRect();
    const [left_edge, right_edge, top_edge, bottom_edge] = svg.dataset.frame.split(" ")
      .map((at) => Number(at) * box.width / svg.viewBox.baseVal.width);
    let outside = 0;
    for (const key of ["ArrowLeft", "ArrowRight"]) {
      for (let count = 0; count < all(".mark", group).length; count += 1) {
        press(svg, key);
        rows.add(figure.querySelector(".on").dataset.r);
        const { clientX, clientY } = place();
        const [x, y] = [clientX - box.left, clientY - box.top];
        if (x < left_edge - 2 || x > right_edge + 2) outside += 1;
        if (y < top_edge - 2 || y > bottom_edge + 2) outside += 1;
      }
    }
    found.reached = { rows: rows.size, marks: all(".mark", group).length, outside };
    svg.dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
    found.after = look(figure).range;
    return found;
  };

  // A view that is made here and opened again from its link.
  const useView = async () => {
    const [first, second] = ["throughput-read", "latency-percentiles"]
      .map((id) => document.getElementById(id));
    const table = document.querySelector("#points table");
    const view = () => ({ first: look(first), second: look(second),
      sorted: texts(table.tBodies[0].rows[0]), sort: all("th", table).map((head) => head.ariaSort),
      reset: document.querySelector(".reset-view").hidden, link: location.hash });
    if (linked) {
      await settled(1000);
      return { opened: view(), scrolled: scrollY,
        target: document.querySelector(":target")?.id };
    }
    const start = view();
    drag(first.querySelector("svg[data-x]"), [0.2, 0.1], [0.6, 0.9]);
    second.querySelector(".legend button").click();
    second.querySelector('[data-zoom="+"]').click();
    const heads = all("th button", table);
    heads[7].click();
    heads[7].click();
    await settled(200);
    const made = view();
    document.querySelector(".reset-view").click();
    await settled(200);
    return { start, made, reset: view() };
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
  if (parent === window) saw.view = await useView();
  if (parent === window && !saw.view.opened) {
    saw.theme = useTheme();
    saw.charts = all("figure.chart").map(useChart);
    catchDownloads();
    saw.downloads = useDownloads();
    saw.vectors = useVectors();
    saw.zooms = [];
    for (const figure of all("figure.chart:has(svg[data-x])")) {
      saw.zooms.push(await useZoom(figure));
    }
    saw.pictures = await usePictures();
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
