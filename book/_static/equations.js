// Shows the equation that a link leads to, while the pointer or the focus is on the link. Escape hides it.
(() => {
  const pages = new Map(); // text of other pages of the site, asked for at the first link to one
  const box = document.createElement("div");
  box.className = "lml-preview math";
  box.id = "lml-preview";
  box.setAttribute("role", "tooltip");
  let shown = null;

  async function equation(link) {
    const id = decodeURIComponent(link.hash.slice(1));
    if (link.pathname === location.pathname) return document.getElementById(id);
    if (!pages.has(link.pathname))
      pages.set(link.pathname, fetch(link.pathname).then(page => page.text()).then(
        text => new DOMParser().parseFromString(text, "text/html")));
    return (await pages.get(link.pathname)).getElementById(id);
  }

  function hide() {
    shown?.removeAttribute("aria-describedby");
    shown = null;
    box.remove();
  }

  async function show(event) {
    const link = event.target.closest?.('article a[href*="#equation-"]:not(.headerlink)');
    if (!link || link === shown) return;
    hide();
    shown = link;
    const found = await equation(link).catch(() => null); // a page opened from a disk reads no other
    if (!found || shown !== link) return;
    box.replaceChildren(...found.cloneNode(true).childNodes);
    link.setAttribute("aria-describedby", box.id);
    document.body.append(box);
    if (!box.querySelector("mjx-container")) await window.MathJax?.typesetPromise?.([box]);
    const place = link.getBoundingClientRect();
    const left = Math.min(place.left, document.documentElement.clientWidth - box.offsetWidth - 8);
    const above = place.top > box.offsetHeight + 8;
    box.style.left = `${scrollX + Math.max(left, 8)}px`;
    box.style.top = `${scrollY + (above ? place.top - box.offsetHeight - 6 : place.bottom + 6)}px`;
  }

  addEventListener("pointerover", show);
  addEventListener("focusin", show);
  addEventListener("pointerout", event => { if (shown?.contains(event.target)) hide(); });
  addEventListener("focusout", hide);
  addEventListener("keydown", event => { if (event.key === "Escape") hide(); });
})();
