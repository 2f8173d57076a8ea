// Charts: tooltips by mouse, finger and keyboard, and a legend that switches series. All numbers
// are read from the tables in the page.
const tipLine = (name, text) => element("div", element("span", name), text);

const useChart = (figure) => {
  const svg = figure.querySelector(".plot > svg");
  const tip = figure.querySelector(".tip");
  const table = figure.querySelector(".data table");
  const heads = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
  const rows = table.tBodies[0].rows;
  let known = null;
  const points = () => known ??= all(".mark", svg).map((mark) => {
    const at = mark.transform.baseVal[0]?.matrix;
    const x = at ? at.e : Number(mark.dataset.x);
    return { mark, group: mark.parentNode, row: Number(mark.dataset.r), home: x,
      x, y: at ? at.f : Number(mark.dataset.y) };
  });
  const chart = svg.dataset.x && drawing(svg, rows, points);
  let shown = null;

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
    const cells = [...rows[point.row].cells].map((cell) => cell.textContent);
    const known = (index) => index > 0 && cells[index] && cells[index] !== "\u2013";
    const lines = heads.map((head, i) => known(i) ? tipLine(head, cells[i]) : "");
    tip.replaceChildren(element("b", cells[0]), ...lines);
    tip.hidden = false;
    const scale = svg.clientWidth / svg.viewBox.baseVal.width;
    const [x, y] = [point.x * scale, point.y * scale];
    const left = x + 14 + tip.offsetWidth > svg.clientWidth ? x - 14 - tip.offsetWidth : x + 14;
    tip.style.left = `${Math.max(0, left)}px`;
    tip.style.top = `${Math.max(0, y - tip.offsetHeight / 2)}px`;
  };
  const switchedOn = () => points().filter((point) => !point.group.hasAttribute("display"));
  const inSight = () => switchedOn().filter((point) => !chart || chart.isInside(point));
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
    show(nearest(inSight(), x, y, 40));
  };
  svg.addEventListener("pointermove", pointed);
  svg.addEventListener("pointerdown", pointed);
  svg.addEventListener("pointerleave", hide);
  const reach = chart ? zoomable(figure, svg, chart, { shown: () => shown, hide, show }) : () => {};

  // Keyboard: left and right along a series, up and down to another one. A screen reader passes the
  // keys on to an application, and does not to an image.
  svg.tabIndex = 0;
  svg.setAttribute("role", "application");
  svg.setAttribute("aria-describedby", "keys");
  svg.addEventListener("blur", hide);
  const showAndReach = (point) => {
    reach(point);
    show(point);
  };
  svg.addEventListener("keydown", (event) => {
    const points = switchedOn();
    if (event.key === "Escape") return hide();
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!step || !points.length) return;
    event.preventDefault();
    if (!shown) return showAndReach(inSight()[0] ?? points[0]);
    const along = event.key === "ArrowLeft" || event.key === "ArrowRight";
    const groups = [...new Set(points.map((point) => point.group))];
    const index = groups.indexOf(shown.group);
    const group = along ? shown.group : groups[(index + step + groups.length) % groups.length];
    const same = points.filter((point) => point.group === group);
    const next = same[Math.min(Math.max(same.indexOf(shown) + step, 0), same.length - 1)];
    showAndReach(along ? next : nearest(same, shown.x, shown.y, Infinity));
  });

  const buttons = all(".legend button", figure);
  const isOff = (button) => button.ariaPressed === "false";
  const turn = (button, off) => {
    button.ariaPressed = String(!off);
    const group = svg.querySelector(`[data-s="${button.dataset.s}"]`);
    if (off) group?.setAttribute("display", "none"); else group?.removeAttribute("display");
    hide();
  };
  for (const button of buttons) {
    button.addEventListener("click", () => {
      turn(button, !isOff(button));
      saveView();
    });
  }
  register(`${figure.id}.off`,
    () => buttons.filter(isOff).map((button) => button.dataset.s).join("."),
    (text) => {
      const off = new Set(text.split("."));
      for (const button of buttons) {
        if (off.has(button.dataset.s) !== isOff(button)) turn(button, !isOff(button));
      }
    });
};
all("figure.chart").forEach(useChart);
loadView();
