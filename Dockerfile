# One broker, controller or both, configured by a mounted server.properties or by the environment variables of Apache Kafka's, Confluent's
# or Bitnami's image (minikafka/broker/config/image_environment.py).
ARG BASE=python:3.11-slim

# Everything is in a virtual environment: Debian's Python lets pip install nowhere else (PEP 668), and it is copied in one layer.
FROM ${BASE} AS build
COPY pyproject.toml README.md LICENSE /src/
COPY wire /src/wire
COPY storage /src/storage
COPY minikafka /src/minikafka
RUN python3 -m venv --without-pip /opt/minikafka \
    && python3 -m pip --python /opt/minikafka/bin/python install --no-cache-dir "/src[client-metrics]" \
    && find /opt/minikafka -type d -name tests -prune -exec rm -r {} +

FROM ${BASE}
RUN useradd --uid 1000 --home-dir /var/lib/minikafka --create-home minikafka \
    && mkdir -p /var/lib/minikafka /var/lib/kafka/data /bitnami/kafka/data \
    && chown -R minikafka:minikafka /var/lib/minikafka /var/lib/kafka /bitnami
COPY --from=build /opt/minikafka /opt/minikafka
COPY docker/healthcheck.py /etc/minikafka/

USER minikafka
WORKDIR /var/lib/minikafka
ENV PATH=/opt/minikafka/bin:$PATH \
    KAFKA_MINIKAFKA_HTTP_PORT=9404 \
    KAFKA_MINIKAFKA_HTTP_HOST=0.0.0.0 \
    MALLOC_MMAP_THRESHOLD_=67108864 \
    PYTHONUNBUFFERED=1
VOLUME /var/lib/minikafka
EXPOSE 9092 9093 9404
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=2s --timeout=2s --start-period=10s --retries=5 CMD ["python", "-IS", "/etc/minikafka/healthcheck.py"]
CMD ["minikafka", "start", "--container"]
