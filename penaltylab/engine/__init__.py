"""The system under study: sglang's overlap scheduler with sampling penalties, in upstream's own names."""
