"""Small valid files for the fuzzers to start from: make_seeds.py FOLDER."""

import json
import pathlib
import struct
import sys


def alphabet():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return [chr(b) for b in printable] + [chr(0x100 + i) for i in range(68)]


def main():
    folder = pathlib.Path(sys.argv[1])
    for name in ("safetensors", "token_index", "tokenizer_json"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    header = {"__metadata__": {"format": "pt"},
              "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
              "b": {"dtype": "BF16", "shape": [0, 3], "data_offsets": [8, 8]}}
    text = json.dumps(header).encode()
    (folder / "safetensors/two").write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
    idx = b"MMIDIDX\0\0" + struct.pack("<QBQQ2i2q3q", 1, 4, 2, 3, 3, 2, 0, 12, 0, 1, 2)
    (folder / "token_index/two").write_bytes(struct.pack("<Q", 20) + idx)
    tokens = alphabet() + ["th", "the"]
    model = {"type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)},
             "merges": ["t h", ["th", "e"]]}
    added = [{"id": 258, "content": "<|endoftext|>", "special": True}]
    whole = {"added_tokens": added, "model": model,
             "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}}
    (folder / "tokenizer_json/small").write_text(json.dumps(whole))


if __name__ == "__main__":
    main()
