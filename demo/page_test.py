#!/usr/bin/env python3
"""page_test.py URL [--pictures DIR]

Use the demo's page as a person would, in a headless Chromium by way of chromedriver (Debian: chromium-driver), and
print TAP. URL is what demo/web prints; the cluster is the demo's, with a server (demo/web --cpu). --pictures takes
the pictures of the README in place of that, for which Python needs Pillow; else it needs no module.
"""
import argparse
import base64
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

PATIENCE = 120          # seconds until what hangs has failed: a busy machine is slow
DOWN, ENTER, ESCAPE, TAB, SHIFT = "\ue015", "\ue007", "\ue00c", "\ue004", "\ue008"
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
PICTURE_WIDTH = 1000

tests = failed = 0


def ok(good, name, *why):
    """Print one test."""
    global tests, failed
    tests += 1
    failed += not good
    print(f"{'' if good else 'not '}ok {tests} - {name}", flush=True)
    if not good:
        for line in why:
            print(f"# {line}", flush=True)


class Browser:
    """A Chromium that is told what to do by the WebDriver protocol."""

    def __init__(self, directory, *options):
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
        port = None
        for line in self.driver.stdout:
            port = re.search(r"started successfully on port (\d+)", line)
            if port:
                break
        if not port:
            sys.exit("chromedriver does not start")
        self.base = f"http://127.0.0.1:{port[1]}/session"
        # The page is ours, and a container may forbid the sandbox.
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                     "--disable-background-networking", f"--user-data-dir={directory}", "--lang=en", *options]
        session = self.call("POST", "", {"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": arguments}, "goog:loggingPrefs": {"browser": "ALL"}}}})
        self.base += "/" + session["sessionId"]

    def call(self, method, path, value=None):
        """One command; its result."""
        body = None if value is None else json.dumps(value).encode()
        request = urllib.request.Request(self.base + path, body, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(error.read().decode()) from None

    def run(self, script, *arguments):
        """The value of a script of the page."""
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def goto(self, url):
        """Open a page anew, even if only what stands after # differs."""
        self.call("POST", "/url", {"url": "about:blank"})
        self.call("POST", "/url", {"url": url})

    def keys(self, keys):
        """Press keys, one after another, wherever the focus is; those of a tuple together."""
        actions = []
        for key in keys:
            together = key if isinstance(key, tuple) else (key,)
            actions += [{"type": "keyDown", "value": k} for k in together]
            actions += [{"type": "keyUp", "value": k} for k in reversed(together)]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def click(self, selector):
        """Click on an element."""
        element = self.call("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]
        self.call("POST", f"/element/{element}/click", {})

    def await_that(self, script, *arguments):
        """Wait until a script gives something true; that, or None."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            value = self.run("return " + script, *arguments)
            if value:
                return value
            time.sleep(0.1)
        return None

    def devtools(self, command, **parameters):
        """A command of Chromium's own."""
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def look_like(self, scheme, width, height):
        """Have the page light or dark, in a window of this size."""
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                      mobile=False)

    def picture(self, path, height):
        """Write the top of the page as a PNG."""
        clip = {"x": 0, "y": 0, "width": PICTURE_WIDTH, "height": height, "scale": 1}
        shot = self.devtools("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True,
                             optimizeForSpeed=False)
        # Few colours: a third of the bytes.
        from PIL import Image
        with Image.open(io.BytesIO(base64.b64decode(shot["data"]))) as image:
            image = image.convert("RGB").quantize(128, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
            image.save(path, optimize=True)

    def close(self):
        """End browser and driver."""
        try:
            self.call("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait()


# What the page shows, as a script of it reads it.
ANSWERED = """document.getElementById('answers').getAttribute('aria-busy') === 'false'
    && document.getElementById('asked').textContent.startsWith(arguments[0])
    && document.querySelectorAll('#paths .path').length === 3"""
PATHS = """return [...document.querySelectorAll('#paths .path')].map((path) => ({
    method: path.dataset.path, ms: parseFloat(path.querySelector('.time').textContent),
    recall: path.querySelector('.big').lastChild.textContent, how: path.querySelector('.how').textContent,
    names: [...path.querySelectorAll('li button')].map((b) => b.textContent),
    distances: [...path.querySelectorAll('li span')].map((s) => parseFloat(s.textContent)) }))"""
FOCUS = "return document.activeElement.id || document.activeElement.textContent"
OFFERED = "[...document.querySelectorAll('#matches:not([hidden]) li b')].map((b) => b.textContent)"


def answers_are_right(browser):
    """The page begins with packages like gimp, by three paths."""
    ok(browser.await_that(ANSWERED, "Like gimp"), "the page begins with packages like gimp")
    # The server's mirror is loaded after the first scan.
    for _ in range(PATIENCE):
        paths = browser.run(PATHS)
        if "answered by the server" in paths[0]["how"]:
            break
        time.sleep(1)
        browser.click("#form button[type=submit]")
        browser.await_that(ANSWERED, "Like gimp")
    ok([path["method"] for path in paths] == ["server", "pages", "exact"],
       "answers are by server, pages and the table", paths)
    ok("answered by the server" in paths[0]["how"], "the server answers on its path", paths[0]["how"])
    ok("from the index pages" in paths[1]["how"], "the pages answer on theirs", paths[1]["how"])
    ok("every row" in paths[2]["how"], "the table is read on the last", paths[2]["how"])
    for path in paths:
        ok(len(path["names"]) == 10 and path["names"][0] == "gimp", f"{path['method']}: ten packages, gimp first", path)
        ok(path["distances"] == sorted(path["distances"]), f"{path['method']}: in the order of distances", path)
        ok(path["ms"] > 0, f"{path['method']}: a time", path)
    ok(paths[2]["recall"] == "10 of 10 nearest", "the table finds all", paths[2]["recall"])
    ok(all(len(set(path["names"]) & set(paths[2]["names"])) >= 8 for path in paths), "and the index nearly all", paths)


def keyboard_is_enough(browser):
    """Everything is reached and done without a mouse."""
    browser.keys([TAB])
    ok(browser.run(FOCUS) == "To the answers", "the first Tab leads to a link past the form", browser.run(FOCUS))
    browser.keys([TAB])
    ok(browser.run(FOCUS) == "text", "the next into the field", browser.run(FOCUS))
    browser.run("document.getElementById('text').select()")
    browser.keys("like inksc")
    ok(browser.await_that(OFFERED + ".includes('inkscape')"), "typing offers packages, also after like")
    ok(browser.run("return document.getElementById('text').getAttribute('aria-expanded')") == "true",
       "and says so to readers")
    browser.keys([DOWN])
    ok(browser.run("return document.querySelector('#matches [aria-selected=true]')?.id"
                   " === document.getElementById('text').getAttribute('aria-activedescendant')"), "an arrow chooses")
    browser.keys([ESCAPE])
    ok(browser.run("return document.getElementById('matches').hidden"), "Escape closes the list")
    browser.keys([DOWN, ENTER])
    ok(browser.await_that(ANSWERED, "Like inkscape"), "Enter asks for what is chosen")
    browser.keys([TAB])
    ok(browser.run(FOCUS) == "ef", "Tab leads to the breadth", browser.run(FOCUS))
    browser.keys([TAB, TAB])
    question = browser.run(FOCUS)
    browser.keys([ENTER])
    ok(browser.await_that(ANSWERED, question), f"a stored question is asked by the keyboard: {question}")
    ok(browser.run("return document.querySelector('#questions [aria-pressed=true]')?.textContent") == question,
       "and marked")
    ok(browser.run("return getComputedStyle(document.activeElement).outlineStyle") != "none", "the focus is seen")


def links_and_history_work(browser, url):
    """What is asked is in the address."""
    browser.goto(f"{url}#package=vlc&ef=200")
    ok(browser.await_that(ANSWERED, "Like vlc"), "a link asks for what it names")
    ok(browser.run("return document.getElementById('ef').value") == "200", "with its breadth")
    browser.click("#paths .path li:nth-child(2) button")
    ok(browser.await_that("!document.getElementById('asked').textContent.startsWith('Like vlc')"),
       "a package found is asked for in turn")
    browser.call("POST", "/back", {})
    ok(browser.await_that(ANSWERED, "Like vlc"), "and back")


def nothing_is_executed(browser, url):
    """Texts of people and of the database stay texts."""
    evil = "<img src=x onerror=\"document.title='executed'\">'; DROP TABLE packages; --"
    browser.goto(f"{url}#package={urllib.request.quote(evil)}")
    ok(browser.await_that("document.getElementById('message').textContent.includes('there is no such package')"),
       "a package that is none gives a message")
    ok(browser.run("return document.title !== 'executed' && !document.querySelector('#answers img')"),
       "no HTML comes out of an address")
    browser.run("document.getElementById('text').focus(); document.getElementById('text').select()")
    browser.keys("zz' OR true --")
    time.sleep(1)
    ok(browser.run("return " + OFFERED) == [], "a quote ends no text")
    browser.goto(f"{url}#package=gimp&ef=40")
    ok(browser.await_that(ANSWERED, "Like gimp"), "and the packages are there")


def ways_are_told(browser):
    """What gave an answer is said, whatever it was."""
    for path, words in (
            ({"answered": "server", "engine": "cpu", "reason": None, "visited": 1234},
             "answered by the server, engine cpu; 1,234 rows compared"),
            ({"answered": "pages", "engine": None, "reason": "not_ready", "visited": 0},
             "answered from the index pages, not by the server: not_ready; 0 rows compared"),
            ({"answered": "table", "engine": None, "reason": None, "visited": None},
             "answered from the table, without the index")):
        said = browser.run("return how(arguments[0])", {"method": "server", **path})
        ok(said == words, f"{path['answered']}: is said to have answered", said)


def figures_move(browser):
    """A load shows in the figures of the views."""
    browser.click("#load")
    ok(browser.await_that("parseInt(document.getElementById('rate').textContent.replace(/,/g, '')) >= 20"
                          " && parseFloat(document.getElementById('batch').textContent) >= 1"),
       "queries a second rise, and come in batches")
    ok(browser.await_that("document.getElementById('loaded').textContent.includes('answers in')"),
       "the load says what it got",
       browser.run("return document.getElementById('loaded').textContent"))
    ok(browser.run("return document.getElementById('line').getAttribute('d')").startswith("M"),
       "the last minute is drawn")
    ok(browser.run("return document.getElementById('server').textContent").startswith("Server: engine"),
       "the server is named")


# The least contrast of a text with what is behind it.
CONTRAST = """
const light = (c) => { const v = c.match(/[\\d.]+/g).slice(0, 3).map((x) => { x /= 255;
    return x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4; });
    return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
const behind = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (c !== 'rgba(0, 0, 0, 0)') return c; } return 'rgb(255, 255, 255)'; };
return Math.min(...[...document.querySelectorAll('body *')].filter((e) => e.offsetParent && !e.disabled
    && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())).map((e) => {
    const a = light(getComputedStyle(e).color), b = light(behind(e));
    return (Math.max(a, b) + .05) / (Math.min(a, b) + .05); }))"""


def page_is_readable(browser):
    """Light and dark, wide and narrow."""
    for scheme in ("light", "dark"):
        browser.look_like(scheme, 1200, 900)
        contrast = browser.run(CONTRAST)
        ok(contrast >= 4.5, f"{scheme}: every text stands out", contrast)
        for width in (360, 1200):
            browser.look_like(scheme, width, 900)
            ok(browser.run("return document.documentElement.scrollWidth <= innerWidth"),
               f"{scheme}, {width} wide: nothing is cut off")
    ok(browser.run("return [...document.querySelectorAll('input, select, button')].every("
                   "(e) => e.labels?.length || e.textContent.trim())"),
       "every control has a name")


def nothing_was_wrong(browser):
    """The console is empty, but for the answer 404 that was asked for."""
    entries = [entry["message"] for entry in browser.call("POST", "/se/log", {"type": "browser"})
               if "404" not in entry["message"]]
    ok(not entries, "the browser has nothing to complain of", *entries)


def take_pictures(browser, url, directory):
    """The pictures of the README: an answer while a load runs, light; a question, dark."""
    for name, scheme, what, title in (("demo-light", "light", "package=gimp&ef=40", "Like gimp"),
                                      ("demo-dark", "dark", "question=44&ef=10", "tune a guitar")):
        browser.look_like(scheme, PICTURE_WIDTH, 900)
        browser.goto(f"{url}#{what}")
        browser.await_that(ANSWERED, title)
        browser.click("#load")
        browser.await_that("document.getElementById('loaded').textContent.includes('answers in')")
        browser.click("#load")
        time.sleep(4)
        browser.run("document.activeElement.blur(); scrollTo(0, 0)")
        browser.picture(os.path.join(directory, name + ".png"), browser.run("return document.body.offsetHeight - 20"))
        browser.await_that("document.getElementById('loaded').textContent.includes('answers in')")


def main():
    """Run all tests, or only take the pictures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--pictures")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        browser = Browser(directory)
        try:
            browser.look_like("light", 1200, 900)
            browser.goto(options.url)
            if options.pictures:
                take_pictures(browser, options.url, options.pictures)
                return 0
            answers_are_right(browser)
            keyboard_is_enough(browser)
            links_and_history_work(browser, options.url)
            nothing_is_executed(browser, options.url)
            ways_are_told(browser)
            figures_move(browser)
            page_is_readable(browser)
            nothing_was_wrong(browser)
        finally:
            browser.close()
    print(f"1..{tests}")
    return failed > 0


sys.exit(main())
