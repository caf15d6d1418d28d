"use strict";
const said = document.getElementById("said");
for (const button of document.querySelectorAll(".copy")) {
  button.addEventListener("click", async () => {
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      said.textContent = "Copied";
      button.textContent = "Copied";
    } catch {
      const range = document.createRange();
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      said.textContent = "Selected: press your copy key";
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}
// A tip that is in the way goes with Escape, and comes back with the next bar.
addEventListener("keydown", (event) => { if (event.key === "Escape") document.body.classList.add("quiet"); });
for (const kind of ["focusin", "pointerover"]) {
  addEventListener(kind, (event) => { if (event.target.closest && event.target.closest(".bar")) document.body.classList.remove("quiet"); });
}
for (const form of document.querySelectorAll(".ask-form")) {
  const button = form.querySelector("button[type=submit]"), text = button.textContent;
  form.addEventListener("submit", () => { button.disabled = true; button.textContent = said.textContent = "Working…"; });
  addEventListener("pageshow", () => { button.disabled = false; button.textContent = text; });
}
