"""Becomes the package ``freetrain`` that this file lies in, when imported by that name.

With the package's own parent on PYTHONPATH a program in a container would import the
node's libraries from there before the image's, wherever that folder is visible.
"""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[2]

if __name__ == "freetrain":
    _spec = spec_from_file_location(
        __name__,
        _PACKAGE / "__init__.py",
        submodule_search_locations=[str(_PACKAGE)],
    )
    if _spec is None or _spec.loader is None:
        raise ImportError(f"{_PACKAGE} is no package")
    _module = module_from_spec(_spec)
    sys.modules[__name__] = _module
    _spec.loader.exec_module(_module)
