// Charts as files: an SVG with its title, its legend and its colours, on a light background, and
// the same as PNG with two pixels for each unit.
const INHERITED = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray",
  "stroke-linejoin", "stroke-linecap", "paint-order", "shape-rendering", "text-anchor",
  "font-size", "font-weight"];

// A copy of a drawing that needs no style sheet.
const resolved = (from, above) => {
  const style = getComputedStyle(from);
  const copy = from.cloneNode(false);
  for (const { name } of [...copy.attributes]) {
    if (/^(class|role|tabindex|style|aria-|data-)/.test(name)) copy.removeAttribute(name);
  }
  for (const name of INHERITED) {
    const value = style.getPropertyValue(name);
    if (value !== above?.getPropertyValue(name)) copy.setAttribute(name, value);
  }
  if (style.opacity !== "1") copy.setAttribute("opacity", style.opacity);
  for (const child of from.childNodes) {
    if (child.nodeType !== Node.ELEMENT_NODE) {
      copy.append(child.textContent);
    } else if (getComputedStyle(child).display !== "none" && !child.matches(".dot, .drag")) {
      copy.append(resolved(child, style));
    }
  }
  return copy;
};

const WIDE = 592;
const EDGE = 16;
const write = (text, x, y, size, weight) =>
  svgElement("text", { x, y, "font-size": size, "font-weight": weight, fill: "#16202b" }, text);

// The words in lines that are at most so long.
const lines = (text, letters) => text.split(" ").reduce((all, word) => {
  const line = `${all.at(-1)} ${word}`;
  return line.length > letters ? [...all, word] : [...all.slice(0, -1), line.trim()];
}, [""]);

// The chart as one SVG element, with the size of its picture.
const picture = (figure) => {
  const svg = figure.querySelector(".plot > svg");
  const font = "system-ui, Segoe UI, Roboto, Helvetica, Arial, sans-serif";
  const made = svgElement("svg", { "font-family": font });
  let y = 14;
  for (const line of lines(figure.querySelector("h3").textContent, 66)) {
    made.append(write(line, EDGE, y += 16, 15, 600));
  }
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `13px ${font}`;
  let x = EDGE;
  y += 10;
  for (const button of all('.legend button[aria-pressed="true"]', figure)) {
    const [name, swatch] = [button.textContent.trim(), button.querySelector("svg")];
    const width = 36 + pen.measureText(name).width + 18;
    if (x > EDGE && x + width > WIDE) [x, y] = [EDGE, y + 20];
    const copy = resolved(swatch, null);
    copy.setAttribute("x", x);
    copy.setAttribute("y", y + 2);
    made.append(copy, write(name, x + 36, y + 13, 13, 400));
    x += width;
  }
  const drawn = resolved(svg, null);
  const { width, height } = svg.viewBox.baseVal;
  const place = { x: EDGE, y: y + 30, width, height, overflow: "visible" };
  for (const [name, value] of Object.entries(place)) drawn.setAttribute(name, value);
  made.append(drawn);
  const high = Math.ceil(y + 30 + height + EDGE);
  made.prepend(svgElement("title", {}, figure.querySelector("h3").textContent),
    svgElement("desc", {}, svg.getAttribute("aria-label")),
    svgElement("rect", { width: WIDE, height: high, fill: "#ffffff" }));
  const size = { width: WIDE, height: high, viewBox: `0 0 ${WIDE} ${high}` };
  for (const [name, value] of Object.entries(size)) made.setAttribute(name, value);
  return { text: new XMLSerializer().serializeToString(made), width: WIDE, height: high };
};

// The picture in the light theme, whatever theme is shown: nothing is painted in between.
const lightPicture = (figure) => {
  const chosen = root.dataset.theme;
  root.dataset.theme = "light";
  const made = picture(figure);
  root.dataset.theme = chosen;
  return made;
};

for (const button of all(".picture")) {
  const figure = button.closest("figure");
  button.addEventListener("click", () => {
    const { text, width, height } = lightPicture(figure);
    if (button.dataset.name.endsWith(".svg")) {
      return downloadText(button.dataset.name, "image/svg+xml", text);
    }
    const image = new Image();
    image.addEventListener("load", () => {
      const canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [2 * width, 2 * height];
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      download(button.dataset.name, canvas.toDataURL("image/png"));
    });
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  });
}
