"""Execute: run a plan with the real engine, watch it, and hold what happened against what was promised."""
