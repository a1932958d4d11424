"""Small valid files for the fuzzers to start from: make_seeds.py FOLDER."""

import json
import pathlib
import struct
import sys


def alphabet():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return [chr(b) for b in printable] + [chr(0x100 + i) for i in range(68)]


def crc_table():
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        yield byte


CRC_TABLE = list(crc_table())


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return f"{crc ^ 0xFFFFFFFF:08x}"


def compact(value):
    return json.dumps(value, separators=(",", ":"))


def manifest(tensors, size=1234, **more):
    """A manifest without its last member, the checksum."""
    whole = {"format": "fourfold checkpoint", "version": 1, "step": 200, "incarnation": 1,
             "meta": {"run": "r", "model": "m", "model_hash": "abc", "grid": [2, 1, 3, 1],
                      "order": "yxzd", "zero": 1, "seed": 2**64 - 1, "next_sample": 6400,
                      "intra_op_threads": 2, "scalars": {"lr": "6e-4"}},
             "files": [{"name": "rank-00000.dense.safetensors", "size": size,
                        "header_crc32c": "01020304", "file_crc32c": "fffefdfc"},
                       {"name": "config.toml", "size": 17, "header_crc32c": "00000000",
                        "file_crc32c": "00000005"}],
             "tensors": [dict(zip(("name", "kind", "dtype", "class", "shape", "version"), t))
                         for t in tensors], **more}
    return compact(whole)[:-1].encode()


def referring(*referred, version="step-00000100", **more):
    """A manifest of a tensor that lies in an older checkpoint."""
    tensors = [("experts.0", "master", "F32", "expert", [3, 5], version),
               ("experts.1", "master", "F32", "expert", [3, 5], "step-00000200.1")]
    return manifest(tensors, version=2, referred=list(referred), **more)


def older(checkpoint="step-00000100", names=("rank-00000.expert.safetensors",), grid=(2, 1, 1, 1)):
    files = [{"name": n, "size": 9, "header_crc32c": "01020304", "file_crc32c": "00000005"}
             for n in names]
    return {"checkpoint": checkpoint, "grid": grid, "order": "xyzd", "zero": 0, "files": files}


def references(folder):
    """Manifests that refer to older checkpoints, and to what they must not."""
    expert = "rank-{:05}.expert.safetensors".format
    two = older("step-00000100.1", [expert(0), expert(1)])
    seeds = {"referring": referring(older()),
             "referring_twice": referring(older(), older()),
             "referring_two": referring(older(), two),
             "referring_self": referring(older("step-00000200.1"), version="step-00000200.1"),
             "referring_newer": referring(older("step-00000200.2"), version="step-00000200.2"),
             "referring_path": referring(older("../step-00000100"), version="../step-00000100"),
             "referring_file": referring(older(names=["../rank-00000.expert.safetensors"])),
             "referring_dense": referring(older(names=["rank-00000.dense.safetensors"])),
             "referring_none": referring(),
             "referring_nothing": referring(older(names=[])),
             "referring_many": referring(older(names=[expert(i) for i in range(99)],
                                               grid=[99, 1, 1, 1])),
             "referring_far": referring(older(grid=[2**31 - 1, 1, 1, 1],
                                              names=[expert(2**31 - 2)])),
             "referring_grid": referring(older(grid=[2**31, 2**31, 2**31, 2**31])),
             "referring_list": referring([[[]]], {}, 5)}
    for name, body in seeds.items():
        (folder / name).write_bytes(b"1" + body)


