"""kbenv in the place of other evaluators: the same call, the same fields, another judge."""
