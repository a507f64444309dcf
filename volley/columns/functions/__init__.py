"""The functions of expressions on Arrow arrays, one module a family."""
