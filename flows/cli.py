"""The command line ``repro``. Results go to stdout, everything said along the way to stderr.

Exit codes: 0 done, 1 a stage or command failed, 2 wrong usage or configuration, 130 interrupted.
"""

import atexit
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter
from rich.console import Console

from flows import records
from flows.display import comparison_table, console, score_table, seed_table, stage_table
from flows.running import Outcome, Request, StageFailed, nothing_to_do, plan
from flows.runs import RUNS, VARIATIONS
from flows.seeds import run_seeds, seeds_of
from infra import interrupts
from infra.faults import BadConfiguration, Fault
from infra.prefect_server import temporary_server
from infra.quiet import server_configured, settle
from infra.site import Site

app = App(
    name="repro",
    help="""Reproduce "Attention Is All You Need": one cached, retryable DAG from archives to a registered model.

    For example:

    repro run demo            the whole story on the embedded corpus

    repro plan multi30k-ende  what a run would do, and why

    repro translate --model demo@candidate < in.txt > out.txt

    --debug, at any place, shows the traceback of a failure.""",
    help_format="plaintext",
    suppress_keyboard_interrupt=False,  # answered in main
)

AsJson = Annotated[bool, Parameter(name="--json", help="one JSON object as the last line of stdout", negative=())]


@Parameter(name="*")
@dataclass(frozen=True)
class Asked:
    """What run and plan are asked alike: a Request, word by word."""

    run: Annotated[str, Parameter(help="a run's name (see `repro runs`), or FILE.py:NAME for one of your own")]
    _: KW_ONLY
    from_stage: Annotated[str, Parameter(name="--from", help="run this stage and all after it, cached or not")] = ""
    until: Annotated[str, Parameter(help="stop after this stage")] = ""
    force: Annotated[
        tuple[str, ...],
        Parameter(help="run this stage, cached or not; may be repeated", negative=(), show_default=False),
    ] = ()
    overrides: Annotated[
        tuple[str, ...],
        Parameter(
            name="--set",
            help="one field of the run, as in training.updates=200; may be repeated",
            negative=(),
            show_default=False,
        ),
    ] = ()
    site: Annotated[str, Parameter(help="where to compute: local or gpu")] = "local"

    def request(self) -> Request:
        return Request(**vars(self))


_out = Console(highlight=False)


@app.command
def runs() -> None:
    """List the runs, one line each; those of Table 3 on one.

    Example: repro runs
    """
    width = max(len(name) for name in RUNS)
    for name, value in RUNS.items():
        if name not in VARIATIONS:
            print(f"{name:{width}}  {value.about}")
    rows = ", ".join(name.removeprefix("wmt14-ende-") for name in VARIATIONS)
    print(f"{'wmt14-ende-ROW':{width}}  a row of Table 3, the last checkpoint, newstest2013: {rows}")


@app.command(name="run")
def run_command(
    asked: Asked,
    *,
    seeds: Annotated[str, Parameter(help="one run for each of these seeds, compared at the end")] = "",
    as_json: AsJson = False,
) -> None:
    """Run what is missing of a run; stages whose result is there stay cached.

    For example:

    repro run demo

    repro run demo --from train

    repro run demo --set training.updates=200 --until average

    repro run demo --set training.start=demo@champion --set training.peak=1e-3

    repro run demo --seeds 1,2,3

    repro run my_runs.py:TINY --json
    """
    request = asked.request()
    request.resolve()  # a wrong word is said before a server is started for it
    several = seeds_of(seeds) if seeds else ()
    settle(Site.named(request.site).root)
    served = server_configured()
    if several:
        _run_seeds(request, several, served, as_json)
        return
    try:
        outcome = _carry_out(request, served)
    except StageFailed as failed:
        if as_json:
            print(json.dumps(failed.outcome.as_json(), ensure_ascii=False))
        raise
    _show(outcome, Site.named(request.site), served)
    if as_json:
        print(json.dumps(outcome.as_json(), ensure_ascii=False))


@app.command(name="plan")
def plan_command(asked: Asked, *, as_json: AsJson = False) -> None:
    """Say for each stage whether it is there, and what changed since the last run. Runs nothing.

    Example: repro plan demo --set training.updates=200
    """
    outcome = plan(asked.request())
    if as_json:
        print(json.dumps(outcome.as_json(), ensure_ascii=False))
    else:
        _out.print(stage_table(outcome.rows))


@app.command
def translate(
    *,
    model: Annotated[str, Parameter(help="NAME@alias or NAME/version")] = "demo@champion",
    beam: Annotated[int, Parameter(help="hypotheses kept at each step; 1 is greedy")] = 4,
) -> None:
    """Translate lines of stdin to stdout with a registered model.

    Example: echo "The old woman sees a dog." | repro translate --model demo@candidate
    """
    from infra.registry import local_folder, resolve
    from model.config import Decoding
    from model.translator import Translator

    site = Site.named()
    settle(site.root)
    folder = local_folder(site.tracking, resolve(site.tracking, model))
    weights, vocabulary = folder / "weights", folder / "vocabulary"
    translator = Translator.load(weights, vocabulary, device=site.device, threads=site.threads_each)
    lines = [line.rstrip("\r\n") for line in sys.stdin.buffer.read().decode("utf-8", "replace").split("\n")]
    if lines and not lines[-1]:
        lines.pop()
    for translation in translator.translate(lines, Decoding(beam=beam)):
        print(translation.text)


