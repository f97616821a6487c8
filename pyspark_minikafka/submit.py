"""The `minikafka` command as the file that spark-submit wants: `spark-submit --master ... pyspark_minikafka/submit.py audit ...`."""

from minikafka.cli.main import main

if __name__ == "__main__":
    main()
