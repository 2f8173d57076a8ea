// What the other parts use, and the theme.
const root = document.documentElement;
root.classList.add("js");
const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
const element = (name, ...children) => {
  const made = document.createElement(name);
  made.append(...children);
  return made;
};
const holder = element("template");
holder.innerHTML = "<svg>";
const svgSpace = holder.content.firstChild.namespaceURI;
const svgElement = (name, attributes = {}, ...children) => {
  const made = document.createElementNS(svgSpace, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};
const download = (name, url) => {
  const link = element("a");
  link.href = url;
  link.download = name;
  link.click();
};
const downloadText = (name, type, text) => {
  const url = URL.createObjectURL(new Blob([text], { type }));
  download(name, url);
  setTimeout(() => URL.revokeObjectURL(url), 1000);
};

// The theme follows the system until the reader chooses; the choice is kept where that is allowed.
const theme = document.querySelector(".theme");
const system = matchMedia("(prefers-color-scheme: dark)");
const dark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
const labelTheme = () => { theme.textContent = dark() ? "Light" : "Dark"; };
try { root.dataset.theme = localStorage.getItem("halfpower-theme") || ""; } catch { }
theme.addEventListener("click", () => {
  root.dataset.theme = dark() ? "light" : "dark";
  try { localStorage.setItem("halfpower-theme", root.dataset.theme); } catch { }
  labelTheme();
});
system.addEventListener("change", labelTheme);
labelTheme();
