# One image for UI and stream host: `docker build -t weir .`, then compose.yaml says who runs what.

FROM eclipse-temurin:17.0.17_10-jre-noble AS java

FROM python:3.11.14-slim-bookworm AS build
ENV JAVA_HOME=/opt/java PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 UV_LINK_MODE=copy
COPY --from=java /opt/java/openjdk /opt/java
WORKDIR /opt/weir
COPY requirements.txt requirements-setup.txt ./
RUN python -m venv .venv && .venv/bin/pip install --no-deps --require-hashes -r requirements-setup.txt
RUN .venv/bin/uv pip install --no-cache --compile-bytecode --no-deps --require-hashes -r requirements.txt
COPY pipelines/__init__.py pipelines/
COPY pipelines/jars pipelines/jars
COPY backend backend
RUN .venv/bin/python -m pipelines.jars host s3 jdbc
COPY . .
RUN .venv/bin/uv pip install --no-cache --no-deps --no-build-isolation -e . && .venv/bin/uv pip uninstall uv setuptools

FROM python:3.11.14-slim-bookworm
# Spark's launch scripts call ps.
RUN apt-get update \
    && apt-get install -y --no-install-recommends procps \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home --shell /usr/sbin/nologin weir \
    && install -d -o weir -g weir /var/lib/weir /var/lib/weir/lake /var/lib/weir/checkpoints \
        /var/lib/weir/landing /var/lib/weir/ledger /var/lib/weir/results /var/lib/weir/logs /var/lib/weir/store
COPY --from=java /opt/java/openjdk /opt/java
COPY --from=build /opt/weir /opt/weir
ENV JAVA_HOME=/opt/java \
    PATH=/opt/weir/.venv/bin:/opt/java/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    WEIR_HOME=/var/lib/weir \
    WEIR_UI__ADDRESS=0.0.0.0
WORKDIR /opt/weir
USER weir
EXPOSE 8501
# Streamlit answers 200 on every path, so the body decides.
HEALTHCHECK --interval=15s --timeout=10s --start-period=60s --retries=3 CMD ["python", "-c", \
    "import json, os, sys, urllib.request as u; \
sys.exit(json.load(u.urlopen(f\"http://127.0.0.1:{os.environ.get('WEIR_PORT', 8501)}/healthz\", timeout=8))['status'] != 'ok')"]
ENTRYPOINT ["weir"]
CMD ["up"]
