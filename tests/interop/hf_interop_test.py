"""Model folders against the transformers package: random-weight models imported, trained, exported.

usage: hf_interop_test.py PROGRAM LOGITS_TOOL gpt2|llama|mixtral|qwen3|olmoe
Exit code 77: the package is not installed, with the reason printed.
"""

import importlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "configs" / "data" / "verify-train"  # Tokens below 251.
VOCAB, LENGTH = 251, 19
TOLERANCE = 1e-4
os.environ["HF_HUB_OFFLINE"] = "1"


def need(name):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        print(f"skipped: the Python package {name} is not installed ({error})")
        sys.exit(77)


class Programs:
    def __init__(self, program, tool, folder):
        self.program, self.tool, self.folder = program, tool, folder

    def run(self, *arguments):
        done = subprocess.run([*map(str, arguments)], capture_output=True, text=True,
                              cwd=self.folder)
        assert done.returncode == 0, \
            f"{arguments}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def fourfold(self, *arguments):
        return self.run(self.program, *arguments)

    def logits(self, run, tokens):
        """[tokens, vocabulary] of our model."""
        torch = need("torch")
        out = self.folder / "logits"
        self.run(self.tool, run, out, *tokens)
        flat = torch.frombuffer(bytearray(out.read_bytes()), dtype=torch.float32)
        return flat.view(len(tokens), VOCAB)


def rope(theta):
    """The base of rotary positions as this version of transformers names it."""
    transformers = need("transformers")
    if int(transformers.__version__.split(".")[0]) >= 5:
        return {"rope_parameters": {"rope_type": "default", "rope_theta": theta}}
    return {"rope_theta": theta}


def configs(family):
    """Models whose sizes divide by nothing, and the grid that each is trained on."""
    transformers = need("transformers")
    if family == "gpt2":
        gpt2 = {"vocab_size": VOCAB, "n_positions": LENGTH, "n_embd": 42, "n_layer": 2,
                "n_head": 6, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}
        yield "plain", transformers.GPT2Config(**gpt2), {"x": 2, "z": 2}
        yield "inner", transformers.GPT2Config(**gpt2, n_inner=101, layer_norm_epsilon=1e-3,
                                               tie_word_embeddings=False), {"x": 3, "y": 2}
        return
    llama = {"vocab_size": VOCAB, "max_position_embeddings": LENGTH, "hidden_size": 48,
             "intermediate_size": 67, "num_hidden_layers": 2, "num_attention_heads": 6,
             "num_key_value_heads": 3}
    if family == "mixtral":
        # Products of experts in transformers take rows of multiples of 16 bytes.
        mixtral = {**llama, "intermediate_size": 72, "num_local_experts": 5,
                   "num_experts_per_tok": 2}
        yield "experts", transformers.MixtralConfig(**mixtral), {"x": 3, "z": 2, "expert": 2}
        yield "wide", transformers.MixtralConfig(
            **{**mixtral, "num_experts_per_tok": 3}, **rope(5000.0), head_dim=10,
            tie_word_embeddings=True, rms_norm_eps=1e-3), {"y": 2, "data": 2, "expert": 2}
        return
    if family == "qwen3":
        yield "dense", transformers.Qwen3Config(**llama, head_dim=10), {"x": 3, "y": 2}
        experts = {**llama, "moe_intermediate_size": 40, "num_experts": 6, "head_dim": 10,
                   "num_experts_per_tok": 2}
        yield "experts", transformers.Qwen3MoeConfig(
            **experts, norm_topk_prob=True), {"x": 3, "z": 2, "expert": 2}
        yield "mixed", transformers.Qwen3MoeConfig(
            **{**experts, "num_hidden_layers": 4, "num_key_value_heads": 1}, **rope(5000.0),
            decoder_sparse_step=2, mlp_only_layers=[0, 1]), {"x": 2, "data": 2, "expert": 2}
        return
    if family == "olmoe":
        olmoe = {**llama, "intermediate_size": 72, "num_experts": 5, "num_experts_per_tok": 2,
                 "pad_token_id": None, "eos_token_id": None}
        yield "experts", transformers.OlmoeConfig(**olmoe), {"x": 3, "z": 2, "expert": 2}
        yield "shared", transformers.OlmoeConfig(
            **{**olmoe, "num_key_value_heads": 1}, norm_topk_prob=True, rms_norm_eps=1e-3,
            tie_word_embeddings=True), {"x": 2, "y": 2}
        return
    yield "grouped", transformers.LlamaConfig(**llama), {"x": 3, "z": 2}
    yield "biased", transformers.LlamaConfig(
        **llama, **rope(5000.0), head_dim=10, attention_bias=True, mlp_bias=True,
        tie_word_embeddings=True, rms_norm_eps=1e-3), {"y": 2, "data": 2}