def manifests(folder):
    """Files of fuzz_manifest: the first byte says what follows, see there."""
    tensors = [("embed.weight", "master", "F32", "dense", [50257, 768]),
               ("embed.weight", "weight", "BF16", "router", [50257, 768]),
               ("tokens", "counter", "I64", "state", []),
               ("none", "exp_avg", "F64", "expert", [3, 0])]
    body = manifest(tensors)
    seal = b',\n"crc32c":"%s"}\n' % crc32c(body).encode()
    (folder / "whole").write_bytes(b"0" + body + seal)
    (folder / "body").write_bytes(b"1" + body)
    (folder / "none").write_bytes(b"1" + manifest([]))
    (folder / "unknown").write_bytes(b"1" + manifest(tensors[2:], later=[{"a": None}, 1.5]))
    huge = [("far", "master", "U8", "dense", [2**31, 2**30]),
            ("n" * 4096, "master", "F32", "dense", [1] * 15 + [99_999_999])]
    (folder / "huge").write_bytes(b"1" + manifest(huge, size=2**62, step=2**62))
    (folder / "large").write_bytes(b"1" + manifest(huge[:1], size=99_999_999))
    name = b"step-00000200"
    (folder / "current").write_bytes(b"2" + name + b" " + crc32c(name).encode() + b"\n")
    (folder / "current_name").write_bytes(b"3" + name + b".1")


def shard(regions):
    """A file of regions: (name, dtype, shape, bytes)."""
    header = {"__metadata__": {"format": "fourfold"}}
    data = b""
    for name, dtype, shape, part in regions:
        header["__metadata__"]["crc32c:" + name] = crc32c(part)
        end = len(data) + len(part)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), end]}
        data += part
    text = compact(header).encode()
    text += b" " * (-(len(text) + 8) % 64)
    return struct.pack("<Q", len(text)) + text + data


def shards(folder):
    """Files of fuzz_shard: the first byte holds the form and the wanted tensors, see there."""
    raw, patched, listed = range(3)
    large = listed | 0xC0
    matrix, vector, cube, scalar = (4 << i for i in range(4))
    some = bytes(range(96))
    whole = shard([("w@master[0:4,0:6]", "F32", [4, 6], some),
                   ("s@counter[]", "I64", [], some[:8])])
    parts = shard([("w@master[0:2,0:6]", "F32", [2, 6], some[:48]),
                   ("h@weight[0:7]", "BF16", [7], some[:14]),
                   ("w@master[2:4,0:1]", "F32", [2, 1], some[:8]),
                   ("w@master[2:4,1:6]", "F32", [2, 5], some[:40])])
    (folder / "whole").write_bytes(bytes([raw | matrix | scalar]) + whole)
    (folder / "parts").write_bytes(bytes([raw | matrix | vector]) + parts)
    (folder / "patched").write_bytes(bytes([patched | matrix | vector]) + parts)
    lists = {"row": (listed | matrix, ["F32 w@master[0:4,0:6]"]),
             "list": (listed | cube | scalar | vector,
                      ["BF16 h@weight[0:3]", "F32 c@exp_avg[0:3,1:2,0:5]", "I64 s@counter[]",
                       "F32 c@exp_avg[0:3,0:1,0:5]", "BF16 h@weight[3:7]"]),
             "far": (listed | matrix,
                     ["F32 w@master[0:4,0:6]",
                      "U8 far@k[9223372036854775806:9223372036854775807,3:9]"]),
             "none": (listed | vector, ["BF16 h@weight[0:7]", f"F32 z@k[0:0,5:{2**62}]"]),
             "large": (large | vector, ["BF16 h@weight[0:7]", "U8 big@k[0:3,0:1500001]",
                                        "F64 o@k[0:2,0:0]"]),
             "tall": (large | matrix, ["F32 w@master[0:250000,0:6]"]),
             "wide": (large | matrix, ["F32 w@master[0:4,0:390001]"])}
    for name, (first, lines) in lists.items():
        (folder / name).write_bytes(bytes([first]) + "\n".join(lines).encode())


def main():
    folder = pathlib.Path(sys.argv[1])
    for name in ("safetensors", "token_index", "tokenizer_json", "manifest", "shard"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    manifests(folder / "manifest")
    references(folder / "manifest")
    shards(folder / "shard")
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
