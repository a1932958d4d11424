#pragma once

#include <memory>
#include <vector>

#include "model/experts.h"
#include "model/router.h"
#include "model/shared_experts.h"
#include "parallel/parameter_unit.h"
#include "parallel/token_exchange.h"
#include "policy/recompute.h"

namespace fourfold {

/// How experts are spread and fed; but for local_bias no choice changes what the model computes.
struct MoeOptions {
  ExpertRanks experts;
  bool drop_duplicates = true;
  bool node_first = false;  ///< The exchange goes within nodes, then between them.
  int chunks = 1;  ///< In which a rank's experts take their tokens: one travels, one is computed.
  /// Added to the scores, for the choice alone, of experts on the own node (after LocMoE, arXiv
  /// 2401.13920).
  float local_bias = 0;
  int ranks_on_node = 0;  ///< 0: all ranks share a node.
};

/// A mixture of experts in place of a block's MLP: router, exchange of tokens, experts, exchange
/// back and sum over a token's experts, plus shared experts that every token takes.
class Moe {
 public:
  Moe(const ParallelContext& context, const ModelSpec& spec, const BlockLayers& layers, int block,
      const MoeOptions& options);

  /// What backward needs besides the input.
  struct Saved {
    Router::Saved router;
    ExchangePlan plan;
    std::vector<Experts::Saved> chunks;
    SharedExperts::Saved shared;

    /// Lets go of what is not kept.
    void keep(const KeptActivations& kept);
  };

  /// x [rows, hidden of this rank] → the stream's rows on this rank, whole, with all biases. Of a
  /// cut stream x has these rows alone where takes_whole() is false.
  Async<at::Tensor> forward(const at::Tensor& x, const MicroBatch& batch, Saved& saved) const;
  /// Whether forward takes all rows of a cut stream: shared experts do.
  bool takes_whole() const { return shared_ != nullptr; }
  /// Whether restore() needs x.
  bool needs_input(const Saved& saved) const {
    return !saved.chunks.front().input.defined() ||
           (shared_ && SharedExperts::needs_input(saved.shared));
  }
  /// Computes again what `saved` lacks.
  Async<void> restore(const at::Tensor& x, const MicroBatch& batch, Saved& saved) const;
  /// x as given to forward, or the stream's rows of it on this rank.
  Async<at::Tensor> backward(const at::Tensor& x, const at::Tensor& d_output,
                             const MicroBatch& batch, const Saved& saved);

  /// Adds all parameters, in the order of the forward pass.
  void add_to(ParameterUnit& unit);

 private:
  // The way of one chunk; those of a pass take turns, so that one travels while another computes.
  Async<void> forward_chunk(const at::Tensor& x, const Experts::Gathered& gathered, int number,
                            Saved& saved, const at::Tensor& returned) const;
  Async<void> fetch_chunk(const at::Tensor& x, int number, Saved& saved) const;
  Async<void> restore_chunk(const at::Tensor& x, const at::Tensor& up, int number,
                            Saved& saved) const;
  struct BackwardPass;
  Async<void> backward_chunk(const BackwardPass& pass, int number);

  Async<void> plan(Saved& saved) const;
  at::Tensor own_rows(const at::Tensor& x, std::int64_t rows) const {
    return x.size(0) == rows ? stream_.own_of(x) : x;
  }
  /// Rows of each of the assignments, from those of their tokens.
  at::Tensor rows_to_send(const at::Tensor& x, const ExchangeChunk& chunk) const;
  Experts::Part part(const ExchangeChunk& chunk, int number) const {
    return experts_.part(options_.chunks, number, chunk.rows_of_expert);
  }
  Lane lane() const;

  const ParallelContext& context_;
  StreamRows stream_;
  MoeSpec spec_;
  std::int64_t hidden_;  ///< Of this rank.
  MoeOptions options_;
  ExpertMap map_;
  Router router_;
  Experts experts_;
  TokenExchange exchange_;
  std::unique_ptr<SharedExperts> shared_;  ///< Null where there are none.
};

}  // namespace fourfold
