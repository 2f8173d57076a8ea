// The view in the URL: `#SECTION&ID.KEY=VALUE&...`, so that a link or a reload shows the same. A
// part of the view has a name, `read`, which is empty for the default, and `write`, which ignores
// text that makes no sense and takes empty text as the default.
const parts = new Map();
const register = (name, read, write) => parts.set(name, { read, write });
const resetView = document.querySelector(".reset-view");
let anchor = "";

// Browsers allow some hundred changes of the address in half a minute: the last of a series counts.
const PAUSE_MS = 150;
let waiting = 0;
const saveView = () => {
  resetView.hidden = ![...parts.values()].some((part) => part.read());
  clearTimeout(waiting);
  waiting = setTimeout(writeAddress, PAUSE_MS);
};
const writeAddress = () => {
  const words = [];
  for (const [name, part] of parts) {
    const text = part.read();
    if (text) words.push(`${name}=${text}`);
  }
  const hash = [anchor, ...words].filter(Boolean).join("&");
  if (hash === location.hash.slice(1)) return;
  const page = location.href.split("#")[0];
  // A page in a frame without an origin may not do this; it works without.
  try { history.replaceState(null, "", hash ? `${page}#${hash}` : page); } catch { }
};

const decoded = (text) => {
  try { return decodeURIComponent(text); } catch { return ""; }
};

// A link within the page names only a section: the view stays as it is.
const loadView = () => {
  const words = decoded(location.hash.slice(1)).split("&");
  const named = words[0].includes("=") ? "" : words.shift();
  const target = named && document.getElementById(named);
  anchor = target ? named : "";
  const wanted = new Map(words.map((word) => word.split("=", 2)));
  if (!words.length) return saveView();
  for (const [name, part] of parts) part.write(wanted.get(name) ?? "");
  saveView();
  if (target) target.scrollIntoView({ behavior: "instant" });
};

resetView.addEventListener("click", () => {
  for (const part of parts.values()) part.write("");
  saveView();
});
addEventListener("hashchange", loadView);
