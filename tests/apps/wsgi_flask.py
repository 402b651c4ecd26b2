"""A Flask project: sessions, forms, uploads and downloads, streams, errors, cookies, redirects, blueprints."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flask import (
    Blueprint,
    Flask,
    Response,
    abort,
    flash,
    g,
    get_flashed_messages,
    jsonify,
    make_response,
    redirect,
    render_template_string,
    request,
    send_file,
    session,
    stream_with_context,
    url_for,
)
from werkzeug.exceptions import HTTPException

app = Flask(__name__)
app.secret_key = "only for tests"
app.config["MAX_CONTENT_LENGTH"] = 8 * 1024 * 1024
DATA = Path(__file__).parent / "static" / "data.bin"


@app.before_request
def remember() -> None:
    g.path = request.path


@app.after_request
def mark(response: Response) -> Response:
    response.headers["X-Path"] = g.path
    return response


@app.get("/about/<name>/<int:number>")
def about(name: str, number: int) -> Any:
    return jsonify(
        name=name,
        number=number,
        args=request.args.to_dict(flat=False),
        url=request.url,
        root=request.script_root,
        remote=request.remote_addr,
        one=request.headers.get("X-One"),
        here=url_for("about", name="a b", number=1, _external=True),
    )


@app.get("/count")
def count() -> str:
    session["count"] = session.get("count", 0) + 1
    return f"seen {session['count']} times"


@app.get("/forget")
def forget() -> Response:
    session.clear()
    flash("forgotten")
    return redirect(url_for("flashed"))  # type: ignore[return-value]


@app.get("/flashed")
def flashed() -> str:
    return render_template_string("<p>{{ messages|join(', ') }}</p>", messages=get_flashed_messages())


@app.route("/form", methods=["GET", "POST"])
def form() -> Any:
    if request.method == "GET":
        return render_template_string('<form method="post"><input name="{{ name }}"></form>', name='a"<b')
    files = {name: [item.filename, digest(item.stream)] for name, item in request.files.items()}
    return jsonify(form=request.form.to_dict(flat=False), files=files)


def digest(stream: Any) -> list[Any]:
    total, hashed = 0, hashlib.sha256()
    while block := stream.read(65536):
        total += len(block)
        hashed.update(block)
    return [total, hashed.hexdigest()]


@app.route("/hash", methods=["POST", "PUT"])
def hash_body() -> Any:
    return jsonify(digest(request.stream), request.content_length)


@app.post("/json")
def json_body() -> Any:
    return jsonify(request.get_json())


@app.post("/echo")
def echo() -> Response:
    stream = request.stream
    return Response(iter(lambda: stream.read(30_000), b""), mimetype="application/octet-stream")


@app.get("/download")
def download() -> Response:
    return send_file(DATA, as_attachment=True, download_name="größe.bin", conditional=True)


@app.get("/memory")
def memory() -> Response:
    return send_file(io.BytesIO(b"in memory" * 100), mimetype="text/plain", etag="own", last_modified=1_000_000_000)


@app.get("/big")
def big() -> bytes:
    return b"0123456789abcdef" * 200_000


@app.get("/stream")
def stream() -> Response:
    def lines() -> Iterator[str]:
        for number in range(5):
            yield f"{number} of {request.args['name']}\n"

    return Response(stream_with_context(lines()), mimetype="text/plain")


@app.get("/cookies")
def cookies() -> Response:
    response = make_response(jsonify(request.cookies))
    response.set_cookie("own", "a b;c", max_age=60, path="/x", httponly=True, samesite="Lax")
    response.set_cookie("other", "ü")
    response.delete_cookie("old")
    return response


@app.get("/go/<int:code>")
def go(code: int) -> Any:
    return redirect(url_for("about", name="after", number=code), code)


@app.get("/abort/<int:code>")
def stop(code: int) -> Any:
    abort(code)


@app.get("/broken")
def broken() -> str:
    raise RuntimeError("expected-by-the-test")


@app.get("/handled")
def handled() -> str:
    raise LookupError("of our own")


@app.errorhandler(LookupError)
def lookup(error: LookupError) -> tuple[str, int]:
    return f"not found: {error}", 404


@app.errorhandler(HTTPException)
def plain(error: HTTPException) -> Any:
    response = error.get_response()
    response.headers["X-Handled"] = type(error).__name__
    return response


@app.get("/nothing")
def nothing() -> tuple[str, int]:
    return "", 204


@app.get("/tagged")
def tagged() -> Response:
    response = make_response("tagged")
    response.add_etag()
    return response.make_conditional(request)


@app.route("/thing/", methods=["GET", "DELETE", "PATCH"])
def thing() -> str:
    return request.method


more = Blueprint("more", __name__, url_prefix="/more")


@more.get("/raw")
def raw() -> Response:
    return Response([b"one ", b"two"], status="299 Odd Enough", headers=[("X-Twice", "a"), ("X-Twice", "b")])


app.register_blueprint(more)


def create_app() -> Flask:
    """A factory, as Flask's documentation has it."""
    return app
