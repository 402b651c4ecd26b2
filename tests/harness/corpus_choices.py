"""Where we and gunicorn's corpus part: the cases by name, the section we follow, and what we do instead.

docs/conformance.md lists the same cases; test_corpus.py compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Choice:
    """What we do with a case that the corpus wants treated otherwise."""

    section: str
    #: With 200 it is accepted, and then `headers` and `method` may say what the application sees instead.
    status: int
    method: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    body: str = ""


_LIMITS = Choice("RFC 9112, 3 and 5", 200)
_SETTING = Choice("RFC 9110, 5.4", 200)
_CODING = Choice("RFC 9112, 6.1", 501)
_FOLD = Choice("RFC 9112, 5.2", 400)
_PROXY = Choice("RFC 9112, 3", 400)
_CONNECT = Choice("RFC 9110, 9.3.6", 501)
_UNDERSCORE = (("transfer_encoding", "tricked"), ("content-length", "7"), ("content_length", "-1E23"))

CHOICES: dict[str, Choice] = {
    "invalid/003c": Choice("RFC 9110, 9.1", 200),
    "invalid/006": _LIMITS,
    "invalid/007": Choice("RFC 9112, 3 and 5", 200, body='{"nom": "nom"}'),
    "invalid/008": _LIMITS,
    "invalid/009": Choice("RFC 9112, 3 and 5", 200, body='{"nom": "nom"}'),
    "invalid/010": _SETTING,
    "invalid/011": _SETTING,
    "invalid/012": _SETTING,
    "invalid/017": _LIMITS,
    "invalid/019": Choice("RFC 9110, 5.1", 200),
    "invalid/040": Choice("RFC 9110, 5.1", 200, headers=_UNDERSCORE, body="tricked"),
    "invalid/041": Choice("RFC 9110, 5.3", 200),
    "invalid/chunked_07": Choice("RFC 9110, 5.1", 200, body="hello world"),
    "invalid/limit_header_default_01": _LIMITS,
    "valid/005": Choice("RFC 9112, 3.2.1", 400),
    "valid/025": _CODING,
    "valid/025_line": _CODING,
    "valid/028": Choice("RFC 9112, 5.1", 400),
    "valid/029": _CODING,
    "valid/030": _CODING,
    "valid/031compat": Choice("RFC 9110, 9.1", 200, method="-blargh"),
    "valid/040": Choice("RFC 9110, 5.1", 200, headers=_UNDERSCORE),
    "valid/099": Choice("RFC 9112, 8", 500),
    "valid/compat_obs_fold": _FOLD,
    "valid/compat_obs_fold_huge": _FOLD,
    "valid/pp_01": _PROXY,
    "valid/pp_02": _PROXY,
    "valid/pp_04": _PROXY,
    "valid/pp_05": _PROXY,
    "valid/rfc9112_smuggle_gzip_chunked_01": _CODING,
    "valid/rfc9112_smuggle_te_identity_chunked_01": _CODING,
    "valid/rfc9112_target_absolute_userinfo_01": Choice("RFC 9110, 4.2.4", 400),
    "valid/rfc9112_target_authority_connect_01": _CONNECT,
    "valid/rfc9112_target_authority_ipv6_01": _CONNECT,
}

#: Valid by the corpus although an HTTP/1.1 request of theirs has no Host: refused (RFC 9112, 3.2). They, and the
#: invalid ones without a Host, run a second time with a Host put in, so that it is not its absence that decides.
WITHOUT_HOST = frozenset(
    f"valid/{name}"
    for name in (
        *("004", "005", "006", "007", "010", "011", "012", "013", "014", "018", "021", "022", "023", "025", "025_line"),
        *("028", "029", "030", "031", "031compat", "031compat2", "100", "compat_obs_fold_huge", "pp_02"),
    )
)
