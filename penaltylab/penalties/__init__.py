"""The four penalties of sglang's `penaltylib`, under one orchestrator."""

from penaltylab.penalties.orchestrator import BatchedPenalizerOrchestrator as BatchedPenalizerOrchestrator
