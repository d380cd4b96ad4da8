"""What schemathesis must be told to speak to Wayleave: its lines and URLs, that it need not wait, and what no schema
can say."""

import json
import re

import jsonschema_rs
import schemathesis
from hypothesis import strategies as st

WAIT_MS = 20


@schemathesis.serializer("application/x-ndjson")
def lines(ctx, value):
    """One object a line. The example of the document is lines already."""
    if isinstance(value, (bytes, str)):
        return value
    return json.dumps(value) + "\n"


# A URL that is named must be one that could be crawled; that a text is one, no schema can say.
paths = st.text(alphabet="abc/?&=._-~", max_size=40)
urls = st.builds("{}://{}.example/{}".format, st.sampled_from(["http", "https", "ftp"]), st.sampled_from("abcdef"), paths)
schemathesis.openapi.format("uri", urls)


def shortened(container):
    """A long poll that would be answered at the end of a minute is answered at once; a wrong time stays wrong."""
    wait = container.get("wait_ms") if isinstance(container, dict) else None
    if isinstance(wait, str) and wait.isascii() and wait.isdigit():
        wait = int(wait)
    if isinstance(wait, (int, float)) and not isinstance(wait, bool) and WAIT_MS < wait <= 60_000 and wait == int(wait):
        container["wait_ms"] = WAIT_MS


@schemathesis.hook
def before_call(context, case, kwargs):
    shortened(case.query)
    shortened(case.body)


def is_sound(case):
    """Whether a request that was made to be wrong is none: of a body with alternatives the tool spoils one, and may meet another."""
    others = [info.mode for place, info in case.meta.components.items() if place.value != "body"]
    if any(mode.is_negative for mode in others) or case.media_type is None:
        return False
    document = case.operation.schema.raw_schema
    call = document["paths"][case.operation.path][case.operation.method]
    schema = call["requestBody"]["content"][case.media_type]["schema"]
    whole = {**schema, "components": document["components"]}
    return jsonschema_rs.Draft202012Validator(whole).is_valid(case.body)


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """Whether a failure is a difference between the document and the server."""
    code = failure.__class__.__name__
    if code == "RejectedPositiveData":
        # A cursor is opaque: only one that the server gave out is taken.
        is_opaque = b'"code":"bad_cursor"' in response.content
        # The names of groups that a listing gives may be hosts. They are tried as aliases, which the document does not take.
        group = (case.path_parameters or {}).get("group")
        is_host = b'"code":"bad_alias"' in response.content and re.fullmatch("[A-Za-z0-9_-]{1,128}", str(group)) is None
        # Which texts are names of hosts is a matter of IDNA.
        is_no_host = any(reason in response.content for reason in (b"is not a host name or IP address", b"is more than a host name"))
        return not (is_opaque or is_host or is_no_host)
    if code == "UseAfterFree":
        # Deleting a job stops it; what it has done can still be seen. A change makes what was deleted anew.
        return not case.operation.path.startswith("/v1/jobs/") and case.operation.method not in ("put", "patch")
    if code == "AcceptedNegativeData":
        # A line that cannot be taken is rejected by itself; the others are stored, so the answer is 200.
        is_line = case.media_type == "application/x-ndjson" and b'"rejected":0' not in response.content
        return not is_line and not is_sound(case)
    return True
