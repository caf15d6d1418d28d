"""Memory: what a job needs on each GPU and in host RAM, from a traced step and the engines' own behaviour."""
