"""The catalogue: every model that is to be kept current, read from ``convert.toml``.

values     what the file may say (and the JSON schema, which is made of it)
lines      where each key of the file stands
reader     the file, every problem at once, with line numbers
pairs      models and targets, each pair with the request that converts it
recipes    what a pair's result depends on, as facts by name
shelf      one model in the registry, a folder or a remote one
records    what was published last, and from which recipe
planning   what would be rebuilt, and why
delivery   one target into the registry, and versions put together of targets
running    the plan carried out
"""
