# A worker with GPUs. From the repository's root: docker build -f infra/deploy/gpu.Dockerfile -t repro:gpu .
# torch includes CUDA; the host provides the driver through NVIDIA's container toolkit.
FROM python:3.11-slim-bookworm

# Compiled layers (REPRO_COMPILE) need a C compiler.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/repro
COPY constraints.txt requirements.lock pyproject.toml README.md ./
# By checksums; torch has others for each kind of device, so its version alone is pinned.
RUN pip install --no-cache-dir --require-hashes --no-deps --requirement requirements.lock
RUN pip install --no-cache-dir --constraint constraints.txt torch

COPY prefect.yaml ./
COPY model model
COPY infra infra
COPY tasks tasks
COPY flows flows
# Editable, so that flows/orchestration/prefect_flows.py lies where deployments look for it.
RUN pip install --no-cache-dir --constraint constraints.txt --editable ".[postgresql]"

RUN useradd --create-home repro && mkdir /var/lib/repro && chown repro /var/lib/repro
USER repro
ENV PYTHONSAFEPATH=1 REPRO_ROOT=/var/lib/repro/root REPRO_CACHE=/var/lib/repro/cache PREFECT_HOME=/var/lib/repro/prefect \
    PYTHONUNBUFFERED=1 DO_NOT_TRACK=true MLFLOW_DISABLE_TELEMETRY=true PREFECT_SERVER_ANALYTICS_ENABLED=false \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
VOLUME /var/lib/repro
STOPSIGNAL SIGTERM
CMD ["prefect", "worker", "start", "--pool", "gpu", "--type", "process"]
