"""`python -m minikafka` is the `minikafka` command."""

from minikafka.cli.main import main

if __name__ == "__main__":
    main()
