"""Which request is what."""

from __future__ import annotations

import attrs
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from local_onelake.calls import Call
from local_onelake.fabric import data_access, items, jobs, livy, shortcuts, spark_jobs, sql_endpoints, workspaces
from local_onelake.fabric.calls import item_of
from local_onelake.names import Item
from local_onelake.refusals import RefusalError


async def answer(call: Call) -> Response:
    """Do what is asked.

    :raises RefusalError: it is wrong, may not be done, or is not served here.
    :raises TreeError: it cannot be done as things are.
    """
    match call.method, call.path.rstrip("/").split("/"):
        case "GET", ["v1", "workspaces"]:
            return workspaces.list_workspaces(call)
        case "GET", ["v1", "workspaces", workspace]:
            return workspaces.get_workspace(call, workspace)
        case method, ["v1", "workspaces", workspace, "roleAssignments", *rest] if len(rest) <= 1:
            match method, rest:
                case "GET", []:
                    return workspaces.list_roles(call, workspace)
                case "POST", []:
                    return await workspaces.add_role(call, workspace)
                case "DELETE", [assignment]:
                    return workspaces.delete_role(call, workspace, assignment)
        case method, ["v1", "workspaces", workspace, "sparkJobDefinitions", *rest]:
            # The same requests as below `items`, but for where an item is made.
            if (method, rest) == ("POST", []):
                return await items.create_item(call, workspace, spark_jobs.TYPE)
            if rest:
                path = "/".join(["v1", "workspaces", workspace, "items", *rest])
                return await answer(attrs.evolve(call, path=path))
        case "POST", ["v1", "workspaces", workspace, "items", item, "updateDefinition"]:
            return await items.update_definition(call, workspace, item)
        case method, ["v1", "workspaces", workspace, ("items" | "lakehouses") as kind, *rest] if len(rest) <= 1:
            match method, kind, rest:
                case "GET", "items", []:
                    return items.list_items(call, workspace)
                case "GET", "lakehouses", []:
                    return items.list_lakehouses(call, workspace)
                case "POST", _, []:
                    return await items.create_item(call, workspace, "Lakehouse" if kind == "lakehouses" else None)
                case "GET", "items", [item]:
                    return items.get_item(call, workspace, item)
                case "GET", "lakehouses", [item]:
                    return items.get_lakehouse(call, workspace, item)
                case "DELETE", "items", [item]:
                    return await run_in_threadpool(items.delete_item, call, workspace, item)
        case "GET", ["v1", "workspaces", workspace, "lakehouses", item, "tables"]:
            return await run_in_threadpool(items.list_tables, call, workspace, item)
        case method, ["v1", "workspaces", workspace, "items" | "lakehouses", item, "jobs", *rest]:
            found = item_of(call, workspace, item)[1]
            if found.type == spark_jobs.TYPE:
                return await _spark_job(call, method, workspace, found, rest)
            match method, rest:
                case "POST", ["instances"] | [jobs.MAINTENANCE, "instances"]:
                    return await jobs.begin(call, workspace, item)
                case "GET", ["instances"]:
                    return await run_in_threadpool(jobs.list_jobs, call, workspace, item)
                case "GET", ["instances", job] | [jobs.MAINTENANCE, "instances", job]:
                    return await run_in_threadpool(jobs.get_job, call, workspace, item, job)
                case "POST", ["instances", job, "cancel"]:
                    return await run_in_threadpool(jobs.cancel_job, call, workspace, item, job)
        case _, ["v1", "workspaces", workspace, "lakehouses", item, name, "versions", version, *rest] if (
            name.lower() == "livyapi"
        ):
            return await livy.answer(call, workspace, item, version, rest)
        case "POST", ["v1", "workspaces", workspace, "sqlEndpoints", endpoint, "refreshMetadata"]:
            return await sql_endpoints.refresh(call, workspace, endpoint)
        case "GET", ["v1", "operations", operation]:
            return await run_in_threadpool(sql_endpoints.get_operation, call, operation)
        case "GET", ["v1", "operations", operation, "result"]:
            return await run_in_threadpool(sql_endpoints.get_result, call, operation)
        case "GET", ["v1", "admin", "workspaces", workspace, "items", item, "users"]:
            return workspaces.list_item_access(call, workspace, item)
        case method, ["v1", "workspaces", workspace, "items", item, "dataAccessRoles", *rest] if len(rest) <= 1:
            match method, rest:
                case "GET", []:
                    return data_access.list_roles(call, workspace, item)
                case "PUT", []:
                    return await data_access.put_roles(call, workspace, item)
                case "POST", []:
                    return await data_access.put_role(call, workspace, item)
                case "GET", [name]:
                    return data_access.get_role(call, workspace, item, name)
                case "DELETE", [name]:
                    return data_access.delete_role(call, workspace, item, name)
        case method, ["v1", "workspaces", workspace, "items", item, "shortcuts", *inside]:
            match method, "/".join(inside):
                case "GET", "":
                    return shortcuts.list_shortcuts(call, workspace, item)
                case "POST", "":
                    return await shortcuts.create_shortcut(call, workspace, item)
                case "GET", path:
                    return shortcuts.get_shortcut(call, workspace, item, path)
                case "DELETE", path if path:
                    return await run_in_threadpool(shortcuts.delete_shortcut, call, workspace, item, path)
    raise RefusalError(404, "UnsupportedOperation", f"{call.method} /{call.path} is not served here.")


async def _spark_job(call: Call, method: str, workspace: str, item: Item, rest: list[str]) -> Response:
    kind = call.query.get("jobtype", spark_jobs.JOB_TYPE)
    match method, [each for each in rest if each != spark_jobs.JOB_TYPE]:
        case "POST", ["instances"] if kind == spark_jobs.JOB_TYPE:
            return await spark_jobs.begin(call, workspace, item.guid)
        case "GET", ["instances"]:
            return spark_jobs.list_runs(call, item)
        case "GET", ["instances", run]:
            return spark_jobs.get_run(call, item, run)
        case "POST", ["instances", run, "cancel"]:
            item_of(call, workspace, item.guid, "Contributor")
            return await run_in_threadpool(spark_jobs.cancel_run, call, item, run)
    raise RefusalError(400, "InvalidJobType", f"Of a {spark_jobs.TYPE}, only {spark_jobs.JOB_TYPE} is served here.")
