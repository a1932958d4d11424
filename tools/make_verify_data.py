"""Writes the token files that configs/verify-*.toml train on: a made-up language.

usage: make_verify_data.py FOLDER

The next token is, three times of four, a fixed function of the last one, so that a model has
something to learn; vocabulary 251; Megatron's .bin/.idx with 16-bit tokens. Always the same bytes.
"""

import pathlib
import struct
import sys

VOCAB = 251
DOCUMENT = 500  # Tokens.


class Random:
    """A linear congruential generator (Knuth's MMIX constants): the same on every Python."""

    def __init__(self, seed):
        self.state = seed

    def below(self, limit):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % limit


def document(random):
    tokens = [random.below(VOCAB)]
    while len(tokens) < DOCUMENT:
        fixed = (tokens[-1] * 37 + 11) % VOCAB
        tokens.append(fixed if random.below(4) else random.below(VOCAB))
    return tokens


def write(prefix, documents):
    lengths = [len(d) for d in documents]
    offsets = [2 * sum(lengths[:i]) for i in range(len(lengths))]
    with open(f"{prefix}.bin", "wb") as file:
        for tokens in documents:
            file.write(struct.pack(f"<{len(tokens)}H", *tokens))
    count = len(documents)
    with open(f"{prefix}.idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, count, count + 1))
        file.write(struct.pack(f"<{count}i", *lengths))
        file.write(struct.pack(f"<{count}q", *offsets))
        file.write(struct.pack(f"<{count + 1}q", *range(count + 1)))


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    random = Random(1)
    write(folder / "verify-train", [document(random) for _ in range(40)])
    write(folder / "verify-valid", [document(random) for _ in range(4)])


if __name__ == "__main__":
    main()
