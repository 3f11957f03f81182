"""``freetrain web``: the status page and the metrics for a browser, from this host."""

import platform
from pathlib import Path

from freetrain.cli.context import CliContext, write_out
from freetrain.errors import TryLaterError
from freetrain.state.files import StateDir
from freetrain.web import LOOPBACK, server, status_app, token_of


def serve(context: CliContext, config: Path | None, *, port: int) -> None:
    """Print the address, and serve it until interrupted."""
    state = StateDir(context.site(config).state_directory)
    token = token_of(state, uid=context.uid)
    try:
        serving = server(status_app(state.path, token=token), port=port)
    except OSError as error:
        raise TryLaterError(
            f"cannot listen on port {port} of {LOOPBACK}: {error.strerror}. Nothing is "
            f"served. Leave --port out for a free one."
        ) from error
    with serving:
        port = serving.server_port
        address = f"http://{LOOPBACK}:{port}"
        tunnel = f"ssh -N -L {port}:{LOOPBACK}:{port} {platform.node()}"
        write_out(
            context,
            f"{address}/?token={token}\n"
            f"From another machine first: {tunnel}\n"
            f"For Prometheus: {address}/metrics?token={token}\n"
            f"It ends with Ctrl-C.\n",
        )
        try:
            serving.serve_forever()
        except KeyboardInterrupt:
            return
