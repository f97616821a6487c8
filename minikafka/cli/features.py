"""`minikafka features`: kafka-features.sh."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from minikafka.broker.quorum.format import RELEASES, feature_levels, release_name
from minikafka.cli.common import (
    EXIT_REFUSED,
    CommandGroup,
    bootstrap_controller_option,
    bootstrap_option,
    command_config_option,
    emit,
    output_option,
    traceback_option,
)
from minikafka.cli.session import with_admin

if TYPE_CHECKING:
    from minikafka.client.maintenance import Maintenance

METADATA_VERSION = "metadata.version"
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
#: In the order of Kafka's tool (Feature.java).
ORDER = ("transaction.version", "group.version", "eligible.leader.replicas.version", "share.version", "streams.version")
#: The metadata.version levels that features require (Feature.java of Apache Kafka 4.3).
DEPENDENCIES = {("eligible.leader.replicas.version", 1): ((METADATA_VERSION, 23),)}


@click.group("features", cls=CommandGroup)
@bootstrap_controller_option
@bootstrap_option
@command_config_option
@click.pass_context
def features(context: click.Context, bootstrap: str) -> None:
    """Show and change the features of the cluster and their levels."""
    context.obj = bootstrap


def _shown(name: str, level: int | None) -> str:
    if level is None:
        return "0"
    return release_name(level) if name == METADATA_VERSION and level > 0 else str(level)


@features.command("describe")
@click.option("--node-id", type=int, help="Show what this broker supports.")
@output_option
@traceback_option
@click.pass_obj
def describe(bootstrap: str, node_id: int | None, output: str, traceback: bool) -> None:
    """Show supported and finalized levels."""

    async def work(admin: Maintenance) -> None:
        await admin.cluster.refresh([])
        found = await admin.features(node_id)
        if output != "table":
            rows = [{"feature": f.name, "min": f.min_version, "max": f.max_version, "level": f.level or 0, "epoch": f.epoch} for f in found]
            emit(rows, output, ["feature", "min", "max", "level", "epoch"])
            return
        for f in found:
            cells = (
                ("Feature", f.name, 42), ("SupportedMinVersion", _shown(f.name, f.min_version), 17),
                ("SupportedMaxVersion", _shown(f.name, f.max_version), 17), ("FinalizedVersionLevel", _shown(f.name, f.level), 17),
            )  # fmt: skip
            click.echo("".join(f"{name}: {value:<{width}}" for name, value, width in cells) + f"Epoch: {f.epoch}")

    with_admin(bootstrap, work, traceback=traceback)


def _levels(pairs: tuple[str, ...], release: str | None) -> dict[str, int]:
    levels: dict[str, int] = {}
    if release:
        levels = feature_levels({}, release)
    for text in pairs:
        for part in text.split(","):
            name, separator, level = part.partition("=")
            if not separator or not level.strip().lstrip("-").isdigit():
                raise click.BadParameter(f"{part!r} is not feature=level", param_hint="--feature")
            levels[name.strip()] = int(level)
    return levels


def _update(bootstrap: str, levels: dict[str, int], verb: str, kind: int, *, dry_run: bool, traceback: bool) -> None:
    if not levels:
        raise click.UsageError("specify a feature: --feature NAME=LEVEL")
    past = {"upgrade": "upgraded", "downgrade": "downgraded", "disable": "disabled"}[verb]

    async def work(admin: Maintenance) -> int:
        outcomes = await admin.update_features(levels, upgrade_type=kind, dry_run=dry_run)
        bad = 0
        for name in sorted(outcomes):
            outcome, to = outcomes[name], "" if verb == "disable" else f" to {levels[name]}"
            if outcome.is_good:
                click.echo(f"{name} can be {past}{to}." if dry_run else f"{name} was {past}{to}.")
            else:
                bad += 1
                can = "Can not" if dry_run else "Could not"
                click.echo(f"{can} {verb} {name}{to}. {outcome.message}", err=True)
        if bad:
            click.echo(f"{bad} out of {len(outcomes)} operation(s) failed.", err=True)
        return EXIT_REFUSED if bad else 0

    sys.exit(with_admin(bootstrap, work, traceback=traceback))


_feature_option = click.option("--feature", "-f", "pairs", multiple=True, metavar="NAME=LEVEL", help="Feature and level; may be repeated.")
_metadata_option = click.option("--metadata", metavar="RELEASE", help="Older form of --feature metadata.version=LEVEL.")
_dry_run_option = click.option("--dry-run", is_flag=True, help="Only check whether the change is possible.")


@features.command("upgrade")
@_feature_option
@_metadata_option
@click.option("--release-version", help="Set the levels of this release.")
@_dry_run_option
@traceback_option
@click.pass_obj
def upgrade(
    bootstrap: str, pairs: tuple[str, ...], metadata: str | None, release_version: str | None, dry_run: bool, traceback: bool
) -> None:
    """Raise feature levels."""
    levels = _checked(_with_metadata(pairs, metadata), release_version)
    if release_version is not None and not pairs:
        # Features that the release does not have keep their level.
        levels = {name: level for name, level in levels.items() if level > 0}
    _update(bootstrap, levels, "upgrade", UPGRADE, dry_run=dry_run, traceback=traceback)


@features.command("downgrade")
@_feature_option
@_metadata_option
@click.option("--release-version", help="Set the levels of this release.")
@click.option("--unsafe", is_flag=True, help="Proceed even if metadata is lost.")
@_dry_run_option
@traceback_option
@click.pass_obj
def downgrade(
    bootstrap: str,
    pairs: tuple[str, ...],
    metadata: str | None,
    release_version: str | None,
    unsafe: bool,
    dry_run: bool,
    traceback: bool,
) -> None:
    """Lower feature levels."""
    kind = UNSAFE_DOWNGRADE if unsafe else SAFE_DOWNGRADE
    _update(bootstrap, _checked(_with_metadata(pairs, metadata), release_version), "downgrade", kind, dry_run=dry_run, traceback=traceback)


@features.command("disable")
@click.option("--feature", "names", multiple=True, required=True, help="Feature; may be repeated.")
@click.option("--unsafe", is_flag=True, help="Proceed even if metadata is lost.")
@_dry_run_option
@traceback_option
@click.pass_obj
def disable(bootstrap: str, names: tuple[str, ...], unsafe: bool, dry_run: bool, traceback: bool) -> None:
    """Disable features, which sets their levels to 0."""
    kind = UNSAFE_DOWNGRADE if unsafe else SAFE_DOWNGRADE
    _update(bootstrap, dict.fromkeys(names, 0), "disable", kind, dry_run=dry_run, traceback=traceback)


def _with_metadata(pairs: tuple[str, ...], release: str | None) -> tuple[str, ...]:
    return pairs if release is None else (*pairs, f"{METADATA_VERSION}={_checked((), release)[METADATA_VERSION]}")


def _checked(pairs: tuple[str, ...], release: str | None) -> dict[str, int]:
    try:
        return _levels(pairs, release)
    except Exception as error:
        if isinstance(error, click.ClickException):
            raise
        raise click.BadParameter(str(error), param_hint="--release-version") from error


@features.command("version-mapping")
@click.option("--release-version", "-r", default=None, help="Release, such as 4.3 [default: the newest].")
@output_option
def version_mapping(release_version: str | None, output: str) -> None:
    """Show the level of every feature in a release."""
    newest = list(RELEASES)[-1]
    release = release_version or newest
    levels = _checked((), release)
    rows = [{"feature": METADATA_VERSION, "level": levels[METADATA_VERSION]}]
    rows += [{"feature": "kraft.version", "level": 1}]
    order = [name for name in ORDER if name in levels] + [name for name in levels if name not in (*ORDER, METADATA_VERSION)]
    rows += [{"feature": name, "level": levels[name]} for name in order]
    if output != "table":
        emit(rows, output, ["feature", "level"])
        return
    click.echo(f"{METADATA_VERSION}={levels[METADATA_VERSION]} ({release})")
    for row in rows[1:]:
        click.echo(f"{row['feature']}={row['level']}")


@features.command("feature-dependencies")
@_feature_option
@output_option
def feature_dependencies(pairs: tuple[str, ...], output: str) -> None:
    """Show which levels of other features a feature level requires."""
    levels: dict[str, Any] = _levels(pairs, None)
    if not levels:
        raise click.UsageError("specify a feature: --feature NAME=LEVEL")
    if output != "table":
        rows = [{"feature": name, "level": level, "needs": dict(DEPENDENCIES.get((name, level), ()))} for name, level in levels.items()]
        emit(rows, output, ["feature", "level"])
        return
    for name, level in levels.items():
        shown = f" ({release_name(level)})" if name == METADATA_VERSION else ""
        needed = DEPENDENCIES.get((name, level), ())
        if not needed:
            click.echo(f"{name}={level}{shown} has no dependencies.")
            continue
        click.echo(f"{name}={level}{shown} requires:")
        for other, least in needed:
            click.echo(f"    {other}={least} ({release_name(least)})")
