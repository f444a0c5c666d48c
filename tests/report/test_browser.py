"""A report in a real browser: Chromium as Debian packages it (apt-get install chromium chromium-driver)."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from draftproof.cli.report import write_report
from draftproof.properties.formats.case import encode
from tests.report.report_run import make, matrix
from tests.report.test_report import evil_matrix, evil_run

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
if CHROMIUM is None or DRIVER is None:
    pytest.skip("no chromium and chromedriver here: apt-get install chromium chromium-driver", allow_module_level=True)
webdriver = pytest.importorskip("selenium.webdriver", reason="no selenium here: pip install selenium")

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
)
PHONE, DESK = 375, 1280
# The contrast of every piece of visible text with what lies behind it.
CONTRAST = """
const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
const parse = (text) => {
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
};
const known = new Map();
const rgba = (text) => known.get(text) ?? (known.set(text, parse(text)), known.get(text));
const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
  .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
  .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
const behind = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = rgba(getComputedStyle(at).backgroundColor);
    if (colour[3] === 255) return colour;
    if (colour[3] > 0) throw new Error("half transparent: " + at.className);
  }
  return [255, 255, 255];
};
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const found = [];
while (walk.nextNode()) {
  const element = walk.currentNode.parentElement, text = walk.currentNode.data.trim();
  if (!text || element.closest("script, .vh") || !element.checkVisibility()) continue;
  const style = getComputedStyle(element);
  const ink = rgba(element.closest("svg") ? style.fill : style.color);
  const pair = [light(ink), light(behind(element))].sort((a, b) => a - b);
  found.push([(pair[1] + 0.05) / (pair[0] + 0.05), element.tagName + "." + element.className, text.slice(0, 40)]);
}
return found;
"""
WIDER = """
return [...document.body.querySelectorAll("*")].filter((element) => {
  if (element.closest("svg, .vh") || !element.checkVisibility()) return false;
  const around = element.parentElement.closest(".scroll, pre");
  return !around && element.getBoundingClientRect().right > arguments[0] + 0.5;
}).map((element) => element.tagName + "." + element.className);
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Any]:
    """Chromium without a profile; it is told to keep what it logs and asks for."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    """A report with all its sections."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "matrix.json").write_text(encode(matrix()))
    write_report(make(folder / "run"), [folder / "matrix.json"], folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Path:
    """One of a run whose every text is hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "matrix.json").write_text(encode(evil_matrix()))
    write_report(evil_run(folder / "a & b \"c' <i>"), [folder / "matrix.json"], folder / "report.html")
    return folder / "report.html"


def shown(browser: Any, path: Path, *, mode: str = "light", width: int = DESK, media: str = "screen") -> None:
    """Load a file as a screen of this kind shows it, with every part unfolded."""
    feature = {"name": "prefers-color-scheme", "value": mode}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": [feature]})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    browser.get(path.as_uri())
    if media == "screen":
        browser.execute_script("document.querySelectorAll('details').forEach((one) => one.open = true)")


def asked_for(browser: Any) -> list[str]:
    """The addresses that the page asked for."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]


@pytest.mark.parametrize("which", ["plain", "hostile"])
def test_nothing_is_asked_for_and_nothing_goes_wrong(browser, which, request):
    path = request.getfixturevalue(which)
    shown(browser, path)
    assert {url for url in asked_for(browser) if not url.startswith("data:")} == {path.as_uri()}
    assert browser.get_log("browser") == []
    assert browser.title


def test_other_requests_would_be_seen_and_are_refused(browser, plain):
    shown(browser, plain)
    asked_for(browser)
    add = "const one = new Image(); one.src = 'http://127.0.0.1:9/x.png'; document.body.append(one);"
    browser.execute_script(add)
    assert "Content Security Policy" in browser.get_log("browser")[0]["message"]


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("which", ["plain", "hostile"])
def test_every_text_can_be_read(browser, which, mode, request):
    shown(browser, request.getfixturevalue(which), mode=mode)
    found = browser.execute_script(CONTRAST)
    assert len(found) > 500
    assert [one for one in found if one[0] < 4.5] == []
    ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(15, 20, 25)"}[mode]


def test_text_that_cannot_be_read_would_be_seen(browser, plain):
    shown(browser, plain)
    browser.execute_script("document.querySelector('h2').style.color = '#999'")
    assert len([one for one in browser.execute_script(CONTRAST) if one[0] < 4.5]) == 1


@pytest.mark.parametrize("which", ["plain", "hostile"])
@pytest.mark.parametrize("width", [320, PHONE])
def test_a_phone_scrolls_down_only(browser, which, width, request):
    shown(browser, request.getfixturevalue(which), width=width)
    assert browser.execute_script(WIDER, width) == []
    assert browser.execute_script(
        "return [...document.querySelectorAll('.scroll')].some(e => e.scrollWidth > e.clientWidth)"
    )


def test_a_page_that_is_too_wide_would_be_seen(browser, plain):
    shown(browser, plain, width=PHONE)
    browser.execute_script("document.querySelector('h2').style.width = '500px'")
    assert browser.execute_script("return document.documentElement.scrollWidth") > PHONE
    assert len(browser.execute_script(WIDER, PHONE)) == 1


def test_hostile_text_stays_text(browser, hostile):
    shown(browser, hostile)
    assert browser.execute_script("return document.scripts.length") == 1
    assert browser.execute_script("return document.images.length + document.querySelectorAll('i').length") == 0
    assert browser.execute_script("return document.body.innerText.split('<script>alert(1)</script>').length") > 60
    links = browser.execute_script("return [...document.links].map((one) => one.getAttribute('href'))")
    assert all(link.startswith("#") for link in links)
    # An open dialog would have made every line above fail; and so would one that a click opens.
    browser.execute_script("document.querySelectorAll('summary, a, button').forEach((one) => one.click())")
    assert browser.execute_script("return document.readyState") == "complete"


def test_a_script_that_got_in_would_not_run(browser, hostile):
    shown(browser, hostile)
    add = "const one = document.createElement('script'); one.textContent = 'window.got = 1'; document.body.append(one);"
    browser.execute_script(add)
    assert browser.execute_script("return window.got === undefined")
    browser.execute_script(
        "const d = document.createElement('div'); d.innerHTML = '<img src=x onerror=\"window.got = 1\">'"
    )
    assert browser.execute_script("return window.got === undefined")


def test_everything_can_be_reached_with_the_keyboard(browser, plain):
    shown(browser, plain)
    browser.execute_script("document.querySelectorAll('details').forEach((one) => one.open = false)")
    keys = webdriver.Keys
    reached = set()
    for _ in range(60):
        browser.switch_to.active_element.send_keys(keys.TAB)
        active = browser.switch_to.active_element
        reached.add(active.tag_name)
        if active.tag_name == "summary" and "Where they differ" in active.text:
            break
    assert {"a", "summary", "div"} <= reached
    outline = browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    active.send_keys(keys.ENTER)
    assert browser.execute_script("return document.activeElement.parentElement.open")


def test_columns_sort_within_their_groups(browser, plain):
    shown(browser, plain)
    column = """
    const rows = [...[...document.querySelector("table.matrix").tBodies].at(-1).rows].slice(1);
    return rows.map((row) => row.cells[4].dataset.v);
    """
    before = [float(value) for value in browser.execute_script(column)]
    click = "document.querySelectorAll('table.matrix thead button')[4].click()"
    browser.execute_script(click)
    once = [float(value) for value in browser.execute_script(column)]
    browser.execute_script(click)
    twice = [float(value) for value in browser.execute_script(column)]
    assert before != once == sorted(before)
    assert twice == sorted(before, reverse=True)
    heads = "return [...document.querySelectorAll('table.matrix thead th')].map((one) => one.ariaSort)"
    assert [one for one in browser.execute_script(heads) if one] == ["descending"]
    first = "return [...document.querySelector('table.matrix').tBodies].map((one) => one.rows[0].className)"
    assert set(browser.execute_script(first)) == {"group"}


def test_a_command_is_copied_or_selected(browser, plain):
    shown(browser, plain)
    browser.execute_script("document.querySelector('.command button').click()")
    said = "return document.querySelector('.command button').textContent"
    until = time.monotonic() + 5
    while browser.execute_script(said) == "Copy" and time.monotonic() < until:
        time.sleep(0.05)
    assert browser.execute_script(said) in ("Copied", "Selected")


def test_a_printed_report_has_what_is_folded(browser, plain):
    shown(browser, plain, media="print")
    tall = "return document.querySelector('details:not([open]) table').getBoundingClientRect().height"
    assert browser.execute_script(tall) > 20
    assert browser.execute_script("return getComputedStyle(document.querySelector('nav')).display") == "none"
    shown(browser, plain, media="print", mode="dark")
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_a_report_is_whole_without_scripts(browser, plain):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(plain.as_uri())
        tree = browser.execute_cdp_cmd("DOM.getDocument", {"depth": 0})
        html = browser.execute_cdp_cmd("DOM.getOuterHTML", {"nodeId": tree["root"]["nodeId"]})["outerHTML"]
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert "<button" not in html
    assert html.count('class="grid"') == 1
    assert html.count('class="heat"') > 40
    assert "draftproof replay" in html
