"""The canvas of the live pipeline, driven by a stand-in for the notebook's model."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

import asaplab.show.live as live

JS = Path(live.__file__).with_name("live.js").read_text()
CSS = Path(live.__file__).with_name("live.css").read_text()

MODEL = """
  const traits = %s, heard = {};
  const bytes = Uint8Array.from(atob(traits.bars), c => c.charCodeAt(0));
  traits.bars = new DataView(bytes.buffer);
  window.model = {
    get: name => traits[name],
    set: (name, value) => { traits[name] = value; },
    save_changes: () => {},
    send: message => { (window.sent ??= []).push(message); },
    on: (names, call) => { for (const name of names.split(" ")) (heard[name] ??= []).push(call); },
    say: (name, ...args) => { for (const call of heard[name] ?? []) call(...args); },
    change: (name, value) => { traits[name] = value; window.model.say("change:" + name); },
  };
"""


def traits_of(widget: live.LivePipeline) -> str:
    names = ("title", "rows", "places", "kinds", "colours", "series", "window_s", "speed", "row_px", "paused")
    plain = {name: getattr(widget, name) for name in names}
    return json.dumps(plain | {"bars": base64.b64encode(widget.bars).decode()})


def show_all(widget: live.LivePipeline) -> None:
    """What a front end gets that says hello: every bar that was kept."""
    times, what = (b"".join(part.tobytes() for part in column) for column in zip(*widget._kept))
    widget.bars = times + what


def open_canvas(page, widget: live.LivePipeline) -> None:
    page.set_content(f"<style>{CSS} body {{ margin: 16px; color-scheme: light dark }}</style><div id=here></div>")
    page.evaluate(f"() => {{ {MODEL % traits_of(widget)} }}")
    source = base64.b64encode(JS.encode()).decode()
    page.evaluate(
        """async source => {
          const bytes = Uint8Array.from(atob(source), c => c.charCodeAt(0));
          const url = URL.createObjectURL(new Blob([bytes], {type: "text/javascript"}));
          const widget = (await import(url)).default;
          widget.initialize({model: window.model});
          widget.render({model: window.model, el: document.getElementById("here")});
        }""",
        source,
    )


def bars(n: int, devices: int = 8) -> list[live.Bar]:
    """n bars of 0.4 ms on rows that follow each other; every seventh one waits at a barrier."""
    return [
        (f"attention {i % devices}.0", "compute", "barrier_wait" if i % 7 == 0 else "attention", i // 40, i % 5,
         i // devices * 5e-4, i // devices * 5e-4 + 4e-4, 100 + i)
        for i in range(n)
    ]  # fmt: skip


def test_bars_sent_before_the_page_opened_are_drawn_and_can_be_hovered(page, pictures):
    widget = live.LivePipeline(title="asap (paced)", window_s=0.5)
    widget.add(bars(4000))
    show_all(widget)
    open_canvas(page, widget)
    page.wait_for_function("() => +document.querySelector('canvas')?.dataset.bars > 3000")
    box = page.locator("canvas").bounding_box()
    page.mouse.move(box["x"] + box["width"] - 10, box["y"] + 13)
    page.mouse.move(box["x"] + box["width"] - 12, box["y"] + 13)
    page.screenshot(path=pictures / "live-canvas.png")
    tip = page.locator(".asap-live-tip").inner_text()
    assert "tokens" in tip
    assert "layer" in tip
    assert page.evaluate("() => window.sent") == [{"hello": True}]
    assert not page.faults


def test_ten_thousand_bars_are_redrawn_at_fifteen_hertz_or_more(page):
    widget = live.LivePipeline(window_s=10.0)
    widget.add(bars(10_000))
    show_all(widget)
    open_canvas(page, widget)
    page.wait_for_function("() => +document.querySelector('canvas')?.dataset.bars >= 10000")
    drawn = page.evaluate(
        """async () => {
          const canvas = document.querySelector("canvas"), before = +canvas.dataset.frames, start = performance.now();
          let t = 0.625;
          while (performance.now() - start < 2000) {
            const times = new Float64Array(100), what = new Int32Array(250);
            for (let i = 0; i < 50; i++) { times[2 * i] = t; times[2 * i + 1] = t += 1e-4; what[5 * i] = i % 8; }
            window.model.say("msg:custom", {n: 50}, [new DataView(times.buffer), new DataView(what.buffer)]);
            await new Promise(done => setTimeout(done, 45));
          }
          const hz = (+canvas.dataset.frames - before) / (performance.now() - start) * 1e3;
          return {hz, bars: +canvas.dataset.bars};
        }"""
    )
    assert drawn["bars"] >= 10_000
    assert drawn["hz"] >= 15, drawn


def test_pausing_holds_the_picture_and_slow_motion_runs_by_itself(page):
    widget = live.LivePipeline(window_s=0.05, speed=0.05)
    widget.add(bars(2000))
    show_all(widget)
    open_canvas(page, widget)
    page.wait_for_function("() => +document.querySelector('canvas')?.dataset.frames > 5")
    page.get_by_text("pause").click()
    page.wait_for_timeout(100)
    held = page.evaluate("() => document.querySelector('canvas').dataset.frames")
    page.wait_for_timeout(300)
    assert page.evaluate("() => document.querySelector('canvas').dataset.frames") == held
    assert page.evaluate("() => window.model.get('paused')") is True


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_canvas_reads_well_in_light_and_dark(page, pictures, scheme):
    page.emulate_media(color_scheme=scheme)
    widget = live.LivePipeline(title="default (paced)", window_s=0.1)
    widget.add(bars(1600))
    show_all(widget)
    open_canvas(page, widget)
    page.wait_for_function("() => +document.querySelector('canvas')?.dataset.bars > 100")
    page.screenshot(path=pictures / f"live-{scheme}.png")
    assert not page.faults


def test_a_picture_out_of_sight_draws_nothing(page):
    widget = live.LivePipeline(window_s=0.05, speed=0.05)
    widget.add(bars(2000))
    show_all(widget)
    open_canvas(page, widget)
    page.wait_for_function("() => +document.querySelector('canvas')?.dataset.frames > 5")
    page.evaluate("() => { document.getElementById('here').style.marginTop = '5000px'; }")
    page.wait_for_timeout(300)
    held = page.evaluate("() => document.querySelector('canvas').dataset.frames")
    page.wait_for_timeout(300)
    assert page.evaluate("() => document.querySelector('canvas').dataset.frames") == held
    page.locator("canvas").scroll_into_view_if_needed()
    page.wait_for_function("n => +document.querySelector('canvas').dataset.frames > +n", arg=held)
