// The link that runs a page in the browser: Python comes from another host, and if that cannot be
// reached the page says so instead of opening an app whose kernel never starts.
document.addEventListener("click", async (event) => {
  const link = event.target.closest(".lml-lite a[data-host]");
  if (!link) return;
  event.preventDefault();
  const line = link.parentElement;
  const wait = { mode: "no-cors", method: "HEAD", signal: AbortSignal.timeout(8000) };
  try {
    await fetch(link.dataset.host, wait);
  } catch {
    if (!line.querySelector("strong")) {
      const said = document.createElement("strong");
      said.setAttribute("role", "status");
      said.textContent = ` ${link.dataset.host} cannot be reached from here: Python would not start.`;
      line.append(said);
    }
    return;
  }
  location.href = link.href;
});
