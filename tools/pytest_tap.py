"""A plugin of pytest (-p pytest_tap, this directory in PYTHONPATH): results as TAP, not dots.

Where every test was skipped, pytest's exit status is 77 (NOTHING_TESTED of common.sh), not 0.
"""

from __future__ import annotations

import os

import pytest

NOTHING_TESTED = 77
results: set[str] = set()


def tap(ok: bool, name: str, directive: str = "") -> None:
    print(f"{'' if ok else 'not '}ok - {name}{directive}", flush=True)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    path, _, function = report.nodeid.partition("::")
    module = os.path.basename(path).removesuffix(".py").removeprefix("test_")
    name = f"{module}: {function.removeprefix('test_').replace('_', ' ')}".replace("#", "")
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        tap(True, name, f" # SKIP {str(reason).removeprefix('Skipped: ')}")
    elif report.when == "call" or report.failed:
        results.add(report.outcome)
        tap(report.passed, name)


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str]:
    return report.outcome if report.when == "call" else "", "", ""


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        tap(False, f"{report.nodeid} can be read")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if exitstatus == pytest.ExitCode.OK and not results:
        session.exitstatus = NOTHING_TESTED
