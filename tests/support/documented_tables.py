"""Commands of the documentation that ``test_documented_lines.py`` does not run: what does, or why nothing can."""

DISTILLED = "tests/flows/test_distillation.py"
ELSEWHERE = {
    "make docs": "tests/test_docs.py (the same build, into a temporary folder)",
    "make reference": "tests/flows/test_reference_pages.py (compares, does not write)",
    "make walk": "tests/flows/test_walk_page.py (compares, does not write)",
    "make notebook": "tests/flows/test_notebook.py (in a browser)",
    "python tests/fingerprints.py --accept": "tests/test_versions.py (compares, does not write)",
    "python tests/simulate.py SEED": "tests/simulation/test_bucket.py (the same schedules)",
    "python tests/support/triton_kernels.py compile": "tests/model/network/test_packed_attention.py",
    "python benchmarks/pack_visit.py --out visit": "tests/benchmarks/test_visit.py (toy sizes)",
    "python benchmarks/visit.py --part check --limit 560 --out results --work /tmp/visit": (
        "tests/benchmarks/test_visit.py (on the CPU)"
    ),
    "python -m model.train job.json": "tests/model/training/test_distributed.py",
    "repro new my-run --source hf://datasets/ME/MINE/train.parquet:en "
    "--target hf://datasets/ME/MINE/train.parquet:de": "tests/flows/commands/test_new.py (the hub is a stand-in)",
    "repro --install-completion": "tests/flows/test_cli.py (into a file)",
    "repro up --foreground": "tests/infra/service/test_service.py",
    "repro up --host 0.0.0.0": "tests/flows/test_standing_service.py (on PostgreSQL, with a password)",
    "repro up --gpu 2 --database-url postgresql://repro@127.0.0.1/repro": (
        "tests/flows/test_standing_service.py (on PostgreSQL, without a GPU)"
    ),
    "repro up --prefect-port 4300 --mlflow-port 5300": "tests/infra/service/test_service.py (free ports)",
    "repro status": "tests/infra/service/test_service.py",
    "repro deploy --canary demo": "tests/flows/orchestration/test_nightly_canary.py (a small run)",
    "repro deploy --notify https://example.org/hook": (
        "tests/flows/orchestration/test_scheduling.py (to a server of the test)"
    ),
    "repro deploy --notify 'https://…'": "tests/flows/orchestration/test_scheduling.py (to a server of the test)",
    "repro deploy": "tests/flows/orchestration/test_scheduling.py (small runs)",
    "repro deploy demo --cron '0 22 * * 5'": "tests/flows/test_standing_service.py (another time)",
    "prefect worker start --pool cpu": "tests/flows/orchestration/test_scheduling.py",
    "prefect deployment run reproduce/demo --param from_stage=train --watch": (
        "tests/flows/orchestration/test_scheduling.py"
    ),
    "prefect deployment run reproduce/demo --watch": "tests/flows/orchestration/test_scheduling.py",
    "prefect flow-run retry ID": "tests/faults/test_workers.py",
    "mlflow db upgrade postgresql+psycopg2://user@host/name_mlflow": (
        "tests/infra/service/test_postgresql_upgrades.py"
    ),
    "repro ls run3": "tests/flows/inspection/test_artifact_list.py (of a root of `benchmarks/large_root.py`)",
    "openssl dgst -verify": "tests/infra/store/test_signatures.py",
    "repro restore .repro/backups/20261122T201500-000000": "tests/flows/test_documented_lines.py (another time)",
    "repro run wmt14-ende-base --site gpu": "tests/flows/test_on_slurm.py (a small run on one node, without a GPU)",
    "repro new '…' --replace": "tests/flows/commands/test_new.py",
    "repro trace '…' --attention attention.png": "tests/flows/test_documented_lines.py (a file of another name)",
    "repro run demo --strict-numerics": "tests/flows/runner/test_expected.py (up to the translations)",
    "repro run FILE.toml": "tests/flows/test_tutorial.py (my-run.toml)",
    "repro serve --host": "tests/flows/inference/test_serve.py",
    "repro run NAME --force register": "tests/flows/test_forced.py (other stages)",
    "repro run demo-distilled": f"{DISTILLED} (a small run)",
    "repro run multi30k-ende-distilled --set synthetic.seeds=1 --set synthetic.n_best=1": f"{DISTILLED} (a small run)",
    "repro run multi30k-ende-distilled --set synthetic.references=true": f"{DISTILLED} (a small run)",
    "repro deploy demo multi30k-ende --activate": "tests/flows/orchestration/test_scheduling.py",
    "repro deploy my-run.toml --activate": "tests/flows/orchestration/test_scheduling.py",
    "repro paper --site gpu": "tests/flows/runner/test_paper.py (rows of a small run, without a GPU)",
}
for size, program, test in (
    ("toy", "throughput.py --size small --lengths multi30k --threads 2", "throughput"),
    ("toy", "throughput.py --size small --lengths wmt --threads 2 --dropouts everywhere", "throughput"),
    ("toy", "decoding.py --size base --threads 2", "decoding"),
    (
        "tiny",
        "serving.py --model multi30k-ende/1 --file val.en --ways served,undivided --seconds 4 --rounds 3 --threads 2",
        "serving",
    ),
    (
        "tiny",
        "serving.py --size base --ways served --clients 8 --seconds 12 --rounds 1 --threads 2 --quantization int8",
        "serving",
    ),
    ("tiny", "latency.py --model demo@champion --sentences 400", "serving"),
    ("tiny", "latency.py --size base --sentences 50", "serving"),
    (
        "tiny",
        "translation.py --model multi30k-ende/1 --file lines.en --lines 100000 --workers 2 --rounds 1",
        "serving",
    ),
    ("six-version", "site.py --versions 1000", "site"),
):
    ELSEWHERE[f"python benchmarks/{program}"] = f"tests/benchmarks/test_{test}.py (its measure(), {size} size)"

