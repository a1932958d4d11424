#include "spec/config_builder.h"

namespace fourfold {
namespace {

constexpr double kMaxAxis = 1e6;  // Ranks of one axis.

std::vector<ConfigKey> grid_keys() {
  return {
      key("parallel.x", FF_FIELD(parallel.grid.x),
          {.doc = "ranks over output features and heads; one of x, y, z, data may be -1: what is "
                  "left of the ranks",
           .unit = "ranks",
           .min = -1,
           .max = kMaxAxis}),
      key("parallel.y", FF_FIELD(parallel.grid.y),
          {.doc = "ranks over input features (the residual stream)",
           .unit = "ranks",
           .min = -1,
           .max = kMaxAxis}),
      key("parallel.z", FF_FIELD(parallel.grid.z),
          {.doc = "ranks over the batch and the storage of weights",
           .unit = "ranks",
           .min = -1,
           .max = kMaxAxis}),
      key("parallel.data", FF_FIELD(parallel.grid.data),
          {.doc = "replicas", .unit = "ranks", .min = -1, .max = kMaxAxis}),
      key("parallel.expert", FF_FIELD(parallel.expert),
          {.doc = "ranks over the experts of a layer, among those of z·data: a divisor of z, or a "
                  "multiple of z that divides z·data",
           .unit = "ranks",
           .min = 1,
           .max = kMaxAxis}),
      key("parallel.expert_placement", FF_FIELD(parallel.expert_placement),
          {.doc = "which experts a rank holds; contiguous: neighbours; interleaved: every "
                  "expert-th one"}),
      key("parallel.drop_duplicates", FF_FIELD(parallel.drop_duplicates),
          {.doc =
               "each of the x ranks, which hold the same tokens, sends its part of them to their "
               "experts, in place of all"}),
      key("parallel.expert_chunks", FF_FIELD(parallel.expert_chunks),
          {.doc = "parts in which a rank's experts take their tokens: the exchange of one runs "
                  "while another computes",
           .min = 1}),
      key("parallel.node_first_exchange", FF_FIELD(parallel.node_first_exchange),
          {.doc =
               "tokens go to their experts in two stages, within the node and then between nodes: "
               "fewer, larger messages between nodes, the same bits (how many ranks share a node "
               "machine.file says, else mpirun)"}),
      key("parallel.local_expert_bias", FF_FIELD(parallel.local_expert_bias),
          {.doc =
               "added to the scores, for the choice alone, of experts on the node of the token's "
               "rank (machine.file says how many ranks share one, else mpirun): fewer tokens "
               "between nodes, but a model that depends on the grid",
           .min = 0}),
      key("parallel.order", FF_FIELD(parallel.order),
          {.doc = "axes in the order of neighbouring ranks, fastest first: a permutation of the "
                  "letters x, y, z, d"}),
      later_key("parallel.plan", std::string("manual"), "auto: the planner chooses the grid"),
  };
}

std::vector<ConfigKey> comm_keys() {
  return {
      key("comm.backend", FF_FIELD(comm.backend),
          {.doc = "auto: mpi under mpirun or srun, else threads",
           .choices = {"auto", "threads", "mpi"},
           .later = {"nccl"}}),
      key("comm.timeout_seconds", FF_FIELD(comm.timeout_seconds),
          {.doc = "a wait for a peer longer than this is an error", .unit = "s", .min = 0.1}),
      key("comm.check", FF_FIELD(comm.check),
          {.doc = "check on every operation that the ranks agree on what they do"}),
      key("comm.emulate", FF_FIELD(comm.emulate),
          {.doc = "every operation takes at least what the network of machine.file would take: for "
                  "developing and showing overlap, not for measuring"}),
      later_key("comm.order", std::string("fixed"),
                "order of sums; fixed: ascending rank, the same bits on every backend"),
  };
}

std::vector<ConfigKey> overlap_keys() {
  return {
      key("overlap.all_reduce", FF_FIELD(overlap.all_reduce),
          {.doc = "sum the gradient of a layer's input while that of its weight is computed"}),
      key("overlap.reduce_scatter", FF_FIELD(overlap.reduce_scatter),
          {.doc = "sum the gradients of weights over z behind the backward pass"}),
      key("overlap.all_gather", FF_FIELD(overlap.all_gather),
          {.doc = "gather weights over z ahead of their use"}),
      key("overlap.data_reduce", FF_FIELD(overlap.data_reduce),
          {.doc = "sum gradients over data behind the last backward pass"}),
      key("overlap.data_gather", FF_FIELD(overlap.data_gather),
          {.doc = "gather updated weights over data until the next forward pass needs them"}),
      key("overlap.prefetch_depth", FF_FIELD(overlap.prefetch_depth),
          {.doc = "matrices that are gathered ahead", .min = 1}),
      key("overlap.slices", FF_FIELD(overlap.slices),
          {.doc = "parts of a micro-batch's samples that pass through the model in turn: the "
                  "collectives of one run while another computes; changes the last bits of results",
           .min = 1}),
      key("overlap.sequence_parallel", FF_FIELD(overlap.sequence_parallel),
          {.doc =
               "cut the residual stream over x by tokens: norms, dropout and residuals work on "
               "1/x of them; the sums over x become reduce-scatters and all-gathers; changes the "
               "last bits of results"}),
      key("overlap.sp_regather", FF_FIELD(overlap.sp_regather),
          {.doc =
               "with sequence_parallel: keep the inputs of products cut from forward to backward, "
               "which gathers them again behind a product; false: keep them whole"}),
      later_key("overlap.attention_over_y", false, "heads over y too"),
      key("overlap.keep_collectives", FF_FIELD(overlap.keep_collectives),
          {.doc =
               "recompute keeps what sums over ranks gave: no activation is communicated again"}),
      key("overlap.cache_layers", FF_FIELD(overlap.cache_layers),
          {.doc = "blocks, from the first, whose gathered weights, and the embedding's, stay until "
                  "the next update",
           .min = 0}),
      key("overlap.grad_dtype", FF_FIELD(overlap.grad_dtype),
          {.doc =
               "type in which gradients of matrices travel over z, and large ones over data; they "
               "are added in fp32"}),
  };
}

std::vector<ConfigKey> memory_keys() {
  return {
      key("memory.recompute", FF_FIELD(memory.recompute),
          {.doc =
               "activations that the backward pass computes again; budget: of each block as much "
               "as memory.budget takes"}),
      key("memory.budget", FF_FIELD(memory.budget),
          {.doc = "of a rank at its peak, as --dry-run predicts it, with memory.recompute = "
                  "\"budget\"",
           .unit = "bytes",
           .min = 0}),
      key("memory.zero", FF_FIELD(memory.zero),
          {.doc = "1: masters and moments cut over data (ZeRO-1); 0: replicated",
           .min = 0,
           .max = 1}),
  };
}

}  // namespace

std::vector<ConfigKey> parallel_keys() {
  std::vector<ConfigKey> keys = grid_keys();
  for (auto part : {comm_keys(), overlap_keys(), memory_keys()}) {
    keys.insert(keys.end(), part.begin(), part.end());
  }
  return keys;
}

}  // namespace fourfold
