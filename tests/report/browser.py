"""A real headless Chromium, told to be as wide as a desk or a phone, light or dark."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

WIDTHS = {"desktop": 1280, "phone": 390}
THEMES = ("light", "dark")


def find(*names: str) -> str | None:
    """The first of several programs that is on the PATH."""
    return next((path for name in names if (path := shutil.which(name))), None)


@contextmanager
def chromium() -> Iterator[Any]:
    """A driver. Skips where there is no Chromium; in CI that is a failure."""
    browser = find("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    chromedriver = find("chromedriver", "chromium.chromedriver")
    if browser is None or chromedriver is None:
        reason = "no chromium and chromedriver here: apt-get install chromium chromium-driver"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(flag)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # Chromium's sandbox does not start as root
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(chromedriver))
    driver.set_page_load_timeout(60)
    try:
        yield driver
    finally:
        driver.quit()


def show(driver: Any, url: str, width: int, theme: str) -> None:
    """Load ``url`` at this width and in this theme."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": theme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    driver.get_log("performance"), driver.get_log("browser")  # what an earlier page left
    driver.get(url)


def requests(driver: Any) -> list[str]:
    """What was asked for since the page was loaded, inline data left out."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [url for url in asked if not url.startswith("data:")]


def overflow(driver: Any) -> int:
    """Pixels by which the page is wider than the window."""
    script = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    return int(driver.execute_script(script))


def audit(driver: Any) -> list[str]:
    """What axe, the accessibility checker, has against the page as it stands: rule, impact, element."""
    import axe_core_python

    script = Path(axe_core_python.__file__).with_name("axe.min.js").read_text(encoding="utf-8")
    driver.execute_script(script)
    found = driver.execute_async_script("axe.run(document, {}).then(arguments[arguments.length - 1])")
    assert len(found["passes"]) > 20
    return [f"{v['id']} ({v['impact']}): {v['nodes'][0]['html'][:200]}" for v in found["violations"]]


# Ratio of luminances of text and what lies behind it, as WCAG 2 defines it; the worst first.
CONTRAST = """
const channel = v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
const parse = text => text.match(/[\\d.]+/g).map(Number);
const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const behind = node => {
  for (; node; node = node.parentElement) {
    const color = parse(getComputedStyle(node).backgroundColor);
    if (color.length < 4 || color[3] === 1) return color;
  }
  return [255, 255, 255];
};
const found = [];
for (const node of document.querySelectorAll("body *:not(svg):not(svg *):not(script):not(option)")) {
  const own = [...node.childNodes].some(child => child.nodeType === 3 && child.textContent.trim());
  if (!own || !node.getClientRects().length) continue;
  const [a, b] = [light(parse(getComputedStyle(node).color)), light(behind(node))].sort((x, y) => y - x);
  found.push([(a + 0.05) / (b + 0.05), node.className + " " + node.textContent.trim().slice(0, 40)]);
}
return found.sort((x, y) => x[0] - y[0]).slice(0, 3);
"""
