"""A request, its sampling parameters, and when it is finished."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Neutral values switch a penalty off: 0 for frequency and presence, 1 for repetition, 0 for min_new_tokens."""

    max_new_tokens: int
    min_new_tokens: int = 0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 0.0
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False  # as upstream's: no token ends the request, only its length


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """The two things that the min_new_tokens penalizer asks a tokenizer for."""

    eos_token_id: int
    additional_stop_token_ids: frozenset[int] = frozenset()


@dataclass(eq=False, slots=True)
class Req:
    """One request.

    `rid` keys its random draws; `arrival` is the number of the launch from which it may be prefilled.
    """

    rid: int
    origin_input_ids: list[int]
    sampling_params: SamplingParams
    tokenizer: Tokenizer
    arrival: int = 0
    output_ids: list[int] = field(default_factory=list)
    finished_reason: str | None = None
    req_pool_idx: int = -1
    kv_committed_len: int = 0
    kv_allocated_len: int = 0
    decode_batch_idx: int = 0

    def finished(self) -> bool:
        """Whether the host has seen the request's last token."""
        return self.finished_reason is not None

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """A model's own end tokens beside the tokenizer's, which sglang's penalizers ask for since 0.5.20: none."""
        return frozenset()

    def stop_ids(self) -> frozenset[int]:
        """Every token id that ends the request."""
        tokenizer = self.tokenizer
        return self.sampling_params.stop_token_ids | tokenizer.additional_stop_token_ids | {tokenizer.eos_token_id}

    def is_stop(self, token: int) -> bool:
        """Whether `token` ends the request."""
        return not self.sampling_params.ignore_eos and token in self.stop_ids()

    def append(self, tokens: list[int]) -> None:
        """Take over what a launch produced, token by token; what comes after the finish is dropped."""
        for token in tokens:
            if self.finished():
                return
            self.output_ids.append(token)
            if self.is_stop(token):
                self.finished_reason = "stop"
            elif len(self.output_ids) >= self.sampling_params.max_new_tokens:
                self.finished_reason = "length"
