"""What uvicorn's own tests check of a server, asked over a socket (promises 1 to 8, 10 to 12, 15 to 23, 33).

Their tests, and where the same is asked here; without a file's name it is in this one.

    tests/protocols/test_http.py
      get, head, post, keepalive, close, chunked_encoding*     test_http1_framing, test_http1_body
      keepalive_timeout*, max_concurrency, huge_headers*        test_http1_body; a head over --max-head is 431, theirs
                                                                depends on the parser
      header_value_allowed_characters, iterator_headers         test_http1_framing, test_asgi_receive
      pipelined_requests, return_close_header, close_*          test_http1_framing
      undersized, oversized, app_exception, exception_during_*,
      no_response, partial_response, duplicate_start, missing_*,
      message_after_body_complete, response_header_splitting    test_asgi_errors
      chunked_encoding_head_request, value_returned             below
      pathsend_*                                                test_asgi_receive, below; a file may come without a
                                                                content-length, and behind pieces of a body
      large_post, early_disconnect, early_response,
      read_after_response                                       test_http1_body, test_asgi_receive, test_asgi_stream
      http10, root_path, raw_path, scopes, lifespan_state       test_asgi_scope; ASGI 2 is refused with a way out
      shutdown_during_request, shutdown_during_idle             test_drain, test_process
      100_continue_*                                            test_http1_body; 100 is not sent when the body has come
      *_upgrade_*                                               test_http1_framing, test_process; WebSocket is 501
      invalid_http, invalid_http_request, fragmentation         test_http1_parsing, test_bad_input
      request_logging                                           below, test_gaps
    tests/test_default_headers.py                               test_http1_framing, below; there is no --header
    tests/middleware/test_proxy_headers.py                      below, test_gaps; the port of an address is
                                                                left out, and empty elements of a list are skipped
    tests/middleware/test_logging.py                            below; --log-level debug takes the place of trace
    tests/test_lifespan.py                                      test_lifespan, below
    tests/test_server.py                                        contextvars below; interrupts in test_process,
                                                                test_start_up; there is no --limit-max-requests
    tests/test_main.py, tests/test_config.py, tests/test_cli.py test_start_up
    tests/protocols/test_flow_control.py                        test_asgi_scope (context variables), test_asgi_stream
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest

from harness.client import request
from harness.server import APPS, Server, Servers

Start = Callable[..., Server]

APP = "behaviours_app:app"


# --- the wire --------------------------------------------------------------------------------------------------


@pytest.mark.behaviour(1)
def test_a_head_request_whose_application_asks_for_chunks(probe: Server) -> None:
    with probe.connect() as client:
        for _ in range(2):
            response = client.get("/own-framing", method="HEAD")
            assert (response.status, response.framing) == (200, "none")
        assert client.get("/own-framing").chunks == [3, 3]


def test_a_value_that_is_returned_changes_nothing_for_the_client(servers: Servers) -> None:
    server = servers.get(APP)
    for _ in range(2):
        with server.connect() as client:
            client.send(request("/returns"))
            assert client.response().json() == "fine"


@pytest.mark.behaviour(18)
def test_a_start_without_an_end_closes(servers: Servers) -> None:
    with servers.get(APP).connect() as client:
        client.send(request("/partial"))
        raw = client.to_end()
    assert raw.count(b"HTTP/1.1") <= 1
    assert not raw.endswith(b"0\r\n\r\n"), "it looks complete"


@pytest.mark.beyond_uvicorn("does not know pathsend")
@pytest.mark.behaviour(21)
def test_a_file_behind_a_piece_of_a_body_comes_in_order(servers: Servers) -> None:
    with servers.get(APP).connect() as client:
        for _ in range(2):
            assert client.get("/mixed").body == b"a " + (APPS / "static" / "style.css").read_bytes()


@pytest.mark.beyond_uvicorn("adds its own")
@pytest.mark.behaviour(16)
def test_both_of_two_server_fields_are_sent_and_none_of_ours(servers: Servers) -> None:
    response = servers.get(APP).get("/two_servers")
    assert response.all("server") == [b"one", b"two"]
    assert len(response.all("date")) == 1


# --- contexts --------------------------------------------------------------------------------------------------


@pytest.mark.behaviour(22)
def test_what_was_set_at_import_is_seen_by_every_request(servers: Servers) -> None:
    with servers.get(APP).connect() as client:
        assert [client.get("/outer").json() for _ in range(3)] == ["set at import"] * 3


# --- lifespan --------------------------------------------------------------------------------------------------


@pytest.mark.behaviour(23)
def test_the_scope_of_the_lifespan(servers: Servers) -> None:
    shown = servers.get(APP).line(r"^lifespan scope: (.*)$")[1]
    scope = json.loads(shown)
    assert scope.pop("type") == "lifespan"
    assert scope.pop("state") == {}
    asgi = scope.pop("asgi")
    assert asgi["version"] == "3.0"
    assert asgi.get("spec_version", "2.0") == "2.0"
    assert scope == {}


@pytest.mark.behaviour(23)
def test_a_state_that_is_added_to_after_start_up(servers: Servers) -> None:
    server = servers.get(APP)
    server.line("start-up is complete")
    assert server.get("/state").json() == ["after", "before"]


@pytest.mark.uvloop
@pytest.mark.behaviour(23)
def test_a_stop_during_start_up_lets_it_end_and_shuts_down(start: Start) -> None:
    server = start("behaviours_app:slow", wait_ready=False)
    server.line("start-up has begun")
    server.signal(signal.SIGTERM)
    assert server.wait(5) in (0, -signal.SIGTERM)
    assert "start-up is complete" in server.stderr
    if server.target.server == "m0serve":
        assert "shutdown is complete" in server.stderr
        assert "ready" not in server.stderr


@pytest.mark.beyond_uvicorn("waits for it")
@pytest.mark.behaviour(23)
def test_a_start_up_that_does_not_end_is_cut_off_by_a_stop(start: Start) -> None:
    server = start("behaviours_app:frozen", "--drain-timeout", "0.3", wait_ready=False)
    server.line("start-up has begun")
    server.signal(signal.SIGTERM)
    server.wait(5)
    assert "the application's start-up did not end within the drain time-out" in server.stderr
    assert "ready" not in server.stderr


@pytest.mark.parametrize("mode", ["auto", "on"])
@pytest.mark.behaviour(23)
def test_a_start_up_that_fails_and_then_raises(start: Start, mode: str) -> None:
    server = start("behaviours_app:raises_after_failing", "--lifespan", mode, wait_ready=False)
    assert server.wait(5) == (1 if server.target.server == "m0serve" else 3)
    assert server.stderr.count("the lifespan event failed") == 1


# --- the access log --------------------------------------------------------------------------------------------


@pytest.mark.beyond_uvicorn("is asked here with its access log off")
def test_lines_of_the_access_log(start: Start) -> None:
    server = start(APP, "--access-log")
    lines = []
    with server.connect() as client:
        for target, status in (("/status?200", 200), ("/status?599", 599), ("/status?204", 204), ("/status?404", 404)):
            assert client.get(target).status == status
            lines.append(f'"GET {target} HTTP/1.1" {status}')
        assert client.get("/%73tatus?304", method="HEAD").status == 304
        lines.append('"HEAD /%73tatus?304 HTTP/1.1" 304')
    assert server.stop() == 0
    logged = [re.search(r'"[A-Z]+ .*', line) for line in (server.stdout + server.stderr).splitlines() if '" ' in line]
    assert [match[0] for match in logged if match] == lines


@pytest.mark.beyond_uvicorn("says it in other words, at the level trace")
def test_connections_that_come_and_go_are_told_where_a_fault_is_looked_for(start: Start) -> None:
    server = start("probe:app", "--log-level", "debug", "--idle-timeout", "0.3")
    with server.connect() as client:
        peer = ":".join(map(str, client.sock.getsockname()))
        assert client.get("/hello").status == 200
        client.expect_end()
    server.line(rf"^m0serve: debug: {peer} connected$")
    server.line(rf"^m0serve: debug: {peer} has said nothing for too long$")
    server.line(rf"^m0serve: debug: the connection of {peer} is closed, responses: 1$")
    with server.connect() as client:
        client.send(b"nonsense\r\n\r\n")
        assert client.response().status == 400
    server.line(r"^m0serve: warning: refused 127\.0\.0\.1:\d+ with 400: ")


# --- trusted proxies -------------------------------------------------------------------------------------------

CHAIN = "X-Forwarded-For: 1.2.3.4, 10.0.2.1, 192.168.0.2"


def who(server: Server, *fields: str) -> tuple[Any, str]:
    """The client's address, None for the connection's own, and the scheme."""
    with server.connect() as client:
        scope = client.get("/scope", *fields).json()["scope"]
        own = scope["client"] == {"tuple": list(client.sock.getsockname()[:2])}
    return (None if own else scope["client"]["tuple"][0], scope["scheme"])


@pytest.mark.parametrize(
    ("trusted", "expected"),
    [
        ("10.0.2.1,192.168.0.2,127.0.0.1", "1.2.3.4"),
        ("192.168.0.2, 127.0.0.1", "10.0.2.1"),
        ("127.0.0.0/8, 1.2.3.4, 10.0.0.0/8, 192.168.0.0/16", "1.2.3.4"),
    ],
)
@pytest.mark.behaviour(33)
def test_several_proxies(servers: Servers, trusted: str, expected: str) -> None:
    server = servers.get("probe:app", "--forwarded-allow-ips", trusted)
    assert who(server, CHAIN, "X-Forwarded-Proto: https") == (expected, "https")


@pytest.mark.beyond_uvicorn("is asked here with its access log off")
@pytest.mark.behaviour(33)
def test_the_access_log_names_the_client_and_not_the_proxy(start: Start) -> None:
    """What is no address stays out of it: the field could be made to look like another line."""
    server = start(APP, "--access-log")
    with server.connect() as client:
        own = ":".join(map(str, client.sock.getsockname()[:2]))
        for chain in ("6.6.6.6, 1.2.3.4:99", "[2001:db8::1]:99", 'x" 200', ""):
            assert client.get("/status?200", f"X-Forwarded-For: {chain}").status == 200
    assert server.stop() == 0
    assert re.findall(r'^(\S+) - "', server.stdout, re.MULTILINE) == ["1.2.3.4:0", "[2001:db8::1]:0", own, own]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (("X-Forwarded-For:", "X-Forwarded-Proto:"), (None, "http")),
        (("X-Forwarded-For: , ,", "X-Forwarded-Proto: https"), (None, "https")),
        (("X-Forwarded-For: , , 9.9.9.9", "X-Forwarded-Proto: asdf"), ("9.9.9.9", "http")),
        (("X-Forwarded-For: 1.2.3.4", "X-Forwarded-For: 127.0.0.1"), ("1.2.3.4", "http")),
        (("X-Forwarded-For: 203.0.113.66, 198.51.100.23", "X-Forwarded-For: 127.0.0.1"), ("198.51.100.23", "http")),
        (("X-Forwarded-Proto: https", "X-Forwarded-Proto: http"), (None, "http")),
        (("X-Forwarded-Proto: http", "X-Forwarded-Proto: https"), (None, "https")),
        (("X-Forwarded-For: 2001:db8::1",), ("2001:db8::1", "http")),
        (("X-Forwarded-For: [2001:db8::1]",), ("2001:db8::1", "http")),
        (("X-Forwarded-For: [2001:db8::1]:443",), ("2001:db8::1", "http")),
        (("X-Forwarded-For: 1.2.3.4:1234",), ("1.2.3.4", "http")),
        (("Forwarded: for=1.2.3.4;proto=https",), (None, "http")),
    ],
)
@pytest.mark.behaviour(33)
def test_forms_of_forwarded_fields(probe: Server, fields: tuple[str, ...], expected: Any) -> None:
    assert who(probe, *fields) == expected


@pytest.mark.beyond_uvicorn("takes an empty element for the client")
@pytest.mark.parametrize("chain", ["9.9.9.9 , , , 127.0.0.1", ", , 9.9.9.9, ,", "9.9.9.9,"])
@pytest.mark.behaviour(33)
def test_empty_elements_are_skipped(probe: Server, chain: str) -> None:
    assert who(probe, f"X-Forwarded-For: {chain}") == ("9.9.9.9", "http")


@pytest.mark.parametrize("address", ["1.2.3.4:notaport", "[2001:db8::1", "[2001:db8::1]extra", "unknown", "_hidden"])
@pytest.mark.behaviour(33)
def test_what_is_no_address_is_nobody_to_be_trusted(probe: Server, address: str) -> None:
    """It ends the search; what stands before it was written by whoever sent it."""
    client, _ = who(probe, f"X-Forwarded-For: 6.6.6.6, {address}")
    assert client != "6.6.6.6"
