"""Our readers and writers against the packages whose formats they speak.

usage: formats_test.py TOOL tokenizers|safetensors|tensorboard|megatron
Exit code 77: the package is not installed, with the reason printed.
"""

import importlib
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

PATTERNS = [
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
]
PIECES = ["the", " and", " ", "  ", "\n", "\r\n", "\t", "'s", "'S", "'\u017f", "'ll", "1234",
          "\u00e9",
          "e\u0301", "\u0663", "\u3000", "\u180e", "\u0085", "\u2028", "\u200b", "earth", ".", "!?",
          "_", "\u65e5\u672c", "\U0001F642", "\u00a0", "God", "<|endoftext|>", "<|endof", "\0",
          "\u2167", "\u00bd", "\u0e01\u0e33", "\u0915\u093f", "\ufeff", "\x1f", "\x0b"]


def need(name):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        print(f"skipped: the Python package {name} is not installed ({error})")
        sys.exit(77)


def run(tool, *arguments):
    done = subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, f"{arguments}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def sample_text():
    """The King James text where it is installed, else text made of words."""
    try:
        done = subprocess.run(["bible", "-l0", "gen1:1-rev22:21"], capture_output=True, text=True)
        if done.returncode == 0 and len(done.stdout) > 1_000_000:
            return done.stdout
    except FileNotFoundError:
        pass
    print("the King James text is not installed; using made-up words")
    words = ["".join(random.choice("abcdefgh") for _ in range(random.randint(1, 9)))
             for _ in range(5000)]
    return "".join(random.choice(words) + random.choice([" ", " ", ", ", ".\n"])
                   for _ in range(200_000))


def random_texts(count):
    texts = ["".join(random.choice(PIECES) for _ in range(random.randint(0, 40)))
             for _ in range(count)]
    for _ in range(count):
        points = [random.choice([random.randrange(0x20, 0x250), random.randrange(0xD800),
                                 random.randrange(0xE000, 0x30000)]) for _ in range(30)]
        texts.append("".join(map(chr, points)))
    return texts


def unassigned(text):
    """Letters newer than either side's Unicode are cut differently; leave them out."""
    import unicodedata
    return any(unicodedata.category(c) == "Cn" for c in text)


def encode_ours(tool, tokenizer, texts, folder):
    data = b"".join(struct.pack("<I", len(t)) + t for t in (t.encode() for t in texts))
    (folder / "texts").write_bytes(data)
    run(tool, "encode", tokenizer, folder / "texts", folder / "ids")
    numbers = memoryview((folder / "ids").read_bytes()).cast("i")
    at, out = 0, []
    for _ in texts:
        out.append(list(numbers[at + 1:at + 1 + numbers[at]]))
        at += 1 + numbers[at]
    return out


def compare(tool, path, texts, folder):
    theirs = need("tokenizers").Tokenizer.from_file(str(path))
    ours = encode_ours(tool, path, texts, folder)
    for text, ids in zip(texts, ours):
        expected = theirs.encode(text, add_special_tokens=False).ids
        assert ids == expected, f"{text!r}\nours   {ids}\ntheirs {expected}"
        assert theirs.decode(ids, skip_special_tokens=False) == text, repr(text)
    print(f"{path.name}: {len(texts)} texts, {sum(map(len, ours))} tokens equal")


