#!/bin/sh
# As in Apache Kafka's image: a mounted server.properties, over it KAFKA_* variables; with neither, one node that is everything.
config=/mnt/shared/config/server.properties
if [ -f "$config" ]; then
    set -- --config "$config" "$@"
elif [ -z "${KAFKA_PROCESS_ROLES-}${KAFKA_CFG_PROCESS_ROLES-}" ]; then
    set -- --config /etc/minikafka/single-node.properties "$@"
elif [ -z "${KAFKA_LOG_DIRS-}${KAFKA_LOG_DIR-}${KAFKA_CFG_LOG_DIRS-}" ]; then
    set -- --override log.dirs=/var/lib/minikafka/data "$@"
fi
exec minikafka start --format "$@"
