// Axes: positions of values, and the ticks of a range that the reader zoomed to. The ticks of the
// whole range are those of the page.
const scales = {
  linear: { along: (value) => value, back: (at) => at },
  log2: { along: Math.log2, back: (at) => 2 ** at },
  log10: { along: Math.log10, back: (at) => 10 ** at },
  percentile: { along: (value) => -Math.log10(1 - value), back: (at) => 1 - 10 ** -at },
};
const steps = (names, size) => names.map((name, index) => [size ** index, name]);
const times = [" ns", " us", " ms", " s"];
const sizes = [" B", " KiB", " MiB", " GiB", " TiB"];
const units = {
  bytes: steps(sizes, 1024),
  bytes_per_s: steps(sizes.slice(0, 4).map((name) => `${name}/s`), 1024),
  ns: steps(times, 1000),
  s: steps(times, 1000).map(([size, name]) => [size / 1e9, name]),
  share: [[1e-6, " ppm"], [0.01, "%"]],
  count: steps(["", "k", "M", "G"], 1000),
};

// An axis from the attribute of its drawing: scale, ends, place of the ends, size of the unit that
// a linear axis shows, unit. `range` is what is shown, along the axis.
const readAxis = (text) => {
  const [scale, first, last, start, end, divisor, unit] = text.split(" ");
  const full = [Number(first), Number(last)];
  return { ...scales[scale], scale, full, range: full, start: Number(start), end: Number(end),
    divisor: Number(divisor), units: units[unit] ?? units.count };
};
const place = (axis, value) => {
  const [first, last] = axis.range;
  return axis.start + (axis.along(value) - first) / (last - first) * (axis.end - axis.start);
};
const isZoomed = (axis) => axis.range !== axis.full;
const DEEPEST = 1e-4;

// Shows a range; one that is too small is widened, one beyond the ends is moved inside.
const setRange = (axis, [first, last]) => {
  const [low, high] = axis.full;
  const width = Math.max(last - first, (high - low) * DEEPEST);
  if (!(width < (high - low) * 0.9999)) {
    axis.range = axis.full;
    return;
  }
  const middle = (first + last) / 2;
  const start = Math.min(Math.max(middle - width / 2, low), high - width);
  axis.range = [start, start + width];
};

// A number with the digits that tell values one step apart.
const decimal = (value, step) => {
  const digits = Math.min(Math.max(Math.ceil(-Math.log10(step)) + 2, 0), 12);
  return value.toLocaleString("en-US", { maximumFractionDigits: digits }).replace("-", "\u2212");
};
const withUnit = (axis, value, step) => {
  if (axis.scale === "percentile") return decimal(value * 100, (1 - value) * 100) + "%";
  const [size, name] = axis.units.findLast((unit) => Math.abs(value) >= unit[0] * 0.9999)
    ?? axis.units[0];
  return decimal(value / size, step / size) + name;
};

// Round numbers within a range, about five, as [value, label].
const roundTicks = (low, high, size, label) => {
  const rough = (high - low) / size / 5;
  const magnitude = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((one) => one * magnitude >= rough * 0.999)
    * magnitude * size;
  const ticks = [];
  for (let index = Math.ceil(low / step - 1e-6); index * step <= high * (1 + 1e-9); index += 1) {
    ticks.push([index * step || 0, label(index * step || 0, step)]);
  }
  return ticks;
};

// The ticks of the range that is shown, as [value, label]; a minor tick has no label.
const ticksOf = (axis) => {
  const [first, last] = axis.range;
  const span = last - first;
  const [low, high] = [axis.back(first), axis.back(last)];
  const label = (value, step) => withUnit(axis, value, step);
  if (axis.scale === "linear") {
    return roundTicks(low, high, axis.divisor,
      (value, step) => decimal(value / axis.divisor, step / axis.divisor));
  }
  const ticks = [];
  const [from, to] = [Math.ceil(first - 1e-9), Math.floor(last + 1e-9)];
  if (axis.scale === "percentile") {
    if (span < 1) return roundTicks(low, high, 0.01, (value, step) =>
      `${decimal(value * 100, step * 100)}%`);
    for (let nines = from; nines <= to; nines += 1) {
      ticks.push([axis.back(nines), label(axis.back(nines))]);
    }
    return ticks;
  }
  const base = axis.scale === "log2" ? 2 : 10;
  if (span >= (base === 2 ? 3 : 4)) {
    let gap = 1;
    while (span / gap >= 9) gap *= 2;
    for (let power = from; power <= to; power += 1) {
      const value = base ** power;
      ticks.push([value, power % gap === 0 ? label(value, value) : ""]);
    }
    return ticks;
  }
  if (base === 10 && span >= 0.9) {
    for (let power = Math.floor(first); power <= last; power += 1) {
      for (let digit = 1; digit < 10; digit += 1) {
        const value = digit * 10 ** power;
        const named = digit === 1 || (span <= 2.5 && (digit === 2 || digit === 5));
        if (value >= low * 0.9999 && value <= high * 1.0001) {
          ticks.push([value, named ? label(value, value) : ""]);
        }
      }
    }
    return ticks;
  }
  const size = (axis.units.findLast((unit) => low >= unit[0]) ?? axis.units[0])[0];
  return roundTicks(low, high, size, label);
};
