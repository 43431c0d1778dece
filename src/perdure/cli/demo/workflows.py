"""The demo's workflows and steps, as a user of Perdure would write them."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

from perdure import Context, Perdure, step, workflow
from perdure.cli.demo import report, sources
from perdure.cli.demo.analysis import FileFacts, examine
from perdure.cli.demo.report import Totals
from perdure.cli.demo.sidelog import noted

#: How many packages are indexed at once, and how many files of each.
PACKAGES = 3
FILES = 6

#: The environment variable that says where the demo's store is.
STORE = "PERDURE_DEMO_STORE"


@dataclass
class Job:
    """What to index, and the files to write."""

    root: str
    title: str
    side_log: str
    report: str


@dataclass
class Package:
    """One package of a job: its files, relative to the root."""

    root: str
    side_log: str
    files: list[str]


@step
def find_sources(root: str) -> dict[str, list[str]]:
    return sources.find(root)


@step
def analyse(file: str, root: str, side_log: str) -> FileFacts:
    with noted(side_log, file):
        return examine(root, file)


@step
def write_report(job: Job, packages: dict[str, list[FileFacts]]) -> Totals:
    return report.write(job.report, job.title, packages)


@workflow(version="1")
async def package(ctx: Context, part: Package) -> list[FileFacts]:
    """A durable step for each file, some at once."""
    slots = asyncio.Semaphore(FILES)

    async def one(file: str) -> FileFacts:
        async with slots:
            return await ctx.step(analyse, file, part.root, part.side_log)

    return await asyncio.gather(*map(one, part.files))


@workflow(version="1")
async def index(ctx: Context, job: Job) -> Totals:
    """A child workflow for each package, some at once; then the report."""
    packages = await ctx.step(find_sources, job.root)
    slots = asyncio.Semaphore(PACKAGES)

    async def one(name: str, files: list[str]) -> list[FileFacts]:
        async with slots:
            part = Package(job.root, job.side_log, files)
            return await ctx.child(package, part, id=f"{ctx.run_id}/{name}")

    facts = await asyncio.gather(*(one(name, files) for name, files in packages.items()))
    return await ctx.step(write_report, job, dict(zip(packages, facts, strict=True)))


def app() -> Perdure:
    """The worker's app. Its lease is short, so that what a killed worker held is soon taken over."""
    return Perdure(os.environ[STORE], lease=2)
