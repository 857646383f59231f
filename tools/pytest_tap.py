"""A plugin of pytest (-p pytest_tap, this directory in PYTHONPATH): results as TAP, not dots."""

from __future__ import annotations

import os

import pytest


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
        tap(report.passed, name)


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str]:
    return report.outcome if report.when == "call" else "", "", ""


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        tap(False, f"{report.nodeid} can be read")
