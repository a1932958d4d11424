#include "spec/config_builder.h"

namespace fourfold {
namespace {

std::vector<ConfigKey> data_keys() {
  return {
      key("data.train", FF_FIELD(data.train),
          {.doc = "prefix of the training tokens' .bin and .idx", .default_text = "none"}),
      key("data.valid", FF_FIELD(data.valid),
          {.doc = "prefix of the held-out tokens", .default_text = "none: no evaluation"}),
      key("data.tokenizer", FF_FIELD(data.tokenizer),
          {.doc = "tokenizer.json, for generated text and to check the data",
           .default_text = "none"}),
  };
}

std::vector<ConfigKey> checkpoint_keys() {
  return {
      key("checkpoint.save_interval", FF_FIELD(checkpoint.save_interval),
          {.doc = "between checkpoints; 0: at the end only", .unit = "steps", .min = 0}),
      key("checkpoint.keep_latest", FF_FIELD(checkpoint.keep_latest),
          {.doc = "newest checkpoints that are kept", .min = 1}),
      key("checkpoint.keep_every", FF_FIELD(checkpoint.keep_every),
          {.doc = "checkpoints of steps that are a multiple of this are kept too; 0: no others",
           .unit = "steps",
           .min = 0}),
      key("checkpoint.async", FF_FIELD(checkpoint.async),
          {.doc = "train on while a copy of the state is written; false: wait for the disk"}),
      key("checkpoint.memory_dir", FF_FIELD(checkpoint.memory_dir),
          {.doc = "memory file system for up to three copies of a rank's state, which outlive the "
                  "process; empty, or where it has no room: memory of the process"}),
      key("checkpoint.timeout_seconds", FF_FIELD(checkpoint.timeout_seconds),
          {.doc = "a stage of a checkpoint that takes longer is an error: a disk does not answer",
           .unit = "s",
           .min = 1}),
      key("checkpoint.on_failure", FF_FIELD(checkpoint.on_failure),
          {.doc = "when a checkpoint cannot be written: continue (with a warning, and try again "
                  "at the next) or stop; at the end of a run it is always an error",
           .choices = {"continue", "stop"}}),
      key("checkpoint.mode", FF_FIELD(checkpoint.mode),
          {.doc = "exact: the whole state; off: none is written",
           .choices = {"exact", "off"},
           .later = {"pec"}}),
      later_key("checkpoint.pec.k_snapshot", std::int64_t{0}, "experts of a layer in memory"),
      later_key("checkpoint.pec.k_persist", std::int64_t{0}, "experts of a layer in storage"),
      later_key("checkpoint.pec.select", std::string("none"), "which experts come next"),
      later_key("checkpoint.pec.scope", std::vector<std::string>{}, "kinds that are partial"),
      later_key("checkpoint.pec.budget", 0.0, "largest share of lost tokens"),
      later_key("checkpoint.pec.replay", false, "rebuild the dense state by replay"),
  };
}

std::vector<ConfigKey> fault_keys() {
  return {
      later_key("fault.heartbeat_seconds", 0.0, "between signs of life under `launch`"),
      later_key("fault.timeout_seconds", 0.0, "silence that counts as a fault"),
      later_key("fault.max_restarts", std::int64_t{0}, "restarts before giving up"),
  };
}

}  // namespace

std::vector<ConfigKey> keeping_keys() {
  std::vector<ConfigKey> keys = data_keys();
  for (auto part : {checkpoint_keys(), fault_keys()}) {
    keys.insert(keys.end(), part.begin(), part.end());
  }
  keys.push_back(key("log.tensorboard", FF_FIELD(log.tensorboard),
                     {.doc = "write TensorBoard events in tb/"}));
  keys.push_back(
      key("log.report", FF_FIELD(log.report), {.doc = "write report.html at the end of the run"}));
  keys.push_back(key("machine.file", FF_FIELD(machine_file),
                     {.doc = "machine file (TOML): nodes and the links inside and between them"}));
  return keys;
}

}  // namespace fourfold
