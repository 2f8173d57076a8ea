// Zoom: draws a chart for the ranges that its axes show, from the exact values of its table. Bars
// and charts with categories have no zoom. A heat map zooms along its horizontal axis only.
const rounded = (value) => Math.round(value * 10) / 10;

// The drawing of a chart. `points` are its marks; their places follow the zoom.
const drawing = (svg, rows, points) => {
  const [x, y] = [svg.dataset.x, svg.dataset.y].map((text) => text && readAxis(text));
  const axes = [x, y].filter(Boolean);
  const inner = svg.querySelector(".inner");
  const originals = new Map();
  const change = (node, name, value) => {
    const saved = originals.get(node) ?? {};
    if (!(name in saved)) originals.set(node, { ...saved, [name]: node.getAttribute(name) });
    if (value === null) node.removeAttribute(name); else node.setAttribute(name, value);
  };
  const value = (row, column) => {
    const text = rows[row].cells[column]?.dataset.v;
    return text === undefined ? Number.NaN : Number(text);
  };
  const at = (axis, row, column) => {
    const found = place(axis, value(row, column));
    return Number.isFinite(found) ? rounded(found) : null;
  };
  const intervals = Boolean(svg.querySelector("path.error"));

  const drawSeries = (group) => {
    const [first, count] = group.dataset.rows.split(" ").map(Number);
    let [line, errors, drawing] = ["", "", false];
    for (let row = first; row < first + count; row += 1) {
      const [left, top] = [at(x, row, 1), at(y, row, 2)];
      if (left === null || top === null) {
        drawing = false;
        continue;
      }
      line += !drawing ? `M${left} ${top}`
        : svg.dataset.kind === "steps" ? `H${left}V${top}` : `L${left} ${top}`;
      drawing = true;
      if (!intervals) continue;
      const [low, high] = [at(y, row, 3), at(y, row, 4)];
      if (low === null || high === null) continue;
      errors += `M${left} ${low}V${high}m-3 0h6M${left} ${low}m-3 0h6`;
    }
    const shapes = { line, error: errors };
    for (const path of all("path.line, path.error", group)) {
      change(path, "d", shapes[path.classList[0]]);
    }
  };

  const inside = (axis, where) => !axis
    || (where - axis.start) * (where - axis.end) <= Math.abs(axis.end - axis.start) * 0.5;
  const isInside = (point) => inside(x, point.x) && inside(y, point.y);

  const drawMarks = () => {
    for (const point of points()) {
      if (y) {
        [point.x, point.y] = [at(x, point.row, 1), at(y, point.row, 2)];
        change(point.mark, "transform", `translate(${point.x} ${point.y})`);
      } else {
        const [first, last] = x.full;
        const along = first + (point.home - x.start) / (x.end - x.start) * (last - first);
        point.x = place(x, x.back(along));
      }
    }
    if (y) return;
    const [left, right] = x.full.map((end) => place(x, x.back(end)));
    const scale = (right - left) / (x.end - x.start);
    const shift = `translate(${left - x.start * scale} 0) scale(${scale} 1)`;
    for (const group of all("g", inner)) change(group, "transform", shift);
  };

  const drawGuides = () => {
    for (const guide of all("[data-guide]", svg)) {
      const [direction, level] = guide.dataset.guide.split(" ");
      const axis = direction === "x" ? x : y;
      const where = rounded(place(axis, Number(level)));
      change(guide, "display", inside(axis, where) ? null : "none");
      const [path, text] = guide.children;
      const ends = path.getAttribute("d").match(/[HV].*/)[0];
      if (direction === "x") {
        change(path, "d", `M${where} ${y.end}${ends}`);
        change(text, "x", where);
      } else {
        change(path, "d", `M${x.start} ${where}${ends}`);
        change(text, "y", where + 4);
      }
    }
  };

  const drawAxes = () => {
    const scale = svg.querySelector(".axes");
    const [plain, minor] = ["path.grid:not(.minor)", "path.grid.minor"]
      .map((selector) => scale.querySelector(selector));
    const lines = { true: "", false: "" };
    const [left, right, top, bottom] = svg.dataset.frame.split(" ").map(Number);
    const labels = [];
    // An axis that shows everything keeps its lines and its labels.
    const kept = axes.includes(y) && isZoomed(y) ? [] : [/M[\d.]+ [\d.]+H[\d.]+/g];
    if (!isZoomed(x)) kept.push(/M[\d.]+ [\d.]+V[\d.]+/g);
    for (const pattern of kept) {
      lines.true += (plain.getAttribute("d").match(pattern) ?? []).join("");
      lines.false += (minor.getAttribute("d").match(pattern) ?? []).join("");
    }
    for (const axis of axes.filter(isZoomed)) {
      const side = axis === x ? "x" : "y";
      const ticks = ticksOf(axis);
      const named = ticks.filter(([, label]) => label).length;
      let index = 0;
      for (const [level, label] of ticks) {
        const where = rounded(place(axis, level));
        if (!inside(axis, where)) continue;
        lines[Boolean(label)] += axis === x ? `M${where} ${top}V${bottom}`
          : `M${left} ${where}H${right}`;
        if (!label) continue;
        const spare = axis === x && named > 5 && index % 2 ? " spare" : "";
        index += 1;
        const spot = axis === x ? { x: where, y: bottom + 20 } : { x: left - 8, y: where + 4 };
        labels.push(svgElement("text", { class: `${side}${spare} zoomed`, ...spot }, label));
      }
      for (const text of all(`text.${side}:not(.name)`, scale)) change(text, "display", "none");
    }
    change(plain, "d", lines.true);
    change(minor, "d", lines.false);
    scale.append(...labels);
  };

  const draw = () => {
    for (const text of all(".zoomed", svg)) text.remove();
    for (const [node, saved] of originals) {
      for (const [name, text] of Object.entries(saved)) {
        if (text === null) node.removeAttribute(name); else node.setAttribute(name, text);
      }
    }
    const zoomed = axes.some(isZoomed);
    if (!zoomed && !originals.size) return;
    inner.setAttribute("overflow", zoomed ? "hidden" : "visible");
    drawMarks();
    if (!zoomed) return;
    if (y) all("g[data-rows]", inner).forEach(drawSeries);
    drawGuides();
    drawAxes();
  };
  // Where a point lies on an axis, along it.
  const along = (axis, point) => axis.range[0]
    + (point[axis === x ? "x" : "y"] - axis.start) / (axis.end - axis.start)
    * (axis.range[1] - axis.range[0]);
  return { x, y, axes, draw, isInside, along };
};

