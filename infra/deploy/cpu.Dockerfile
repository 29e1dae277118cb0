# Servers and workers without a GPU. From the repository's root: docker build -f infra/deploy/cpu.Dockerfile -t repro:cpu .
FROM python:3.11-slim-bookworm

# Package index of torch without CUDA; empty: the default index, whose torch has CUDA and needs 2 GB more.
ARG TORCH_INDEX=""
WORKDIR /opt/repro
COPY constraints.txt requirements.lock pyproject.toml README.md ./
# By checksums; torch has others for each kind of device, so its version alone is pinned.
RUN pip install --no-cache-dir --require-hashes --no-deps --requirement requirements.lock
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} --constraint constraints.txt torch

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
    PYTHONUNBUFFERED=1 DO_NOT_TRACK=true MLFLOW_DISABLE_TELEMETRY=true PREFECT_SERVER_ANALYTICS_ENABLED=false
VOLUME /var/lib/repro
EXPOSE 4200 5000
STOPSIGNAL SIGTERM
CMD ["repro", "up", "--foreground", "--host", "0.0.0.0"]
