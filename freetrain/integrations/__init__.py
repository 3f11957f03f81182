"""Makes training programs elastic whose loop is a library's; one module a library.

``torch`` has what they share: a sampler, and a run whose checkpoints are the library's
own. Nothing else of FreeTrain imports these modules, and each imports its library.
"""
