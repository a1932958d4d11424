#include <memory>

#include "cli/ckpt_convert.h"
#include "cli/ckpt_inspect.h"
#include "cli/ckpt_plan.h"
#include "cli/command.h"
#include "cli/options.h"

namespace fourfold::cli {
namespace {

constexpr const char* kCheckpointDoc = "a run folder, its checkpoints/, or one step of it";

// One of the commands that look at a folder of checkpoints.
Command ckpt_command(const std::string& verb, std::string purpose, std::string text) {
  auto o = std::make_shared<CkptOptions>();
  return {"ckpt " + verb,
          std::move(purpose),
          std::move(text),
          {
              {"DIR", "", kCheckpointDoc, &o->dir, true},
          },
          {"fourfold ckpt " + verb + " runs/first"},
          [o, verb] { return inspect_checkpoint(verb, *o); }};
}

Option override_option(CkptConvertOptions& o) {
  return {"--set", "K=V", "a value of the run file; may be repeated, the later one wins",
          &o.overrides};
}

Command diff_command() {
  auto o = std::make_shared<CkptConvertOptions>();
  return {"ckpt diff",
          "compares two checkpoints",
          "Names the tensors that differ, with the largest absolute difference and the relative "
          "one in the 2-norm, those that one of the two lacks, and scalars that differ. The grids "
          "that wrote them do not matter. The exit code is 0 whether they differ or not.",
          {
              {"A", "", kCheckpointDoc, &o->from, true},
              {"B", "", "the other", &o->to, true},
          },
          {"fourfold ckpt diff runs/first runs/second"},
          [o] { return convert_checkpoint("diff", *o); }};
}

Command reshard_command() {
  auto o = std::make_shared<CkptConvertOptions>();
  return {"ckpt reshard",
          "writes a checkpoint as another grid would have",
          "Reads one checkpoint and writes the files that the ranks of the grid would have saved, "
          "with one tensor in memory at a time and every checksum checked first. It is never "
          "needed to go on training, which loads any checkpoint on any grid. A run file is "
          "written beside it.",
          {
              {"IN", "", kCheckpointDoc, &o->from, true},
              {"OUT", "", "the run folder to make", &o->to, true},
              {"--grid", "GRID", "x,y,z,data,expert", &o->grid, true},
              override_option(*o),
          },
          {"fourfold ckpt reshard runs/first runs/first-4 --grid 2,1,2,1,1"},
          [o] { return convert_checkpoint("reshard", *o); }};
}

Command upcycle_command() {
  auto o = std::make_shared<CkptConvertOptions>();
  return {
      "ckpt upcycle",
      "makes a model with experts of a dense one's checkpoint",
      "Every expert starts as the MLP of its block, or, where model.moe.ffn is a divisor of the "
      "MLP's width, as a part of it; routers start anew, and so do the optimizer and the count "
      "of steps. With whole MLPs the model computes at first what the dense one did.",
      {
          {"IN", "", kCheckpointDoc, &o->from, true},
          {"OUT", "", "the run folder to make", &o->to, true},
          override_option(*o),
      },
      {"fourfold ckpt upcycle runs/first runs/first-moe --set model.moe.experts=4"},
      [o] { return convert_checkpoint("upcycle", *o); }};
}

Command import_command() {
  auto o = std::make_shared<CkptConvertOptions>();
  return {"ckpt import",
          "makes a run folder of a Hugging Face model folder",
          "Takes config.json and safetensors of a GPT-2, Llama, Qwen3, Mixtral, Qwen3-MoE or OLMoE "
          "model (one file or shards; F32, BF16 or F16) and makes a checkpoint of step 0 with zero "
          "moments, and a run file that "
          "trains from it or generates. Settings of the model that fourfold does not have are "
          "refused by name.",
          {
              {"IN", "", "the model folder", &o->from, true},
              {"OUT", "", "the run folder to make", &o->to, true},
              override_option(*o),
          },
          {"fourfold ckpt import models/gpt2 runs/gpt2 --set train.steps=100"},
          [o] { return convert_checkpoint("import", *o); }};
}

Command export_command() {
  auto o = std::make_shared<CkptConvertOptions>();
  return {"ckpt export",
          "makes a Hugging Face model folder of a checkpoint",
          "Writes config.json, generation_config.json, the weights as safetensors and, where the "
          "run names one, the tokenizer: a folder that transformers loads. One tensor is in memory "
          "at a time.",
          {
              {"DIR", "", kCheckpointDoc, &o->from, true},
              {"OUT", "", "the model folder to make", &o->to, true},
              {"--dtype", "TYPE", "of the weights: fp32 or bf16", &o->dtype},
              {"--max-shard-size", "SIZE", "largest file of weights, as far as one tensor allows",
               &o->max_shard_size},
          },
          {"fourfold ckpt export runs/first models/first --dtype bf16"},
          [o] { return convert_checkpoint("export", *o); }};
}

}  // namespace

std::vector<Command> ckpt_command_lines() {
  return {
      ckpt_command("ls", "lists checkpoints",
                   "One line per checkpoint, oldest first: step, grid, bytes, and which is the "
                   "newest committed one."),
      ckpt_command("show", "says what a checkpoint holds",
                   "Prints step, grid, scalars, tensors with shapes and types, and files of the "
                   "newest checkpoint, or of the step given."),
      ckpt_command("verify", "proves a checkpoint whole",
                   "Reads every byte, checks every CRC, and proves that each element of each "
                   "tensor is there exactly once. Exit code 5 where it is not; the message "
                   "names the tensor."),
      diff_command(),
      reshard_command(),
      upcycle_command(),
      import_command(),
      export_command(),
      ckpt_plan_command_line()};
}

}  // namespace fourfold::cli
