"""Which request is what."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from local_onelake.calls import Call
from local_onelake.fabric import data_access, items, jobs, livy, shortcuts, sql_endpoints, workspaces
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
