"""Spack's recipe, for Spack 1.0 or later. To build from this tree, in its top folder:

spack repo create ../freetrain-spack freetrain
cd ../freetrain-spack/spack_repo/freetrain/packages && mkdir py_freetrain && cd -
cp packaging/spack/package.py ../freetrain-spack/spack_repo/freetrain/packages/*/
spack repo add ../freetrain-spack/spack_repo/freetrain
spack dev-build py-freetrain@0.1.0

Spack's own packages of June 2026 (v2026.06.0) have all that it depends on but
py-msgspec, and but older ones of py-pulp (3.3.1), py-typer (0.20.1) and, for +top,
py-textual (5.3.0): add these to the same folder first, or install FreeTrain by pip.
Held against those packages by their text; it was neither concretized nor built.
"""

from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyFreetrain(PythonPackage):
    """Trains neural networks on the supercomputer nodes that Slurm leaves idle."""

    license("Apache-2.0")

    version("0.1.0")

    variant("data", default=False, description="Logs in Parquet files")
    variant("top", default=False, description="The command freetrain top")
    variant("mpi", default=False, description="Programs that speak MPI")
    variant("highs", default=False, description="HiGHS as a second solver")

    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-hatchling@1.27:", type="build")
    depends_on("py-markdown-it-py@3:", type="build")

    depends_on("py-jinja2@3.1.5:", type=("build", "run"))
    depends_on("py-markupsafe@2.1:", type=("build", "run"))
    depends_on("py-msgspec@0.20:", type=("build", "run"))
    depends_on("py-numpy@2.0:", type=("build", "run"))
    depends_on("py-pandas@2.2:", type=("build", "run"))
    depends_on("py-plotly@6.0:", type=("build", "run"))
    depends_on("py-pulp@3.3.2:3", type=("build", "run"))
    depends_on("py-rich@13.8:", type=("build", "run"))
    depends_on("py-scipy@1.13:", type=("build", "run"))
    depends_on("py-typer@0.29:", type=("build", "run"))

    depends_on("py-pyarrow@17:", when="+data", type=("build", "run"))
    depends_on("py-textual@8.0:", when="+top", type=("build", "run"))
    depends_on("mpi", when="+mpi")
    depends_on("py-mpi4py@4.1:", when="+mpi", type=("build", "run"))
    depends_on("py-highspy@1.10:", when="+highs", type=("build", "run"))
