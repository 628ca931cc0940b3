// Adds a slider to each picture that holds several drawings (book/slider.py). Without this script one drawing is seen.
for (const box of document.querySelectorAll(".lml-slider")) {
  const drawings = [...box.querySelectorAll("svg > g[data-label]")];
  const said = box.querySelector("p");
  const slider = document.createElement("input");
  slider.type = "range"; // arrows, Home, End and Page keys, mouse and touch come with it
  slider.max = drawings.length - 1;
  slider.value = box.dataset.still;
  slider.setAttribute("aria-label", box.dataset.name);
  const show = () => {
    const label = drawings[slider.value].dataset.label;
    drawings.forEach((drawing, number) =>
      drawing.setAttribute("display", number === Number(slider.value) ? "inline" : "none"));
    slider.setAttribute("aria-valuetext", label);
    said.textContent = label;
  };
  slider.addEventListener("input", show);
  said.before(slider);
  show();
}
