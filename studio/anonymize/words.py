"""New words for old ones, the same for the same key, and the public terms that stay as they are."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from functools import cache
from typing import Any

from studio.operators.table import OPERATORS
from studio.trace import CollectiveType, NodeType

SHORTEST = 4
"""Letters of the shortest word that is looked for in what was written; words of two letters stay."""
STAYS = 2
"""Letters of the longest word that stays, whatever it is."""
_LETTERS = "bcdfghjklmnpqrstvwxz"
_LENGTH = 9
_MOST_DIGITS = 6
_MOST_TEXTS = 100_000
"""So many texts are remembered with their new ones."""
_PIECES = re.compile(r"[^\W\d_]+|\d+|[\W_]+")
_WORDS = re.compile(r"[^\W\d_]+")

_TERMS = """
aten prims torch nn c10d c10 nccl rccl gloo mpi ucc kineto autograd engine inductor triton cuda hip rocm cudnn cublas cublaslt cutlass
mkldnn onednn miopen xla record param comms process group init wait barrier work all reduce gather scatter broadcast to send recv
receive coalesced allreduce allgather reducescatter alltoall alltoallv alltoallsingle collective collectives sendrecv devkernel ncclkernel
nccldevkernel rcclkernel ncclworkelem ncclwork unroll manual sum avg prod min max ring tree simple nvls collnet
comp comm coll load store mem metadata meta copy node invalid
forward backward fwd bwd optimizer step grad zero accumulate accumulategrad profiler profilerstep iteration iter
dataloader pytorch trace execution thread root tensor tensors scalar list bool int float double half bfloat long short byte char void string
undefined none true false optional dict tuple generic genericlist device stream event symint dtype layout generator memory format symbol
sgd adam adamw adadelta foreach fused multi apply kernel kernels native at ns anonymous namespace unrolled elementwise vectorized functor unary
binary nullary index copy impl launch dispatch fill gemm gemv sgemm hgemm igemm ampere hopper volta turing blackwell sm tn nn nt tt epilogue
splitk splitkreduce reduction softmax layernorm norm batch layer conv convolution winograd implicit precomp bn relu
memcpy memset htod dtoh dtod ptop host pageable pinned unregistered peer
cudalaunchkernel cudalaunchkernelexc cudamemcpyasync cudamemsetasync cudalaunch hiplaunchkernel culaunchkernel culaunchkernelex exc async
cudastreamsynchronize cudadevicesynchronize cudaeventsynchronize cudastreamwaitevent synchronize
memcpy memset idle stall call program gap host seq slice world default pg rank
symbolic network chakra
"""


@cache
def collect_vocabulary() -> frozenset[str]:
    """Return the public terms, in small letters: of PyTorch's operators, collectives, kernels and their writers."""
    named = [name for operator in OPERATORS for name in operator.names]
    kinds = [kind.name for kind in (*NodeType, *CollectiveType)]
    words = {word.lower() for text in (*named, *kinds) for word in _WORDS.findall(text)}
    return frozenset(words | set(_TERMS.split()))


def list_words(text: str) -> list[str]:
    """Return the words of a text: runs of letters.

    Example:
        >>> list_words("/home/ann/train_7.py(12)")
        ['home', 'ann', 'train', 'py']
    """
    return _WORDS.findall(text)


class Renamer:
    """Gives new words for old ones: equal for equal words, and for the same key every time."""

    def __init__(self, key: bytes, kept: Iterable[str] = (), avoided: Iterable[str] = ()) -> None:
        """Take a key.

        Args:
            key: What the words are made with; who does not have it cannot tell whether a word stands for a guess.
            kept: Further words that stay as they are.
            avoided: Words in small letters that no new word may contain.
        """
        self._key = key
        self._kept = collect_vocabulary() | {word.lower() for word in kept}
        # A new word has no vowels, so few words can be part of one.
        self._avoided = [
            word for word in avoided if SHORTEST <= len(word) <= _LENGTH and set(word) <= set(_LETTERS)
        ]
        self._words: dict[tuple[str, str], str] = {}
        # Ranks of a job hold the same texts as a rule: each is taken apart once.
        self._texts: dict[str, list[Any]] = {}
        self._stayed: dict[str, int] = {}

    def is_public(self, word: str) -> bool:
        """Whether a word stays as it is."""
        return len(word) <= STAYS or word.lower() in self._kept

    def word(self, old: str, what: str = "word") -> str:
        """Return the new word for an old one; `what` keeps kinds of words apart."""
        new = self._words.get((what, old))
        attempt = 0
        while new is None:
            message = f"{what}\0{attempt}\0{old}".encode("utf-8", "surrogatepass")
            number = int.from_bytes(hmac.new(self._key, message, hashlib.sha256).digest(), "big")
            letters = []
            for _ in range(_LENGTH):
                number, rest = divmod(number, len(_LETTERS))
                letters.append(_LETTERS[rest])
            word = "".join(letters)
            attempt += 1
            if not any(avoided in word for avoided in self._avoided):
                new = self._words[what, old] = word
        return new

    def words(self, text: str) -> str:
        """Return a text with every word renamed that is no public term, and numbers longer than six digits.

        Example:
            >>> Renamer(b"k").words("secret.3.aten::mm") == Renamer(b"k").word("secret") + ".3.aten::mm"
            True
        """
        known = self._texts.get(text)
        if known is None:
            if len(self._texts) >= _MOST_TEXTS:
                self._count_stayed()
            stayed: list[str] = []
            new = "".join(self._rename_piece(piece, stayed) for piece in _PIECES.findall(text))
            known = self._texts[text] = [new, tuple(stayed), 0]
        known[2] += 1
        renamed: str = known[0]
        return renamed

    def _rename_piece(self, piece: str, stayed: list[str]) -> str:
        if piece[0].isdigit():
            return piece if len(piece) <= _MOST_DIGITS else self.word(piece, "number")
        if not piece[0].isalpha():
            return piece
        if self.is_public(piece):
            stayed.append(piece)
            return piece
        return self.word(piece)

    @property
    def stayed(self) -> dict[str, int]:
        """Public terms that stayed in texts, and how often, in the order in which they came."""
        self._count_stayed()
        return self._stayed

    def _count_stayed(self) -> None:
        """Count what stayed in the texts that are known, and forget these."""
        for _, stayed, count in self._texts.values():
            for piece in stayed:
                self._stayed[piece] = self._stayed.get(piece, 0) + count
        self._texts.clear()

    def dimensions(self, text: str) -> str:
        """Return a shape with each size above 1 renamed: equal sizes stay equal, how large they are is not told."""
        return re.sub(
            r"\d+",
            lambda match: match[0] if match[0] in ("0", "1") else self.word(match[0], "size")[:5],
            text,
        )
