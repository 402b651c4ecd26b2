"""A small FastAPI application: a JSON endpoint that validates what it returns, and a `def` endpoint in a thread."""

from __future__ import annotations

from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)


class Item(BaseModel):
    """What both endpoints answer with."""

    id: int
    name: str
    price: float
    tags: list[str]


@app.get("/items/{item_id}")
async def item(item_id: int, limit: int = 10) -> Item:
    """On the loop."""
    return Item(id=item_id, name="a thing", price=9.5 * limit, tags=["one", "two"])


@app.get("/def/{item_id}")
def item_in_thread(item_id: int) -> Item:
    """In one of anyio's worker threads."""
    return Item(id=item_id, name="a thing", price=9.5, tags=["one", "two"])
