"""Count modules, lines and classes of the source tree, and its floors of packages.

``python -m tests.bench tree``
"""

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

_TOP = Path(__file__).resolve().parents[2]
_ROOTS = ("freetrain", "milp", "slurm", "logs")
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT}
_NO_CODE |= {tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}


def lines(shared: Path) -> Iterator[str]:
    """Yield a figure a line."""
    del shared
    sources = {path: path.read_text() for root in _ROOTS for path in _modules(root)}
    trees = {path: ast.parse(text) for path, text in sources.items()}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    total = sum(len(text.splitlines()) for text in sources.values())
    imports = sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
    )
    records = [n.name for n in nodes if isinstance(n, ast.ClassDef) and _is_data(n)]
    built = Counter(_name(node.func) for node in nodes if isinstance(node, ast.Call))
    chain = longest_chain(trees)
    yield f"modules outside tests: {len(sources)}"
    yield f"lines: {total}"
    yield f"code lines: {sum(map(_code_lines, sources.values()))}"
    yield f"import lines: {imports}, {imports / total:.1%} of all"
    yield f"data classes: {len(records)}"
    yield f"  built in exactly one place: {sum(built[name] == 1 for name in records)}"
    yield f"protocols: {sum(map(_is_protocol, nodes))}"
    yield f"longest import chain of packages: {len(chain)}: {' > '.join(chain)}"


def _modules(root: str) -> Iterator[Path]:
    return iter(sorted((_TOP / root).rglob("*.py")))


def _code_lines(text: str) -> int:
    """Count the lines that have more than comments, strings of their own and ends."""
    found: set[int] = set()
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_docstring = token.type == tokenize.STRING and before in _NO_CODE
        if token.type not in _NO_CODE and not is_docstring:
            found.update(range(token.start[0], token.end[0] + 1))
        if token.type not in {tokenize.COMMENT, tokenize.NL}:
            before = token.type
    return len(found)


def _is_data(node: ast.ClassDef) -> bool:
    """Tell whether it is a dataclass or a struct of msgspec."""
    decorators = {_name(getattr(d, "func", d)) for d in node.decorator_list}
    return "dataclass" in decorators or "Struct" in map(_name, node.bases)


def _is_protocol(node: ast.AST) -> bool:
    bases = node.bases if isinstance(node, ast.ClassDef) else []
    return any(_name(getattr(base, "value", base)) == "Protocol" for base in bases)


def _name(node: ast.AST) -> str:
    return getattr(node, "attr", "") or getattr(node, "id", "")


def longest_chain(trees: dict[Path, ast.Module]) -> list[str]:
    """Return the longest chain of packages of which each imports the next.

    Imports for types and lazy ones count. Packages are those below ``freetrain``,
    its single modules, and the libraries.

    Raises:
        CycleError: Packages import each other in a circle.
    """
    graph: dict[str, set[str]] = {}
    for path, tree in trees.items():
        own = _package(".".join(path.relative_to(_TOP).with_suffix("").parts))
        for node in ast.walk(tree):
            graph.setdefault(own, set()).update(map(_package, _imported(node)))
    known = {own: others & graph.keys() - {own} for own, others in graph.items()}
    chains: dict[str, list[str]] = {}
    for package in TopologicalSorter(known).static_order():
        below = [chains[other] for other in sorted(known[package])]
        chains[package] = [package, *max(below, key=len, default=[])]
    return max(chains.values(), key=len)


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def _package(module: str) -> str:
    parts = module.split(".")
    return ".".join(parts[: 2 if parts[0] == "freetrain" else 1])
