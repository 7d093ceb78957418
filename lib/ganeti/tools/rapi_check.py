"""``rapi-passwd check``: finds mistakes in the files of users, and says who may do what.

The files are read as the REST daemon reads them. Whether a right for some instances holds for an
instance depends on its tags and its node group, which the master daemon knows; without it, the
selectors are shown.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from ganeti import errors
from ganeti.constants import query as query_const
from ganeti.constants import ssconf
from ganeti.http.messages import Refused
from ganeti.luxi.client import Client
from ganeti.platform import paths
from ganeti.rapi import roles, scope, selectors
from ganeti.rapi import users as rapi_users
from ganeti.rapi.application import Router
from ganeti.rapi.declare import Operation, Resource
from ganeti.rapi.oidc import settings
from ganeti.rapi.resources import RESOURCES
from ganeti.rapi.rights import Area
from ganeti.rapi.rights import parse as parse_rights
from ganeti.rapi.roles import Rules
from ganeti.rapi.selectors import Facts
from ganeti.rapi.users import Account
from ganeti.utils import fs, suggest

_YES, _NO = 0, 1
_OIDC: Final = os.path.basename(paths.Paths("").rapi_oidc_file)
_INSTANCE: Final = "instance_name"
# What a right for some instances has before its selector.
_SIGN: Final = "@"


def run(users_path: str, roles_path: str, user: str | None, operation: str | None) -> int:
    """Check both files; describe a user, or decide about an operation.

    :param operation: method and path, such as ``PUT /2/instances/web1/startup``.
    :returns: the exit code: 1 for mistakes in the files, and for an operation which is refused.
    :raises errors.ParameterError: there is no such user or operation.
    """
    handlers = {resource.handler for resource in RESOURCES}
    rules, wrong = roles.parse(_read(roles_path), handlers)
    found, problems = rapi_users.parse(_read(users_path), handlers, rules.roles)
    lines = [f"{roles_path}: {one}" for one in wrong] + [f"{users_path}: {one}" for one in problems]
    lines += [f"{roles_path}: {one}" for one in _missing_pools(rules, found.values())]
    groups, wrong = _check_oidc(os.path.join(os.path.dirname(users_path), _OIDC), rules, handlers)
    lines += wrong
    for line in lines:
        print(line, file=sys.stderr)
    if user is None:
        _summary(found.values())
        for group, words in groups.items():
            print(f"group {group} at the provider: {words}")
        return _NO if lines else _YES
    account = found.get(user)
    if account is None:
        hint = _dot(suggest.did_you_mean(user, found))
        raise errors.ParameterError(f"there is no user '{user}'{hint}")
    if operation is None:
        _describe(account)
        return _NO if lines else _YES
    return _decide(account, rules, operation)


def _check_oidc(
    path: str, rules: Rules, handlers: Collection[str]
) -> tuple[Mapping[str, str], list[str]]:
    """Return the rights of groups at the provider of logins, and the mistakes of its settings."""
    text = _read(path)
    if not text:
        return {}, []
    try:
        found = settings.parse_settings(
            text, lambda words: parse_rights(words, rules.roles, handlers)[1]
        )
    except errors.ParseError as err:
        return {}, [f"{path}: {err}"]
    if importlib.util.find_spec("authlib") is None:
        return found.rights, ["logins at a provider need the package python3-authlib on this node"]
    return found.rights, []


def _dot(hint: str) -> str:
    return f".{hint}" if hint else ""


def _read(path: str) -> str:
    try:
        return fs.read_file(path)
    except FileNotFoundError:
        return ""


def _missing_pools(rules: Rules, accounts: Iterable[Account]) -> list[str]:
    """Return a sentence for each pool which a right names and nobody defines."""
    found = {}
    for account in accounts:
        for grant in account.rights.grants:
            for one in grant.where:
                if one.kind == selectors.POOL and one.value and one.value not in rules.pools:
                    found[one.value] = account.name
    return [
        f"there is no pool '{pool}', which a right of user '{name}' names"
        for pool, name in found.items()
    ]


def _summary(accounts: Iterable[Account]) -> None:
    limited = []
    for account in accounts:
        print(f"{account.name}: {account.rights}")
        if account.rights.limited:
            limited.append(account.name)
    if limited and not _password_demanded():
        print(
            f"{', '.join(limited)}: everybody reads the lists of all instances without a password;"
            " 'gnt-cluster modify --rapi-require-authentication=yes' ends that",
            file=sys.stderr,
        )


def _password_demanded() -> bool:
    try:
        path = paths.current().ssconf_file(ssconf.RAPI_REQUIRE_AUTHENTICATION)
        return fs.read_file(path).strip() == "True"
    except OSError:
        return False


def _describe(account: Account) -> None:
    rights = account.rights
    print(f"{account.name}: {rights}")
    for resource in RESOURCES:
        for method, operation in resource.operations.items():
            area = rights.area(account.name, operation.access, resource.handler, method)
            reach = scope.reach(area, resource.handler, method)
            if reach != scope.NOTHING:
                where = "" if reach == scope.EVERYTHING else f"  for {area}"
                print(f"{method} {resource.path}{where}")


def _decide(account: Account, rules: Rules, wanted: str) -> int:
    word, _blank, path = wanted.strip().partition(" ")
    method = word.upper()
    resource, operation, uri = _find(method, path.strip().partition("?")[0])
    rights = account.rights
    area = rights.area(account.name, operation.access, resource.handler, method)
    reach = scope.reach(area, resource.handler, method)
    deciding = rights.deciding(operation.access, resource.handler, method)
    if reach == scope.EVERYTHING and area is None:
        deciding = [one for one in deciding if _SIGN not in one]
    by = f" ({', '.join(deciding)})" if deciding else ""
    if reach == scope.NOTHING:
        why = "no right allows it" if not deciding else f"not for some instances only{by}"
        print(f"no: {why}")
        return _NO
    if area is None or reach == scope.EVERYTHING:
        print(f"yes{by}")
        return _YES
    if _INSTANCE not in uri:
        print(f"yes, for {area}{by}")
        return _YES
    return _decide_instance(account, rules, area, uri[_INSTANCE], by)


def _decide_instance(account: Account, rules: Rules, area: Area, name: str, by: str) -> int:
    facts = _facts(name)
    if facts is None:
        print(f"it depends: for {area}{by}; the master daemon does not say what {name} is")
        return _NO
    if area.has(facts, rules.pools):
        print(f"yes, for {area}{by}")
        return _YES
    seen = account.rights.seen(account.name)
    if seen is None or seen.has(facts, rules.pools):
        print(f"no: {facts.name} is not among {area}{by}")
    else:
        print(f"no, and the user does not see {facts.name} (status 404); his rights are for {area}")
    return _NO


def _find(method: str, path: str) -> tuple[Resource, Operation, dict[str, str]]:
    try:
        resource, uri = Router(RESOURCES).find(path)
    except Refused as err:
        raise errors.ParameterError(str(err)) from err
    operation = resource.operations.get(method)
    if operation is None:
        known = ", ".join(sorted(resource.operations))
        raise errors.ParameterError(f"{path} has no method '{method}'; it has {known}")
    return resource, operation, uri


def _facts(name: str) -> Facts | None:
    """Return what the master knows of an instance; None if it is not known."""
    try:
        wanted = ["|", ["=", "name", name], ["=", "uuid", name]]
        wanted = ["|", ["=", "name", name], ["=", "uuid", name]]
        answer = Client().query(query_const.INSTANCE, selectors.FIELDS, wanted)
    except errors.GenericError:
        return None
    rows = answer["data"]
    return Facts.of_row(rows[0]) if len(rows) == 1 else None
