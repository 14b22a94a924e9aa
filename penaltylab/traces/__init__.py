"""Profiler traces: read, explained, drawn. Knows neither the engine nor the emulated device, and imports no torch."""
