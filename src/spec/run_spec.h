#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "layout/expert_map.h"
#include "layout/grid.h"
#include "spec/model_spec.h"

namespace fourfold {

enum class Precision { kFp32, kBf16, kFp32x3 };
enum class WireType { kFp32, kBf16 };  ///< In which numbers travel.
enum class Recompute { kNone, kAttention, kMlp, kFull, kBudget };
enum class ScheduleKind { kConstant, kLinear, kCosine, kWsd, kInverseSqrt };
enum class NonFinite { kStop, kSkip };

struct ParallelSpec {
  GridShape grid;
  std::string order = "yxzd";
  int expert = 1;  ///< Ranks over experts, inside z·data.
  ExpertPlacement expert_placement = ExpertPlacement::kContiguous;
  bool drop_duplicates =
      true;               ///< Each x rank sends its part of the tokens to their experts (DTD).
  int expert_chunks = 1;  ///< Parts in which a rank's experts take their tokens.
  bool node_first_exchange = false;
  double local_expert_bias = 0;  ///< Of scores, for the choice alone, of experts on the own node.
  int ranks_on_node = 0;         ///< Neighbouring ranks that share a node; 0: all of them do.
};

struct CommSpec {
  std::string backend = "auto";  ///< auto: mpi under mpirun or srun, else threads.
  double timeout_seconds = 25;
  bool check = true;     ///< Agreement checks on every operation.
  bool emulate = false;  ///< Wait as long as the network of machine.file would take.
};

/// What of the communication runs behind computation.
struct OverlapSpec {
  bool all_reduce = true;
  bool reduce_scatter = true;
  bool all_gather = true;
  bool data_reduce = true;
  bool data_gather = true;
  int prefetch_depth = 1;  ///< Matrices.
  int slices = 1;
  bool sequence_parallel = false;  ///< The residual stream is cut over x by rows.
  bool sp_regather = true;         ///< Gather its normed rows again in backward, keep them cut.
  bool keep_collectives = false;
  int cache_layers = 0;
  WireType grad_dtype = WireType::kFp32;
};

struct MemorySpec {
  Recompute recompute = Recompute::kNone;
  std::int64_t budget = 0;  ///< Bytes of a rank at its peak, of recompute kBudget.
  /// What recompute kBudget comes to: of each block (plan/recompute_choice.h); no key.
  std::vector<Recompute> by_block = {};
  int zero = 1;  ///< 1: masters and moments cut over data. 0: replicated.
};

struct TrainSpec {
  std::int64_t steps = 0;
  std::int64_t tokens = 0;  ///< In place of steps: steps = ceil(tokens / (global_batch · seq_len)).
  std::int64_t global_batch = 0;  ///< Sequences of a step.
  std::int64_t micro_batch = 0;   ///< Sequences of one forward pass of one (z, data) rank.
  std::int64_t seq_len = 0;       ///< Of training; the model's unless given.
  Precision precision = Precision::kFp32;
  std::int64_t eval_interval = 0;  ///< Steps; 0: at the end only.
  std::int64_t eval_batches = 0;   ///< Batches of micro_batch·z·data sequences; 0: the whole split.
  std::int64_t log_interval = 1;
  double time_budget_seconds = 0;  ///< Save and exit 75 when it is spent; 0: none.
  NonFinite non_finite = NonFinite::kStop;
};

struct OptimizerSpec {
  std::string name = "adamw";
  double lr = 6e-4;
  std::array<double, 2> betas{0.9, 0.95};
  double eps = 1e-8;
  double weight_decay = 0.1;
  bool decay_embeddings = true;  ///< Norms and biases never decay.
  double clip_grad = 1.0;        ///< Global norm; 0: none.
};

struct ScheduleSpec {
  ScheduleKind kind = ScheduleKind::kCosine;
  std::int64_t warmup = 0;  ///< Steps.
  double min_lr = 0;
  std::int64_t decay = 0;  ///< WSD: steps of the final decay; 0: a tenth of the steps.
};

struct DataSpec {
  std::string train;  ///< Prefix of .bin/.idx.
  std::string valid;  ///< Empty: no evaluation.
  std::string tokenizer;
};

struct CheckpointSpec {
  std::int64_t save_interval = 0;  ///< Steps; 0: at the end only.
  int keep_latest = 2;
  int keep_every = 0;                   ///< Steps; 0: none but the latest.
  bool async = true;                    ///< Write a copy in the background.
  std::string memory_dir = "/dev/shm";  ///< For the copies; empty: memory of the process.
  double timeout_seconds = 1800;        ///< Of each stage of a checkpoint.
  std::string on_failure = "continue";  ///< "continue" | "stop".
  std::string mode = "exact";           ///< "exact" | "off".
};

struct LogSpec {
  bool tensorboard = true;  ///< Events in tb/.
  bool report = true;
};

/// A run: what a TOML file says, validated, with paths as they are to be opened.
struct RunSpec {
  std::string dir;
  std::uint64_t seed = 1234;
  ModelSpec model;
  ParallelSpec parallel;
  CommSpec comm;
  OverlapSpec overlap;
  MemorySpec memory;
  TrainSpec train;
  OptimizerSpec optimizer;
  ScheduleSpec schedule;
  DataSpec data;
  CheckpointSpec checkpoint;
  LogSpec log;
  std::string machine_file;  ///< Empty: none.
  /// Where each key that was given stands ("run.toml:7", "--set"), for messages.
  std::map<std::string, std::string> origins;

  /// Micro-batches of a step: global_batch / (micro_batch · z · data).
  std::int64_t accumulation() const {
    return train.global_batch / (train.micro_batch * parallel.grid.z * parallel.grid.data);
  }
};

}  // namespace fourfold
