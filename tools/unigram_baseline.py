"""Compares a run's validation loss with that of guessing each token by its frequency alone.

usage: unigram_baseline.py TRAIN_PREFIX VALID_PREFIX METRICS
Fails (exit code 1) where the model is no better. Token files are Megatron's .bin, 16 bits a token.
"""

import array
import collections
import json
import math
import sys


def tokens(prefix):
    values = array.array("H")
    with open(prefix + ".bin", "rb") as file:
        values.frombytes(file.read())
    return values


def unigram_loss(train, valid):
    """Nats a token of `valid` under the frequencies of `train`, each token counted once more."""
    counts = collections.Counter(train)
    kinds = len(set(train) | set(valid))
    total = len(train) + kinds
    seen = collections.Counter(valid)
    return -sum(n * math.log((counts[t] + 1) / total) for t, n in seen.items()) / len(valid)


def last_valid_loss(path):
    with open(path, encoding="utf-8") as file:
        losses = [entry["val_loss"] for entry in map(json.loads, file) if "val_loss" in entry]
    return losses[-1]


def main():
    train, valid, metrics = sys.argv[1:]
    baseline = unigram_loss(tokens(train), tokens(valid))
    loss = last_valid_loss(metrics)
    print(f"loss on held-out text: {loss:.3f} nats a token; guessing by frequency: {baseline:.3f}")
    return 0 if loss < baseline else 1


if __name__ == "__main__":
    sys.exit(main())
