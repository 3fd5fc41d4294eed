"""The page of reliability says what its logs say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")  # `common` of the benchmarks imports it

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def reliability_page(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import reliability_page

    return reliability_page


def test_a_log_is_a_section_with_its_table_its_finds_and_its_command(
    reliability_page: Any, tmp_path: Path
) -> None:
    from reliability_log import write_log

    given = ("Kills", "make kills", ["All were tried."], ["command", "points"], [["fit", 1234]])
    write_log("kills", *given, [("A file stayed.", "It is removed.")], folder=tmp_path)
    path = write_log("kills", *given, [("It hung.", "It waits.")], folder=tmp_path)
    text = reliability_page.page([json.loads(path.read_text())])
    assert "## Kills\n\nAll were tried.\n\n| command | points |\n" in text
    assert "\n| fit | 1,234 |\n" in text
    assert "- A file stayed. It is removed.\n- It hung. It waits.\n" in text
    assert text.endswith("```sh\nmake kills\n```\n")


def test_the_page_is_that_of_the_committed_logs(reliability_page: Any) -> None:
    logs = [json.loads(path.read_text()) for path in sorted(reliability_page.LOGS.glob("*.json"))]
    assert reliability_page.PAGE.read_text() == reliability_page.page(logs)
