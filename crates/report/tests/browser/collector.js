// Stands first in a page under test: keeps what would only reach the console.
"use strict";
globalThis.complaints = [];
globalThis.linked = location.hash !== "";
addEventListener("error", (event) => complaints.push(`error: ${event.message}`), true);
addEventListener("unhandledrejection", (event) => complaints.push(`rejection: ${event.reason}`));
addEventListener("securitypolicyviolation", (event) =>
  complaints.push(`blocked by the policy: ${event.blockedURI}`));
console.error = (...what) => complaints.push(`console: ${what.join(" ")}`);