@app.command
def compare(
    a: Annotated[str, Parameter(help="a run, or a version as in demo@champion or demo/3")],
    b: Annotated[str, Parameter(help="likewise")],
    *,
    html: Annotated[Path | None, Parameter(help="write the comparison, with the sentences that differ most")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two runs or model versions on every set that both were scored on, with paired bootstrap p-values.

    Example: repro compare demo/1 demo@candidate --html compared.html
    """
    from flows.compare import compare_systems, system_of
    from tasks.comparison import page

    site = Site.named()
    settle(site.root)
    first, second = system_of(a, site), system_of(b, site)
    comparisons = compare_systems(first, second, site)
    error = console()
    error.print(f"A: {first.name}\nB: {second.name}", markup=False)
    error.print(comparison_table(comparisons))
    if html:
        html.write_text(page(first.name, second.name, comparisons))
        error.print(f"\npage:    {html}", markup=False, soft_wrap=True)
    if as_json:
        told = {"a": first.name, "b": second.name, "sets": [asdict(each) for each in comparisons]}
        print(json.dumps(told, ensure_ascii=False))


@app.command
def models(name: Annotated[str, Parameter(help="one model only")] = "") -> None:
    """List registered model versions with their scores, protocol and aliases.

    Example: repro models demo
    """
    from infra.registry import versions

    site = Site.named()
    settle(site.root)
    found = versions(site.tracking, name)
    if not found:
        _say("no model is registered yet; `repro run demo` registers one")
    for version in found:
        print(version.line())


def main() -> None:
    """Entry point: one clear sentence and the right exit code for whatever goes wrong."""
    words = [word for word in sys.argv[1:] if word != "--debug"]
    debug = "--debug" in sys.argv
    sys.exit(_guarded(lambda: app(words, exit_on_error=False, print_error=False), debug))


def _guarded(command: Callable[[], Any], debug: bool) -> int:
    # What has to be ended in order (jobs, a server) is ended by the exception on its way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    interrupts.watch()
    try:
        command()
        return 0
    except KeyboardInterrupt:
        _say("interrupted; what was finished is kept, and the same command goes on from there")
        return 130
    except BrokenPipeError:
        return 1
    except Exception as error:
        if debug:
            traceback.print_exc()
        if isinstance(error, CycloptsError | BadConfiguration) and not isinstance(error, StageFailed):
            _say(f"{error}")
            return 2
        known = isinstance(error, Fault | StageFailed)
        _say(f"{error}" if known else f"{type(error).__name__}: {error} (--debug shows where)")
        return 1


def _carry_out(request: Request, served: bool) -> Outcome:
    """Run what is missing; where nothing is, without Prefect, unless a server of the user's is to know of it."""
    outcome = None if served else nothing_to_do(plan(request))
    return outcome or _through_prefect(request)


def _run_seeds(request: Request, seeds: tuple[int, ...], served: bool, as_json: bool) -> None:
    """Run them all and compare them; raises Fault at the end where one failed."""
    found = run_seeds(request, seeds, lambda own: _carry_out(own, served), _say)
    path = records.write_seeds(Site.named(request.site).root, found.run, request.overrides, found.as_json())
    error = console()
    error.print()
    error.print(seed_table(found))
    error.print(f"\nseeds:   {path}", markup=False, soft_wrap=True)
    if as_json:
        print(json.dumps(found.as_json(), ensure_ascii=False))
    if found.failed:
        told = "; ".join(f"seed {seed}: {found.outcomes[seed].failure}" for seed in found.failed)
        raise Fault(f"{len(found.failed)} of {len(seeds)} seeds failed: {told}")


def _through_prefect(request: Request) -> Outcome:
    if not server_configured():
        # Registered before Prefect is imported, so that it ends last: Prefect sends its log on the way out.
        stack = ExitStack()
        atexit.register(stack.close)
        os.environ["PREFECT_API_URL"] = stack.enter_context(temporary_server(Path(os.environ["PREFECT_HOME"])))
    from flows.deployment import run_with_prefect  # reads the address when it is imported

    return run_with_prefect(request)


def _show(outcome: Outcome, site: Site, served: bool) -> None:
    """The stages, the scores, a few translations, and where to look on."""
    error = console()
    error.print()
    error.print(stage_table(outcome.rows))
    if outcome.scores:
        error.print()
        error.print(score_table(outcome.scores))
    for line in [*_samples(outcome), *_where_to_look(outcome, site, served)]:
        error.print(line, markup=False, soft_wrap=True)


def _samples(outcome: Outcome, most: int = 3) -> list[str]:
    """A few sentences of the last set scored: source, reference, hypothesis."""
    import polars as pl

    scored = [row for row in outcome.rows if row.stage == "score" and row.path]
    if not scored:
        return []
    table = pl.read_parquet(Path(scored[-1].path) / "sentences.parquet")
    lines = []
    for row in table.sample(min(most, len(table)), seed=1).iter_rows(named=True):
        lines += ["", *(f"  {name:10}  {row[name]}" for name in ("source", "reference", "hypothesis"))]
    return lines


def _where_to_look(outcome: Outcome, site: Site, served: bool) -> list[str]:
    programs, tracking = Path(sys.executable).parent, site.tracking
    mlflow = f"{programs}/mlflow ui --backend-store-uri {tracking}   then http://127.0.0.1:5000"
    prefect = f"PREFECT_HOME={os.environ.get('PREFECT_HOME', '')} {programs}/prefect server start   then http://127.0.0.1:4200"
    lines = [
        "",
        f"mlflow:  {tracking if tracking.startswith('http') else mlflow}",
        f"prefect: {'the server that is configured' if served else prefect}",
    ]
    lines += [f"report:  {row.path}/report.html" for row in outcome.rows if row.stage == "report" and row.path]
    if outcome.model_version:
        lines.append(f"model:   {programs}/repro translate --model {outcome.model_version} < in.txt > out.txt")
    return lines


def _say(text: str) -> None:
    print(f"repro: {text}", file=sys.stderr)