WITH_VARIABLES = {
    "REPRO_RANKS=2 repro run demo": "tests/faults/test_kills.py (a small run)",
    "REPRO_LAUNCHER=slurm": "tests/flows/test_on_slurm.py (a small run on one node, without a GPU)",
    "REPRO_LAUNCHER=kubernetes": "tests/infra/launch/test_kubernetes.py (the manifests by their schema, no cluster)",
    "REPRO_ROOT=s3://bucket/prefix repro run demo": "tests/flows/test_remote_root.py (a small run, moto's S3 server)",
    "REPRO_AUTH_FILE=~/.repro-auth repro up --host 0.0.0.0": "tests/flows/test_standing_service.py (on PostgreSQL)",
    "PYTHONSAFEPATH=1 prefect worker start --pool cpu": "tests/flows/orchestration/test_scheduling.py",
    "REPRO_ROOT=s3://bucket/prefix REPRO_SIGN_KEY=": "tests/infra/store/test_trust.py (moto's S3 server)",
}
"""Beginnings of lines whose variables decide where the command runs."""

GPU = "needs a GPU"
ITSELF = "runs the tests, and so this one"
REGISTRY = "asks a package registry"
INSTALLS = "installs packages"
CANNOT = {
    "make test": ITSELF,
    "make test-slow": ITSELF,
    "make lock": REGISTRY,
    "python benchmarks/install.py": REGISTRY,
    "pytest tests/tasks/cleaning/test_filters.py -k length": ITSELF,
    "pytest tests/benchmarks/test_h200_code.py tests/model/network/test_packed_attention.py "
    "tests/model/network/test_bfloat16.py tests/model/test_devices.py -m 'not gpu'": ITSELF,
    "pytest tests/model/decoding/test_static_decoder.py": ITSELF,
    "pytest tests/model/test_transfers.py": ITSELF,
    "pytest tests/benchmarks/test_visit.py -m slow": ITSELF,
    "pytest -m gpu": GPU,
    "pytest -m gpu --collect-only": ITSELF,
    "python benchmarks/estimate.py": "needs Triton, which the CUDA wheels of torch bring",
    "apt-get install libtcmalloc-minimal4": INSTALLS,
    "pip install -e '.[kubernetes]'": INSTALLS,
    "pip install -e '.[ctranslate2]'": INSTALLS,
    "pip install --group node --constraint constraints.txt": INSTALLS,
    "pip install unbabel-comet": INSTALLS,
    "make format": "rewrites the working tree; `make lint`, before every test, says whether it would",
    "make lint": "`make test` runs it before the tests",
    "python docs/pictures.py demo/1 demo/2": "rewrites the pictures of the documentation",
    "python benchmarks/throughput.py --size base --lengths wmt --device cuda --json": GPU,
    "python benchmarks/throughput.py --size big --lengths wmt --device cuda --json": GPU,
    "python benchmarks/decoding.py --size base --device cuda --lengths wmt --peers ''": GPU,
    "python benchmarks/scheduled_runs.py --runs 50 --minutes 12 --database-url "
    "postgresql://user:password@127.0.0.1/bench": "needs a PostgreSQL server; the same without it runs",
    "repro sweep wmt14-ende-base --site gpu --at-once 4 --space training.label_smoothing=0.05,0.1,0.2": GPU,
    "repro run wmt14-enfr-base --site gpu": GPU,
}
