"""The page in a real browser: at both widths and in both themes, by keyboard and by pointer, and with a hostile plan."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from advisor.advise import Advice
from advisor.curves import curves
from advisor.plan import Plan, write_plan
from advisor.planning import spec_of
from advisor.report.page.answer import of_advice, of_plan
from advisor.report.page.page import render

from .browser import CONTRAST, THEMES, WIDTHS, audit, overflow, requests, show


@pytest.fixture(scope="module")
def pages(
    tmp_path_factory: pytest.TempPathFactory, mapped: Advice, sharded: Advice, hopeless: Advice
) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("pages")
    assert mapped.plan is not None
    drawn = curves(spec_of(mapped.plan), mapped.machine, mapped.plan.main.job)
    found = {"mapped": of_advice(mapped, drawn), "sharded": of_advice(sharded), "hopeless": of_advice(hopeless)}
    urls = {}
    for name, answer in found.items():
        path = folder / f"{name}.html"
        path.write_text(render(answer), encoding="utf-8")
        urls[name] = path.as_uri()
    return urls


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS.values(), ids=list(WIDTHS))
@pytest.mark.parametrize("name", ["mapped", "sharded", "hopeless"])
def test_page_fits_loads_nothing_and_complains_about_nothing(
    driver: Any, pages: dict[str, str], name: str, width: int, theme: str
) -> None:
    show(driver, pages[name], width, theme)
    driver.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    assert overflow(driver) == 0
    assert driver.get_log("browser") == []
    assert requests(driver) == [pages[name]]
    worst = driver.execute_script(CONTRAST)
    assert worst[0][0] >= 4.5, worst
    assert audit(driver) == []


def test_themes_differ(driver: Any, pages: dict[str, str]) -> None:
    colours = []
    for theme in THEMES:
        show(driver, pages["mapped"], 1280, theme)
        colours.append(driver.execute_script("return getComputedStyle(document.body).backgroundColor"))
    assert colours[0] != colours[1]


def _tip(driver: Any, bar: Any) -> Any:
    return driver.execute_script("return arguments[0].querySelector('.tip')", bar)


@pytest.mark.parametrize("width", WIDTHS.values(), ids=list(WIDTHS))
def test_tab_reaches_every_bar_and_shows_exact_bytes(driver: Any, pages: dict[str, str], width: int) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    show(driver, pages["mapped"], width, "light")
    wanted = len(driver.find_elements(By.CSS_SELECTOR, ".bar"))
    assert wanted >= 4
    reached = []
    for _ in range(60 + wanted):
        driver.switch_to.active_element.send_keys(Keys.TAB)
        here = driver.switch_to.active_element
        if "bar" in (here.get_attribute("class") or "").split():
            tip = _tip(driver, here)
            assert tip.is_displayed()
            assert "bytes" in here.get_attribute("aria-label")
            assert " B" in tip.text
            box = driver.execute_script("const r = arguments[0].getBoundingClientRect(); return [r.left, r.right]", tip)
            assert box[0] >= 0 and box[1] <= width
            here.send_keys(Keys.ESCAPE)
            assert not tip.is_displayed()
            reached.append(here.id)
        if len(reached) == wanted:
            break
    assert len(set(reached)) == wanted


def test_pointing_at_a_bar_shows_its_parts(driver: Any, pages: dict[str, str], mapped: Advice) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    show(driver, pages["mapped"], 1280, "light")
    bar = driver.find_elements(By.CSS_SELECTOR, ".bar")[0]
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", bar)
    ActionChains(driver).move_to_element(bar).perform()
    assert mapped.plan is not None
    gpu = mapped.plan.main.promise.gpus[0]
    text = _tip(driver, bar).text
    assert f"{gpu.required + gpu.runtime:,} B" in text
    assert f"{gpu.parts['weights']:,} B" in text


def test_structure_reads_well_without_eyes(driver: Any, pages: dict[str, str]) -> None:
    for url in pages.values():
        show(driver, url, 1280, "light")
        run = driver.execute_script
        assert run("return document.documentElement.lang") == "en"
        levels = run("return [...document.querySelectorAll('h1,h2,h3,h4')].map(h => Number(h.tagName[1]))")
        assert levels[0] == 1 and levels.count(1) == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))
        unnamed = "return document.querySelectorAll('[role=img]:not([aria-label]), button:empty').length"
        assert run(unnamed) == 0
        assert run("return [...document.querySelectorAll('table.data')].every(t => t.caption || t.tHead)")
        ids = run("return [...document.querySelectorAll('[id]')].map(e => e.id)")
        assert len(ids) == len(set(ids))
        links = run("return [...document.querySelectorAll('nav a')].map(a => a.hash.slice(1))")
        assert set(links) <= set(ids)
        labelled = run("return [...document.querySelectorAll('section')].map(s => s.getAttribute('aria-labelledby'))")
        assert set(labelled) <= set(ids)


HOSTILE = (
    '<script>window.taken=1</script><img src=x onerror=\'window.taken=1\'>" onmouseover="window.taken=1" {{ 7*7 }}'
)


def _poisoned(value: Any, depth: int = 0) -> Any:
    """Every free text of a plan replaced by an attack, keys of maps too."""
    if isinstance(value, str):
        return f"{value}{HOSTILE}"
    if isinstance(value, list):
        return [_poisoned(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {f"{key}{HOSTILE}" if depth else key: _poisoned(item, depth + 1) for key, item in value.items()}
    return value


def hostile_plan(plan: Plan) -> Plan:
    """A valid plan whose texts all attack."""
    value = plan.model_dump(mode="json")
    for name in ("sentence", "created", "why_not", "changes", "given_up"):
        value[name] = _poisoned(value[name])
    for name in ("name", "loader_repo"):
        value["model"][name] = _poisoned(value["model"][name])
    value["model"]["config"]["model_type"] += HOSTILE
    value["hardware"]["name"] += HOSTILE
    value["hardware"]["notes"] = [HOSTILE]
    for gpu in value["hardware"]["gpus"]:
        gpu["name"] += HOSTILE
    for step in value["trace"]:
        for name in ("code", "ask", "to", "because", "conditions"):
            step[name] = _poisoned(step[name])
    for candidate in value["candidates"]:
        candidate["label"] += HOSTILE
        candidate["reason"] += HOSTILE
        for gpu in candidate["gpus"]:
            gpu["parts"] = {f"{key}{HOSTILE}": size for key, size in gpu["parts"].items()}
    for step in value["steps"]:
        step["advice"] = [HOSTILE]
        step["promise"]["peak_phase"] += HOSTILE
        if step["device_map"]:
            step["device_map"] = {f"{key}{HOSTILE}": HOSTILE for key in step["device_map"]}
    value["software"] = {HOSTILE: HOSTILE}
    return Plan.model_validate(value)


@pytest.mark.parametrize("kind", ["mapped", "sharded"])
def test_a_hostile_plan_cannot_run_anything(
    driver: Any, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    plan = hostile_plan(request.getfixturevalue(kind).plan)
    write_plan(plan, tmp_path / "plan.json")
    text = render(of_plan(plan), f"plan{HOSTILE}.json")
    assert text.count("<script>") == 1 and "<img" not in text
    page = tmp_path / "page.html"
    page.write_text(text, encoding="utf-8")
    show(driver, page.as_uri(), 1280, "light")
    assert driver.execute_script("return window.taken === undefined")
    handlers = (
        "return [...document.querySelectorAll('*')].filter(e => e.getAttributeNames().some(n => n.startsWith('on')))"
    )
    assert driver.execute_script(handlers) == []
    assert "{{ 7*7 }}" in driver.execute_script("return document.body.innerText")
    assert requests(driver) == [page.as_uri()]


def test_the_policy_stops_a_script_that_got_in(driver: Any, sharded: Advice, tmp_path: Path) -> None:
    """Were escaping ever to fail, the page's own policy still lets no other script run."""
    text = render(of_advice(sharded)).replace("</main>", "<script>window.taken=1</script></main>")
    page = tmp_path / "page.html"
    page.write_text(text, encoding="utf-8")
    show(driver, page.as_uri(), 1280, "light")
    assert driver.execute_script("return window.taken === undefined")
    assert any("Content Security Policy" in entry["message"] for entry in driver.get_log("browser"))
