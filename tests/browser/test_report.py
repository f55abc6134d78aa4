"""The report of a real batch, opened from the disk by a browser that has no network."""

from __future__ import annotations

import json

import pytest

from asaplab.lab import report
from asaplab.lab.claims_lab import NOTEBOOK_CLAIMS, unanswered
from asaplab.lab.claims_rows import CLAIMS

LEDGER = [unanswered(claim) for claim in (*CLAIMS, *NOTEBOOK_CLAIMS)]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_report_of_a_batch_is_complete_without_network(browser, small_batch, tmp_path, pictures, scheme):
    written, _ = report.write(tmp_path, small_batch, LEDGER)
    context = browser.new_context(offline=True, color_scheme=scheme, viewport={"width": 1280, "height": 900})
    page, asked, faults = context.new_page(), [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(written.as_uri())
    wanted = [figure for outcome in small_batch for figure in _figures(outcome)]
    page.wait_for_function("n => document.querySelectorAll('.plot .main-svg').length >= n", arg=len(wanted))
    for name in wanted:
        drawn = page.evaluate(
            "id => [...document.getElementById(id).querySelectorAll('.trace, .bars .point, .shapelayer path')].length",
            name,
        )
        assert drawn > 0, f"figure {name} is empty"
    rows = page.eval_on_selector_all("#claims tbody tr", "rows => rows.map(row => row.cells[0].textContent)")
    assert rows == [row["id"] for row in LEDGER]
    assert page.locator("section table tbody tr").count() > len(rows)
    for width in (1280, 1920):
        page.set_viewport_size({"width": width, "height": 1000})
        page.wait_for_timeout(300)
        assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth"), "scrolls sideways"
        page.screenshot(path=pictures / f"report-{scheme}-{width}.png", full_page=True)
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert faults == []
    context.close()


def _figures(outcome) -> list[str]:
    with open(f"{outcome.folder}/record.json") as file:
        return [f"{outcome.name}-{name}" for name in json.load(file)["figures"]]
