"""Exit status 0 when the node of this container is in service. A bare socket, because it runs every few seconds."""

import os
import socket
import sys

try:
    with socket.create_connection(("127.0.0.1", int(os.environ.get("KAFKA_MINIKAFKA_HTTP_PORT", "9404"))), 1) as connection:
        connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while chunk := connection.recv(4096):
            answer += chunk
except OSError as error:
    sys.exit(f"no answer: {error}")
head, _, body = answer.decode().partition("\r\n\r\n")
print(body.strip())
sys.exit(0 if head.startswith("HTTP/1.1 200 ") else 1)
