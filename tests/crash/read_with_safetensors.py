"""Opens every tensor file of a checkpoint with the reference reader and checks its bytes."""
import json
import pathlib
import subprocess
import sys

try:
    from safetensors import safe_open
except ImportError:  # The reader is no requirement of the project: read the format by hand.
    safe_open = None


def read_header(path):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def main():
    writer, folder = sys.argv[1:]
    subprocess.run([writer, folder], check=True)
    files = sorted(pathlib.Path(folder).glob("step-*/*.safetensors"))
    assert files, "no tensor files"
    for path in files:
        header, data = read_header(path)
        metadata = header.pop("__metadata__")
        assert metadata["format"] == "fourfold", metadata
        assert all(f"crc32c:{key}" in metadata for key in header), "a region without checksum"
        assert max(entry["data_offsets"][1] for entry in header.values()) == len(data)
        if safe_open is None:
            continue
        with safe_open(path, framework="pt") as tensors:
            assert set(tensors.keys()) == set(header)
            for key in tensors.keys():
                tensor = tensors.get_tensor(key)
                begin, end = header[key]["data_offsets"]
                assert list(tensor.shape) == header[key]["shape"], key
                assert tensor.numel() * tensor.element_size() == end - begin, key
    manifest = json.loads((files[0].parent / "manifest.json").read_text())
    assert manifest["format"] == "fourfold checkpoint"
    print(f"{len(files)} files, {'reference reader' if safe_open else 'by hand'}")


if __name__ == "__main__":
    main()
