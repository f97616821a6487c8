"""`minikafka acls`: who may do what, with the flags and the output of kafka-acls.sh."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.common import EXIT_REFUSED, bootstrap_controller_option, emit, run
from minikafka.cli.session import operator_command
from minikafka.core.authorizer.acl import (
    CLUSTER_NAME,
    OPERATIONS,
    WILDCARD,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

if TYPE_CHECKING:
    from minikafka.client.acls import AclAdmin

#: (type, name, pattern type) of a resource on the command line.
Pattern = tuple[ResourceType, str, PatternType]
#: (principal, host, operation, permission).
Entry = tuple[str, str, Operation, Permission]
_CLUSTER: Pattern = (ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)
_PRODUCER = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
_CONSUMER = {ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE), ResourceType.GROUP: (Operation.READ,)}
_NAMED = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "user_principal": ResourceType.USER,
}
_OPERATION_NAMES = ", ".join(operation.label for operation in Operation if operation > Operation.ANY)


@operator_command("acls")
@bootstrap_controller_option
@click.option("--add", "action", flag_value="add", help="Add ACLs.")
@click.option("--remove", "action", flag_value="remove", help="Remove the ACLs that match, or all ACLs of the resource.")
@click.option("--list", "action", flag_value="list", help="List ACLs; without a resource, all of them.")
@click.option("--topic", multiple=True, help="A topic; '*' stands for all. May be repeated, like the others.")
@click.option("--group", multiple=True, help="A consumer group; '*' stands for all.")
@click.option("--cluster", is_flag=True, help="The cluster.")
@click.option("--transactional-id", multiple=True, help="A transactional id; '*' stands for all.")
@click.option("--delegation-token", multiple=True, help="A delegation token's id.")
@click.option("--user-principal", multiple=True, help="The owner of delegation tokens.")
@click.option(
    "--resource-pattern-type", type=click.Choice(["literal", "prefixed", "any", "match"], case_sensitive=False), default="literal",
    show_default=True, help="Whether names are literal or prefixes. --list and --remove also take any (both types) and match "
    "(every ACL that applies to the name).",
)  # fmt: skip
@click.option("--operation", multiple=True, help=f"Operation (default: All): {_OPERATION_NAMES}.")
@click.option(
    "--allow-principal", multiple=True, metavar="TYPE:NAME", help="Principal to allow, such as User:alice. User:* matches everyone."
)
@click.option("--deny-principal", multiple=True, metavar="TYPE:NAME", help="Principal to deny.")
@click.option("--allow-host", multiple=True, help="Host from which access is allowed (default: *).")
@click.option("--deny-host", multiple=True, help="Host from which access is denied (default: *).")
@click.option("--principal", multiple=True, metavar="TYPE:NAME", help="With --list: show only ACLs of this principal.")
@click.option("--producer", is_flag=True, help="A producer's needs: Write, Describe and Create on topics, Write on transactional ids.")
@click.option("--consumer", is_flag=True, help="A consumer's needs: Read and Describe on topics, Read on groups.")
@click.option("--idempotent", is_flag=True, help="With --producer: also IdempotentWrite on the cluster.")
@click.option("--force", "--yes", "force", is_flag=True, help="Do not ask before removing.")
def acls(bootstrap: str, output: str, traceback: bool, action: str | None, **options: Any) -> None:
    """Add, remove and list ACLs."""
    if action is None:
        raise click.UsageError("specify an action: --list, --add or --remove")
    pattern_type = PatternType.parse(options["resource_pattern_type"])
    patterns = _patterns(options, pattern_type)
    entries_by_pattern = {} if action == "list" else _entries(options, patterns)
    if action == "list" and options["producer"] | options["consumer"]:
        raise click.UsageError("--producer and --consumer need --add or --remove")
    if action == "add":
        if pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
            raise click.UsageError(f"A '--resource-pattern-type' value of '{pattern_type.name}' is not valid when adding acls.")
        if not all(entries_by_pattern.values()):
            raise click.UsageError("You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.")
    if action == "remove" and not options["force"]:
        _confirm(entries_by_pattern)

    async def go() -> None:
        from minikafka.client.acls import AclAdmin

        async with AclAdmin(bootstrap, client_id="minikafka-cli") as admin:
            if action == "add":
                await _add(admin, entries_by_pattern, output)
            elif action == "remove":
                await _remove(admin, entries_by_pattern, output)
            else:
                await _list(admin, patterns, options["principal"], output)

    run(go, traceback=traceback)


# -- options -------------------------------------------------------------------------------------------------------


def _patterns(options: Mapping[str, Any], pattern_type: PatternType) -> list[Pattern]:
    found = [(kind, name.strip(), pattern_type) for option, kind in _NAMED.items() for name in options[option]]
    if pattern_type is PatternType.LITERAL and (options["cluster"] or options["idempotent"]):
        found.append(_CLUSTER)
    return found


def _entries(options: Mapping[str, Any], patterns: Sequence[Pattern]) -> dict[Pattern, list[Entry]]:
    """The entries for each resource. An empty list (--remove without principals) stands for all entries of the resource."""
    if not patterns:
        raise click.UsageError("You must provide at least one resource: --topic <topic> or --cluster or --group <group>, ...")
    if options["idempotent"] and not options["producer"]:
        raise click.UsageError("--idempotent needs --producer")
    if options["producer"] and not options["topic"]:
        raise click.UsageError("With --producer you must specify a --topic")
    if options["consumer"] and not (options["topic"] and options["group"]):
        raise click.UsageError("With --consumer you must specify a --topic and a --group")
    if (options["producer"] or options["consumer"]) and options["operation"]:
        raise click.UsageError("--producer and --consumer imply the operations: do not give --operation")
    found: dict[Pattern, dict[Entry, None]] = {}
    for pattern in patterns:
        operations: list[Operation] = []
        if not options["producer"] and not options["consumer"]:
            operations = [_operation(text, pattern[0]) for text in options["operation"] or ["All"]]
        if options["producer"]:
            operations += (Operation.IDEMPOTENT_WRITE,) if pattern == _CLUSTER and options["idempotent"] else _PRODUCER.get(pattern[0], ())
        if options["consumer"]:
            operations += _CONSUMER.get(pattern[0], ())
        if operations:
            found[pattern] = dict.fromkeys(_described(options, operations))
    return {pattern: list(entries) for pattern, entries in found.items()}


def _operation(text: str, kind: ResourceType) -> Operation:
    try:
        operation = Operation.parse(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} must be one of {_OPERATION_NAMES}", param_hint="--operation") from error
    fitting = (Operation.ALL, *OPERATIONS[kind])
    if operation not in fitting:
        names = ", ".join(entry.label for entry in fitting)
        raise click.UsageError(f"ResourceType {kind.name} only supports operations {names}")
    return operation


def _described(options: Mapping[str, Any], operations: Iterable[Operation]) -> Iterable[Entry]:
    for permission, option, where in (
        (Permission.ALLOW, "allow_principal", "allow_host"),
        (Permission.DENY, "deny_principal", "deny_host"),
    ):
        for principal in options[option]:
            if not all(principal.strip().partition(":")):
                hint = f"--{option.replace('_', '-')}"
                raise click.BadParameter(f"{principal!r} is not TYPE:NAME, such as User:alice", param_hint=hint)
            for operation in dict.fromkeys(operations):
                for host in options[where] or [WILDCARD]:
                    yield principal.strip(), host.strip(), operation, permission


def _confirm(entries_by_pattern: Mapping[Pattern, Sequence[Entry]]) -> None:
    for pattern, entries in entries_by_pattern.items():
        if entries:
            question = f"Are you sure you want to remove ACLs: \n {_lines(entries)} \n from resource filter `{_shown(pattern)}`? (y/n)"
        else:
            question = f"Are you sure you want to delete all ACLs for resource filter `{_shown(pattern)}`? (y/n)"
        click.echo(question)
        if sys.stdin.readline().strip().lower() != "y":
            sys.exit(EXIT_REFUSED)


# -- actions -------------------------------------------------------------------------------------------------------


async def _add(admin: AclAdmin, entries_by_pattern: Mapping[Pattern, Sequence[Entry]], output: str) -> None:
    added = [Acl._make((*pattern, *entry)) for pattern, entries in entries_by_pattern.items() for entry in entries]
    await admin.create_acls(added)
    if output != "table":
        _emit(added, output)
        return
    for pattern, entries in entries_by_pattern.items():
        click.echo(f"Adding ACLs for resource `{_shown(pattern)}`: \n {_lines(entries)} \n")


async def _remove(admin: AclAdmin, entries_by_pattern: Mapping[Pattern, Sequence[Entry]], output: str) -> None:
    filters = [AclFilter._make((*pattern, *entry)) for pattern, entries in entries_by_pattern.items() for entry in entries]
    filters += [AclFilter(*pattern) for pattern, entries in entries_by_pattern.items() if not entries]
    removed = await admin.delete_acls(filters)
    if output != "table":
        _emit(removed, output)


async def _list(admin: AclAdmin, patterns: Sequence[Pattern], principals: Sequence[str], output: str) -> None:
    found: dict[Acl, None] = {}
    filters: list[AclFilter | None] = [AclFilter(*pattern) for pattern in patterns]
    for acl_filter in filters or [None]:
        found |= dict.fromkeys(await admin.describe_acls(acl_filter))
    acls_ = list(found)
    if output != "table":
        _emit([acl for acl in acls_ if not principals or acl.principal in principals], output)
        return
    if not principals:
        _show(acls_)
    for principal in principals:
        click.echo(f"ACLs for principal `{principal}`")
        _show([acl for acl in acls_ if acl.principal == principal])


def _show(found: Iterable[Acl]) -> None:
    by_pattern: dict[Pattern, list[Entry]] = {}
    for acl in found:
        by_pattern.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), []).append(tuple(acl)[3:])  # type: ignore[arg-type]
    for pattern, entries in sorted(by_pattern.items()):
        click.echo(f"Current ACLs for resource `{_shown(pattern)}`: \n {_lines(entries)} \n")


def _shown(pattern: Pattern) -> str:
    kind, name, pattern_type = pattern
    return f"ResourcePattern(resourceType={kind.name}, name={name}, patternType={pattern_type.name})"


def _lines(entries: Iterable[Entry]) -> str:
    return "\n".join(
        f"\t(principal={principal}, host={host}, operation={operation.name}, permissionType={permission.name})"
        for principal, host, operation, permission in sorted(entries)
    )


def _emit(found: Iterable[Acl], output: str) -> None:
    rows = [
        {
            "resource_type": acl.resource_type.name,
            "name": acl.resource_name,
            "pattern_type": acl.pattern_type.name,
            "principal": acl.principal,
            "host": acl.host,
            "operation": acl.operation.name,
            "permission": acl.permission.name,
        }
        for acl in found
    ]
    emit(rows, output, list(rows[0]) if rows else ["resource_type", "name", "pattern_type", "principal", "host", "operation", "permission"])
