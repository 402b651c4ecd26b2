"""The scope: its contents, its types, and that nothing in it reaches another request (promises 17, 22)."""

from __future__ import annotations

import pytest

from harness.client import request
from harness.server import Server, Servers

pytestmark = pytest.mark.uvloop


@pytest.mark.behaviour(17)
def test_contents(probe: Server) -> None:
    headers = ("X-Mixed-CASE: One", "x-repeated: 1", "X-Odd: a\tb  c\xe9\xff", "X-Repeated: 2", "X-Empty:")
    with probe.connect() as client:
        shown = client.get("/scope/caf%C3%A9%2Fx%20y/?b=%20+&a=1&a=", *headers).json()
        mine = client.sock.getsockname()
    scope = shown["scope"]
    assert shown["is_dict"]
    asgi = scope.pop("asgi")
    assert asgi["version"] == "3.0"
    if probe.target.server == "m0serve":
        assert tuple(map(int, asgi["spec_version"].split("."))) >= (2, 4)
        assert scope.pop("extensions")["http.response.pathsend"] == {}
    assert scope.pop("state").keys() == {"made_at_startup"}
    assert scope == {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/scope/café/x y/",
        "raw_path": {"bytes": "/scope/caf%C3%A9%2Fx%20y/"},
        "query_string": {"bytes": "b=%20+&a=1&a="},
        "root_path": "",
        "client": {"tuple": [mine[0], mine[1]]},
        "server": {"tuple": list(probe.address)},
        "headers": [
            {"tuple": [{"bytes": name}, {"bytes": value}]}
            for name, value in [
                ("host", "testserver"),
                ("x-mixed-case", "One"),
                ("x-repeated", "1"),
                ("x-odd", "a\tb  c\xe9\xff"),
                ("x-repeated", "2"),
                ("x-empty", ""),
            ]
        ],
    }


@pytest.mark.parametrize(
    ("target_form", "path", "raw", "query"),
    [
        ("/scope", "/scope", "/scope", ""),
        ("/scope?", "/scope", "/scope", ""),
        ("/scope/%ff%zz%", "/scope/�%zz%", "/scope/%ff%zz%", ""),
        ("/scope/%2541%252F", "/scope/%41%2F", "/scope/%2541%252F", ""),
        ("/scope//a/../b;c=d", "/scope//a/../b;c=d", "/scope//a/../b;c=d", ""),
        ("/scope/+", "/scope/+", "/scope/+", ""),
        ("/scope/%00%0d%0a", "/scope/\0\r\n", "/scope/%00%0d%0a", ""),
        ("/scope/?x?y=%ff&%00", "/scope/", "/scope/", "x?y=%ff&%00"),
        ("/scope/%F0%9F%A6%80", "/scope/\U0001f980", "/scope/%F0%9F%A6%80", ""),
    ],
)
@pytest.mark.behaviour(17)
def test_paths(probe: Server, target_form: str, path: str, raw: str, query: str) -> None:
    scope = probe.get(target_form).json()["scope"]
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == (path, {"bytes": raw}, {"bytes": query})


@pytest.mark.beyond_uvicorn("keeps the client's host field")
@pytest.mark.behaviour(14, 17)
def test_absolute_form_is_reduced_to_its_path_and_its_host_wins(probe: Server) -> None:
    scope = probe.get("http://other.example:81/scope/x?y=1", "Host: ignored").json()["scope"]
    assert (scope["path"], scope["raw_path"]) == ("/scope/x", {"bytes": "/scope/x"})
    assert scope["query_string"] == {"bytes": "y=1"}
    hosts = [pair["tuple"][1] for pair in scope["headers"] if pair["tuple"][0] == {"bytes": "host"}]
    assert hosts == [{"bytes": "other.example:81"}]


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PATCH", "PUT", "OPTIONS"])
@pytest.mark.behaviour(17)
def test_methods(probe: Server, method: str) -> None:
    assert probe.get("/scope", method=method).json()["scope"]["method"] == method


@pytest.mark.beyond_uvicorn("httptools knows a fixed set of methods")
def test_a_method_is_any_token_in_its_own_case(probe: Server) -> None:
    assert probe.get("/scope", method="pUrge-1").json()["scope"]["method"] == "pUrge-1"


@pytest.mark.behaviour(17)
def test_version_of_http_1_0(probe: Server) -> None:
    with probe.connect() as client:
        client.send(b"GET /scope HTTP/1.0\r\n\r\n")
        response = client.response()
        client.expect_end()
    assert response.json()["scope"]["http_version"] == "1.0"


@pytest.mark.behaviour(17)
def test_root_path(servers: Servers) -> None:
    scope = servers.get("probe:app", "--root-path", "/api/v1").get("/scope/x%20y").json()["scope"]
    assert scope["root_path"] == "/api/v1"
    assert scope["path"] == "/api/v1/scope/x y"
    assert scope["raw_path"] == {"bytes": "/api/v1/scope/x%20y"}


@pytest.mark.behaviour(17)
def test_nothing_in_a_scope_reaches_another_request(probe: Server) -> None:
    with probe.connect() as client:
        first, again = client.get("/spoil").json(), client.get("/spoil").json()
        assert first == again
        assert "spoilt" not in str(first)
        assert client.get("/spoil", "x-other: 1").json()["headers"][-1] != first["headers"][-1]
    with probe.connect() as other:
        assert "spoilt" not in str(other.get("/scope").json())


@pytest.mark.behaviour(17)
def test_state_is_a_shallow_copy_for_each_request(probe: Server) -> None:
    with probe.connect() as client:
        first, second = client.get("/state").json(), client.get("/state").json()
    assert first["keys"] == second["keys"] == ["made_at_startup"]
    assert first["id"] == second["id"]
    assert second["length"] == first["length"] + 1


@pytest.mark.behaviour(22)
def test_context_variables_stay_in_their_request(probe: Server, key: str) -> None:
    with probe.connect() as client, probe.connect() as waiting:
        waiting.send(request(f"/context?key={key}&set=waiting&gate=1"))
        probe.note(key, "set-waiting")
        for _ in range(3):
            assert client.get(f"/context?key={key}&set=quick").json() == {"before": "unset", "after": "quick"}
        probe.open_gate(key)
        assert waiting.response().json() == {"before": "unset", "after": "waiting"}
        assert waiting.get(f"/context?key={key}&set=next").json()["before"] == "unset"


def test_pipelined_requests_have_scopes_of_their_own(probe: Server) -> None:
    with probe.connect() as client:
        client.send(b"".join(request(f"/scope/{n}?{n}", f"x-n: {n}") for n in range(20)))
        for n in range(20):
            scope = client.response().json()["scope"]
            assert scope["path"] == f"/scope/{n}"
            assert scope["query_string"] == {"bytes": str(n)}
            assert scope["headers"][1]["tuple"][1] == {"bytes": str(n)}


def test_many_headers(probe: Server) -> None:
    sent = [f"x-{n:02}: {'v' * n}" for n in range(90)]
    scope = probe.get("/scope", *sent).json()["scope"]
    got = [f"{pair['tuple'][0]['bytes']}: {pair['tuple'][1]['bytes']}" for pair in scope["headers"]]
    assert got == ["host: testserver", *sent]
