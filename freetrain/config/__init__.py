"""The TOML files that users write: job.toml and freetrain.toml, as msgspec structs."""
