"""Topic and group names for shell completion. The cluster is asked with a short timeout; without an answer there are none."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.common import BOOTSTRAP_VARIABLES
from minikafka.net.tasks import within

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from minikafka.client.admin import Admin

TIMEOUT_S = 1.0


def complete_topics(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Topics whose names start with `incomplete`."""
    return _items(ctx, incomplete, lambda admin: admin.list_topics())


def complete_groups(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Groups whose ids start with `incomplete`."""

    async def names(admin: Admin) -> list[str]:
        return [name for name, _, _ in await admin.list_groups()]

    return _items(ctx, incomplete, names)


def _items(ctx: click.Context, incomplete: str, ask: Any) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from minikafka.client.admin import Admin

    bootstrap = ctx.params.get("bootstrap") or next((os.environ[v] for v in BOOTSTRAP_VARIABLES if v in os.environ), "localhost:9092")

    async def go() -> list[str]:
        async with Admin(bootstrap, timeout_ms=int(TIMEOUT_S * 1000)) as admin:
            found: list[str] = await ask(admin)
            return found

    try:
        names = asyncio.run(within(TIMEOUT_S, go()))
    except Exception:
        return []  # never show an error while the user types
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
