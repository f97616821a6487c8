"""`python -m minikafka` is the `minikafka` command."""

import sys

try:
    from minikafka.cli import first_sign, missing_streams

    missing_streams.open_missing()
    first_sign.begin(sys.argv[1:])
    from minikafka.cli.main import main
except KeyboardInterrupt:
    raise SystemExit(130) from None

if __name__ == "__main__":
    main()