def random_model(config):
    """Every weight and bias random, so that none can be forgotten or exchanged unseen."""
    torch = need("torch")
    transformers = need("transformers")
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            norm = "norm" in name or ".ln_" in name
            parameter.normal_(1.0 if norm and name.endswith("weight") else 0.0, 0.2)
    return model


def their_logits(model, tokens):
    torch = need("torch")
    with torch.no_grad():
        return model.float()(torch.tensor([tokens])).logits[0]


def load(folder):
    transformers = need("transformers")
    model, notes = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not notes[kind], (kind, notes[kind])
    return model.eval()


def compare(what, ours, theirs):
    difference = (ours - theirs).abs().max().item()
    assert theirs.abs().max() > 0.5, "logits too small to tell anything"
    assert difference < TOLERANCE, f"{what}: logits differ by {difference}"
    print(f"{what}: largest difference of logits {difference:.2g}, of {theirs.abs().max():.3g}")


def tensors_of(folder):
    from safetensors.torch import load_file
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors.update(load_file(path))
    return tensors


def check_import_and_export(programs, name, model, dtype, tokens):
    """Their folder to ours and back: the same logits, the same weights bit by bit."""
    torch = need("torch")
    saved, run, out = (programs.folder / f"{name}-{dtype}-{part}" for part in ("hf", "run", "out"))
    model.to(getattr(torch, dtype)).save_pretrained(saved, max_shard_size="40KB")
    files = len(list(saved.glob("*.safetensors")))
    print(programs.fourfold("ckpt", "import", saved, run).strip())
    compare(f"{name} imported from {files} files in {dtype}", programs.logits(run, tokens),
            their_logits(load(saved), tokens))
    ours = {"float32": "fp32", "bfloat16": "bf16"}[dtype]
    print(programs.fourfold("ckpt", "export", run, out, "--dtype", ours,
                            "--max-shard-size", "50KB").strip())
    before, after = tensors_of(saved), tensors_of(out)
    assert before.keys() == after.keys(), before.keys() ^ after.keys()
    for key, tensor in before.items():
        assert tensor.dtype == after[key].dtype and tensor.equal(after[key]), key
    compare(f"{name} exported in {dtype}", programs.logits(run, tokens),
            their_logits(load(out), tokens))
    return run


def check_training(programs, name, run, grid, precision, tokens):
    """What we train from it on a grid is what they load."""
    trained = programs.folder / f"{name}-{precision}-trained"
    programs.run("cp", "-r", run, trained)
    before = programs.logits(run, tokens)
    sets = {"data.train": SAMPLE, "train.steps": 3, "train.global_batch": 4, "optimizer.lr": 1e-2,
            "train.precision": precision, "log.report": "false",
            **{f"parallel.{axis}": size for axis, size in grid.items()}}
    programs.fourfold("train", run / "config.toml", "--run-dir", trained,
                      *(word for key, value in sets.items() for word in
                        ("--set", f"{key}={value}")))
    ours = programs.logits(trained, tokens)
    assert (ours - before).abs().max() > 0.01, "nothing was trained"
    out = programs.folder / f"{name}-{precision}-export"
    programs.fourfold("ckpt", "export", trained, out)
    compare(f"{name} trained in {precision} on {grid}", ours, their_logits(load(out), tokens))
    assert json.loads((out / "config.json").read_text())["architectures"]


def main():
    program, tool = map(os.path.abspath, sys.argv[1:3])
    family = sys.argv[3]
    transformers = need("transformers")
    need("torch")
    print(f"transformers {transformers.__version__}")
    transformers.utils.logging.disable_progress_bar()
    tokens = [(i * i * 31 + 7 * i + 3) % VOCAB for i in range(LENGTH)]
    with tempfile.TemporaryDirectory() as folder:
        programs = Programs(program, tool, pathlib.Path(folder))
        for name, config, grid in configs(family):
            model = random_model(config)
            run = check_import_and_export(programs, name, model, "float32", tokens)
            check_training(programs, name, run, grid, "fp32", tokens)
            run = check_import_and_export(programs, name, model, "bfloat16", tokens)
            check_training(programs, name, run, grid, "bf16", tokens)


if __name__ == "__main__":
    main()