def train_theirs(pattern, text, vocab):
    tokenizers = need("tokenizers")
    pre = tokenizers.pre_tokenizers
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = pre.Sequence([
        pre.Split(tokenizers.Regex(PATTERNS[pattern]), "isolated"),
        pre.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab, min_frequency=2, show_progress=False,
        initial_alphabet=pre.ByteLevel.alphabet(), special_tokens=["<|endoftext|>"])
    tokenizer.train_from_iterator(text, trainer)
    return tokenizer


def merges_of(path):
    merges = json.loads(path.read_text())["model"]["merges"]
    return [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in merges]


def test_tokenizers(tool, folder):
    need("tokenizers")
    text = sample_text()
    source = folder / "text.txt"
    source.write_bytes(text.encode())
    texts = [t for t in random_texts(3000) if not unassigned(t)]
    documents = [text[i:i + 2000] for i in range(0, len(text), 40_000)] + [text[:200_000]]
    for pattern in range(3):
        path = folder / f"ours-{pattern}.json"
        vocab = (4096, 1000, 1000)[pattern]
        print(run(tool, "tokenizer", source, vocab, path, pattern).strip())
        compare(tool, path, texts + documents, folder)
        theirs = train_theirs(pattern, [text], vocab)
        their_path = folder / f"theirs-{pattern}.json"
        theirs.save(str(their_path))
        assert merges_of(path) == merges_of(their_path), "another order of merges"
        compare(tool, their_path, texts[:500] + documents[:20], folder)
        again = folder / f"again-{pattern}.json"
        run(tool, "rewrite", their_path, again)
        compare(tool, again, texts[:500], folder)
    test_added_tokens(tool, folder, texts)


def test_added_tokens(tool, folder, texts):
    tokenizers = need("tokenizers")
    base = tokenizers.Tokenizer.from_file(str(folder / "ours-0.json"))
    base.add_tokens([tokenizers.AddedToken("[S]", lstrip=True, rstrip=True, normalized=False),
                     tokenizers.AddedToken("earth", single_word=True, normalized=True),
                     tokenizers.AddedToken("[S]]", normalized=False)])
    path = folder / "added.json"
    base.save(str(path))
    pieces = PIECES + ["[S]", "[S]]", "earth"]
    more = ["".join(random.choice(pieces) for _ in range(30)) for _ in range(2000)]
    for text, ids in zip(more, encode_ours(tool, path, more, folder)):
        expected = base.encode(text, add_special_tokens=False).ids
        assert ids == expected, f"{text!r}\nours   {ids}\ntheirs {expected}"
    print(f"{path.name}: {len(more)} texts equal")


def test_safetensors(tool, folder):
    need("safetensors")
    torch = need("torch")
    from safetensors.torch import load_file, save_file
    from safetensors import safe_open
    tensors = {
        "a": torch.randn(3, 5), "b.bf16": torch.randn(7).bfloat16(), "c": torch.arange(11),
        "empty": torch.zeros(4, 0), "scalar": torch.tensor(2.5, dtype=torch.float64),
        "half": torch.randn(3).half(), "bytes": torch.arange(3, dtype=torch.uint8),
        "flag": torch.tensor([True, False, True]), "f8": torch.randn(5).to(torch.float8_e4m3fn),
        "na\u00efve \"name\"": torch.arange(2, dtype=torch.int32),
    }
    save_file(tensors, folder / "theirs.safetensors", metadata={"format": "pt", "k\n": "v\u00e9"})
    run(tool, "safetensors", folder / "theirs.safetensors", folder / "ours.safetensors")
    back = load_file(folder / "ours.safetensors")
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert back[name].dtype == tensor.dtype and back[name].shape == tensor.shape, name
        assert back[name].view(-1).contiguous().view(torch.uint8).equal(
            tensor.view(-1).contiguous().view(torch.uint8)) if tensor.numel() else True, name
    with safe_open(folder / "ours.safetensors", "pt") as opened:
        assert opened.metadata() == {"format": "pt", "k\n": "v\u00e9"}
    print(f"{len(tensors)} tensors equal")


def test_tensorboard(tool, folder):
    need("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    run(tool, "events", folder / "tb")
    events = EventAccumulator(str(folder / "tb"))
    events.Reload()
    points = [(e.step, e.value, e.wall_time) for e in events.Scalars("loss")]
    expected = [(s, struct.unpack("f", struct.pack("f", 2.5 / (s + 1)))[0], 1000.0 + s)
                for s in range(5)]
    assert points == expected, points
    print(f"{len(points)} points equal")


def test_megatron(tool, folder):
    """Reads what we wrote by the format's description, with numpy alone."""
    np = need("numpy")
    text = sample_text()[:300_000]
    (folder / "text.txt").write_text(text)
    run(tool, "tokenizer", folder / "text.txt", 1000, folder / "t.json", 0)
    lines = [line for line in text.split("\n") if line][:250]
    (folder / "docs.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in lines))
    print(run(tool, "prepare", folder / "docs.jsonl", folder / "t.json", folder / "d", 0.1).strip())
    documents = []
    for part in ("train", "valid"):
        raw = (folder / f"d-{part}.idx").read_bytes()
        assert raw[:9] == b"MMIDIDX\0\0"
        version, code, sequences, ends = struct.unpack_from("<QBQQ", raw, 9)
        assert (version, code, ends) == (1, 8, sequences + 1)
        lengths = np.frombuffer(raw, np.int32, sequences, 34)
        offsets = np.frombuffer(raw, np.int64, sequences, 34 + 4 * sequences)
        tokens = np.fromfile(folder / f"d-{part}.bin", np.uint16)
        documents.append([tokens[o // 2:o // 2 + n].tolist() for o, n in zip(offsets, lengths)])
    assert len(documents[1]) == 25 and len(documents[0]) == 225
    ours = encode_ours(tool, folder / "t.json", lines, folder)
    end = json.loads((folder / "d-train.json").read_text())["end_of_text"]
    held_out = [i for i in range(250) if int((i + 1) * 0.1) > int(i * 0.1)]
    assert documents[1] == [ours[i] + [end] for i in held_out]
    assert documents[0] == [ours[i] + [end] for i in range(250) if i not in held_out]
    print(run(tool, "show", folder / "d-valid", folder / "t.json").strip())


def main():
    tool, part = sys.argv[1:]
    random.seed(1)
    with tempfile.TemporaryDirectory() as folder:
        globals()[f"test_{part}"](tool, pathlib.Path(folder))


if __name__ == "__main__":
    main()
