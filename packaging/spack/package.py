"""Spack's recipe. To build from this source tree, in its top folder:

spack repo create ../freetrain-spack
mkdir -p ../freetrain-spack/packages/py-freetrain
cp packaging/spack/package.py ../freetrain-spack/packages/py-freetrain/
spack repo add ../freetrain-spack
spack dev-build py-freetrain@0.1.0
"""

from spack.package import *


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
