# One broker, controller or both, configured by Apache Kafka's KAFKA_* environment variables or by a mounted server.properties.
ARG BASE=python:3.11-slim
FROM ${BASE}

RUN useradd --system --uid 1000 --home-dir /var/lib/minikafka --create-home minikafka
COPY pyproject.toml README.md /src/
COPY wire /src/wire
COPY storage /src/storage
COPY minikafka /src/minikafka
RUN pip install --no-cache-dir /src && rm -rf /src

USER minikafka
WORKDIR /var/lib/minikafka
ENV KAFKA_LOG_DIRS=/var/lib/minikafka/data \
    MALLOC_MMAP_THRESHOLD_=67108864 \
    PYTHONUNBUFFERED=1
VOLUME /var/lib/minikafka
EXPOSE 9092 9093 9404
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=2s --timeout=2s --start-period=5s --retries=5 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ.get('KAFKA_MINIKAFKA_HTTP_PORT', '9404') + '/readyz', timeout=1)"]
CMD ["sh", "-c", "minikafka storage format --ignore-formatted --cluster-id \"${CLUSTER_ID:-5L6g3nShT-eMCtK--X86sw}\" && exec minikafka start"]
