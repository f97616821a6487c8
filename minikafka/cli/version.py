"""The callback of `--version`."""

from __future__ import annotations

import click


def show_version(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    """Print the version and exit if the flag is set."""
    if not value:
        return
    from minikafka import __version__

    click.echo(f"minikafka, version {__version__}")
    context.exit()