// The range of an axis as text of the URL, and back.
const rangeText = (axis) => isZoomed(axis)
  ? axis.range.map((end) => Number(axis.back(end).toPrecision(9))).join("~") : "";
const writeRange = (axis, text) => {
  const [first, last, more] = text.split("~").map((end) => axis.along(Number(end || Number.NaN)));
  axis.range = axis.full;
  const makesSense = more === undefined && Number.isFinite(first) && Number.isFinite(last)
    && first < last && last > axis.full[0] && first < axis.full[1];
  if (makesSense) setRange(axis, [first, last]);
};

// Mouse, pen, finger, keys and buttons that zoom. `shown` tells the point that is lit.
const zoomable = (figure, svg, chart, { shown, hide, show }) => {
  const { axes } = chart;
  const said = figure.querySelector(".range");
  const back = figure.querySelector('[data-zoom="0"]');
  const name = (axis) => axis === chart.x ? figure.dataset.x : figure.dataset.y;
  const ends = (axis) => axis.range
    .map((end) => withUnit(axis, axis.back(end), (axis.back(axis.range[1])
      - axis.back(axis.range[0])) / 10)).join(" to ");
  const update = () => {
    const point = shown();
    hide();
    chart.draw();
    back.hidden = !axes.some(isZoomed);
    said.textContent = axes.filter(isZoomed)
      .map((axis) => `${name(axis)} ${ends(axis)}`).join(", ");
    if (point && chart.isInside(point)) show(point);
  };
  const changed = () => {
    update();
    saveView();
  };
  const whole = () => {
    axes.forEach((axis) => { axis.range = axis.full; });
    changed();
  };
  // Around the point that is lit, else around the middle; both stay where they are.
  const by = (factor) => {
    for (const axis of axes) {
      const [first, last] = axis.range;
      const centre = shown() ? chart.along(axis, shown()) : (first + last) / 2;
      setRange(axis, [centre - (centre - first) * factor, centre + (last - centre) * factor]);
    }
    changed();
  };
  const actions = { "+": () => by(0.5), "=": () => by(0.5), "-": () => by(2), 0: whole };
  for (const button of all("[data-zoom]", figure)) {
    button.addEventListener("click", () => {
      actions[button.dataset.zoom]();
      if (button.hidden) svg.focus();
    });
  }
  svg.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in actions)) return;
    event.preventDefault();
    actions[event.key]();
  });
  svg.addEventListener("dblclick", whole);

  // A drag selects a range of one axis, or a rectangle.
  const FEW = 10;
  let drag = null;
  const spot = (event) => {
    const box = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / box.width;
    return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
  };
  const [left, right, top, bottom] = svg.dataset.frame.split(" ").map(Number);
  const limited = (value, low, high) => Math.min(Math.max(value, low), high);
  const selected = ([from, to]) => {
    const xs = [from[0], to[0]].map((at) => limited(at, left, right)).sort((a, b) => a - b);
    const ys = [from[1], to[1]].map((at) => limited(at, top, bottom)).sort((a, b) => a - b);
    const [wide, high] = [xs[1] - xs[0] >= FEW, chart.y && ys[1] - ys[0] >= FEW];
    return { xs: wide ? xs : null, ys: high && (!wide || ys[1] - ys[0] > 3 * FEW) ? ys : null };
  };
  const move = (event) => {
    drag.to = spot(event);
    const { xs, ys } = selected([drag.from, drag.to]);
    hide();
    drag.box?.remove();
    if (!xs && !ys) return;
    const [l, r] = xs ?? [left, right];
    const [t, b] = ys ?? [top, bottom];
    drag.box = svgElement("rect", { class: "drag", x: l, y: t, width: r - l, height: b - t });
    svg.append(drag.box);
  };
  const end = (event) => {
    removeEventListener("pointermove", move);
    removeEventListener("pointerup", end);
    removeEventListener("pointercancel", end);
    const { from, to, box } = drag;
    box?.remove();
    drag = null;
    if (event.type !== "pointerup" || !to) return;
    const { xs, ys } = selected([from, to]);
    if (!xs && !ys) return;
    if (xs) setRange(chart.x, xs.map((at) => chart.along(chart.x, { x: at })));
    if (ys) setRange(chart.y, [ys[1], ys[0]].map((at) => chart.along(chart.y, { y: at })));
    changed();
  };
  svg.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || drag) return;
    drag = { from: spot(event), to: null, box: null };
    addEventListener("pointermove", move);
    addEventListener("pointerup", end);
    addEventListener("pointercancel", end);
  });

  for (const axis of axes) {
    register(`${figure.id}.${axis === chart.x ? "x" : "y"}`, () => rangeText(axis), (text) => {
      if (text === rangeText(axis)) return;
      writeRange(axis, text);
      update();
    });
  }
  // Moves the ranges so that a point beyond them is shown.
  return (point) => {
    if (chart.isInside(point)) return;
    for (const axis of axes.filter(isZoomed)) {
      const [first, last] = axis.range;
      const centre = chart.along(axis, point);
      setRange(axis, [centre - (last - first) / 2, centre + (last - first) / 2]);
    }
    changed();
  };
};
