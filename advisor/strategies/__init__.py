"""Strategies: one module each, behind one Protocol, in one explicit registry (:mod:`advisor.strategies.registry`)."""
