"""Drives `piton mcp` with the official SDK: a failed run is found, looked into, and resumed."""

import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main(program, data, graph):
    server = StdioServerParameters(command=program, args=["--data", data, "mcp"])
    async with stdio_client(server) as (read, write), ClientSession(read, write) as client:
        await client.initialize()
        names = sorted(tool.name for tool in (await client.list_tools()).tools)
        print(json.dumps(names))

        async def call(tool, **arguments):
            result = await client.call_tool(tool, arguments)
            is_error = getattr(result, "isError", None) or getattr(result, "is_error", None)
            content = json.loads(result.content[0].text)
            assert not is_error, content
            return content

        async def listed(status):
            for _ in range(1500):
                found = await call("list_resumable_sessions", status=status)
                if found["total"]:
                    return found["sessions"][0]
                await asyncio.sleep(0.02)
            raise SystemExit(f"no session is {status}")

        await call("run_graph", graph=graph)
        failed = await listed("failed")
        print(failed["failed_at_node"])
        session = failed["session_id"]
        checkpoints = await call("list_session_checkpoints", session_id=session)
        print(len(checkpoints["checkpoints"]))
        shown = await call(
            "inspect_checkpoint",
            session_id=session,
            checkpoint_id=failed["last_checkpoint"],
            include_memory=True,
        )
        print(shown["memory"]["h"])
        resumed = await call(
            "resume_session",
            session_id=session,
            memory_modifications=json.dumps({"api_key": "sk-0123456789"}),
        )
        print(resumed["status"])
        await listed("completed")
        print("completed")


asyncio.run(main(*sys.argv[1:]))
