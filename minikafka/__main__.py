"""`python -m minikafka` is the `minikafka` command."""

try:
    from minikafka.cli.main import main
except KeyboardInterrupt:
    raise SystemExit(130) from None

if __name__ == "__main__":
    main()
