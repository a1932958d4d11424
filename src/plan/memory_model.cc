#include "plan/memory_model.h"

#include <algorithm>
#include <vector>

#include "base/tile_chunk.h"
#include "policy/head_layout.h"
#include "policy/model_layers.h"
#include "policy/overlap_plan.h"
#include "policy/recompute.h"

namespace fourfold {
namespace {

constexpr std::int64_t kF32 = 4;

/// The block of a matrix [n, k], or of several side by side: what a product takes.
struct Block {
  std::int64_t rows = 0, cols = 0;
  std::int64_t elements() const { return rows * cols; }
};

class MemoryModel {
 public:
  MemoryModel(const RunSpec& run, Coords at, ExpertLoad load)
      : run_(run),
        at_(at),
        grid_(run.parallel.grid, run.parallel.order),
        layers_(model_layers_of(run)),
        kept_(kept_by_block(run)),
        compute_(run.train.precision == Precision::kBf16 ? 2 : 4),
        rows_(run.train.micro_batch * run.train.seq_len),
        stream_rows_(split_range(rows_, layers_.rows_over_x ? grid_.shape().x : 1, 0).size()),
        slices_(std::min<std::int64_t>(run.overlap.slices, run.train.micro_batch)),
        regathers_(layers_.rows_over_x && run.overlap.sp_regather) {
    if (run.model.moe.experts > 0) expert_rows_ = expert_rows(run, grid_, at, load);
  }

  MemoryPrediction predict() const {
    MemoryParts state;
    add_state(state);
    state.activations = activations();
    state.gathered = cached();
    MemoryPrediction prediction{state, state};
    add_head(prediction.head);
    MemoryParts left = state;  // Activations of the blocks that are to come.
    for (std::size_t i = layers_.blocks.size(); i-- > 0;) {
      MemoryParts parts = left;
      add_backward(layers_.blocks[i], kept_[i], i + 1 == layers_.blocks.size(), parts);
      const bool fuller = parts.total() > prediction.backward.total();
      if (fuller || i + 1 == layers_.blocks.size()) prediction.backward = parts;
      left.activations -= block_activations(layers_.blocks[i], kept_[i]);
    }
    return prediction;
  }

 private:
  bool gathers() const { return grid_.shape().z > 1; }

  Block block_of(const std::vector<ParameterSpec>& specs) const {
    Block block;
    for (const ParameterSpec& p : specs) {
      const Region region = p.layout.block(grid_, at_);
      block.rows += region.dims[0].size();
      block.cols = region.dims.size() > 1 ? region.dims[1].size() : 1;
    }
    return block;
  }
  Block block_of(const LinearSpec& linear) const { return block_of(weight_specs(linear)); }

  void add_state(MemoryParts& parts) const {
    for (const ParameterSpec& p : parameters_of(layers_)) {
      const std::int64_t stored = p.layout.stored(grid_, at_).elements();
      const std::int64_t updated = p.layout.updated(grid_, at_, run_.memory.zero == 1).elements();
      parts.weights += compute_ * stored;
      parts.gradients += kF32 * stored;
      if (compute_ != kF32) parts.masters += kF32 * updated;
      parts.moments += 2 * kF32 * updated;
      if (p.role != ParameterRole::kVector) continue;
      // Values and gradients of vectors, whole over z.
      const std::int64_t whole = p.layout.block(grid_, at_).elements();
      parts.weights += kF32 * whole;
      parts.gradients += kF32 * whole;
    }
  }

  std::int64_t hidden() const { return block_of(layers_.blocks.front().qkv).cols; }
  std::int64_t statistics() const {
    return stream_rows_ * kF32 * (layers_.blocks.front().attention_norm.centred ? 2 : 1);
  }

  /// What one block keeps, and what it would keep without recompute.
  std::int64_t block_activations(const BlockLayers& block, const KeptActivations& kept) const {
    const std::int64_t residual = stream_rows_ * hidden() * compute_;
    const std::int64_t input = (regathers_ ? stream_rows_ : rows_) * hidden() * compute_;
    const std::int64_t qkv = rows_ * block_of(block.qkv).rows * compute_;
    const std::int64_t attention = rows_ * block_of(block.projection).cols * compute_;
    const std::int64_t log_sum_exp =
        rows_ * kF32 * block_of(block.projection).cols / run_.model.head_dim;
    std::int64_t bytes = residual + 2 * statistics();
    if (kept.qkv) bytes += qkv;
    if (block.qk_norm) bytes += qk_norm(block, kept);
    if (kept.attention_input) bytes += input;
    if (kept.attention) bytes += attention + log_sum_exp;
    if (kept.middle) bytes += residual;
    // Experts take the rows of the stream, shared ones whole rows as an MLP does.
    if (kept.mlp_input) bytes += block.has_mlp() ? input : residual;
    if (block.moe) return bytes + moe(block, rows_, expert_rows_).kept(kept);
    if (kept.up) bytes += rows_ * block_of(block.up).rows * compute_;
    if (kept.mlp) bytes += rows_ * block_of(block.down).cols * compute_;
    return bytes;
  }
  /// Queries and keys before their norm, and its statistics.
  std::int64_t qk_norm(const BlockLayers& block, const KeptActivations& kept) const {
    const auto qkv = weight_specs(block.qkv);
    const std::int64_t width = block_of({qkv[0], qkv[1]}).rows;
    const std::int64_t groups = block.qk_norm->whole ? 2 : width / run_.model.head_dim;
    return rows_ * (kept.qkv ? width * compute_ : 0) + rows_ * groups * kF32;
  }
  MoeMemory moe(const BlockLayers& block, std::int64_t rows, std::int64_t expert_rows) const {
    return {run_, grid_, at_, block, rows, expert_rows};
  }

  std::int64_t activations() const {
    std::int64_t bytes = 2 * static_cast<std::int64_t>(sizeof(std::int64_t)) * rows_;  // Tokens.
    for (std::size_t i = 0; i < layers_.blocks.size(); ++i) {
      bytes += block_activations(layers_.blocks[i], kept_[i]);
    }
    return bytes;
  }

  /// Gathered matrices that stay: of the embedding and the first blocks.
  std::int64_t cached() const {
    const auto blocks = static_cast<std::size_t>(run_.overlap.cache_layers);
    if (!gathers() || blocks == 0) return 0;
    std::int64_t elements = block_of({token_table_spec(layers_.embedding)}).elements();
    if (!layers_.embedding.position_name.empty()) {
      elements += block_of({position_table_spec(layers_.embedding)}).elements();
    }
    for (std::size_t i = 0; i < std::min(blocks, layers_.blocks.size()); ++i) {
      const BlockLayers& b = layers_.blocks[i];
      for (const LinearSpec* linear : {&b.qkv, &b.projection, &b.up, &b.down}) {
        elements += block_of(*linear).elements();
      }
    }
    return elements * compute_;
  }

  /// A product of bf16 gives dW in bf16, which is then added to what is f32.
  std::int64_t rounded_gradient(const Block& block) const {
    return compute_ == kF32 ? 0 : block.elements() * compute_;
  }

  /// What the three products of a matrix and `rows` rows pack, in fp32x3: of both parts of a float
  /// as many bytes as it has.
  std::int64_t packed(ProductShape shape) const {
    return run_.train.precision == Precision::kFp32x3 ? packed_elements(shape) * kF32 : 0;
  }
  std::int64_t packed_forward(std::int64_t rows, const Block& block) const {
    return packed({rows, block.rows, block.cols});
  }
  std::int64_t packed_input_gradient(std::int64_t rows, const Block& block) const {
    return packed({rows, block.cols, block.rows});
  }
  std::int64_t packed_weight_gradient(std::int64_t rows, const Block& block) const {
    return packed({block.rows, block.cols, rows});
  }

  /// The head and the loss of one slice; the others' hidden states wait.
  void add_head(MemoryParts& parts) const {
    const ParameterSpec table = token_table_spec(layers_.embedding);
    const bool spread = layers_.head_layout == HeadLayout::kGatherHidden;
    Block head = block_of({layers_.head ? *layers_.head : table});
    const std::int64_t whole = run_.model.hidden;
    const std::int64_t rows = rows_ / slices_;
    if (gathers()) {
      const bool is_cached = !layers_.head && run_.overlap.cache_layers > 0;
      if (!is_cached) parts.gathered += head.elements() * compute_;
      parts.scattering += head.elements() * kF32;
    }
    if (spread && !layers_.head) {  // Tied: the exchanged weight and its gradient.
      head = {head.rows / grid_.shape().y, whole};
      parts.working += head.elements() * (compute_ + kF32);
    }
    parts.working += rounded_gradient(head);
    const std::int64_t chunk = std::min(
        rows, logits_chunk_rows(grid_.shape(), layers_.head_layout, run_.model.vocab, compute_));
    // Hidden states: before the norm, after it, its gradient; gathered ones where they are.
    parts.working += stream_rows_ * hidden() * compute_ + 2 * rows * hidden() * compute_;
    if (spread) parts.working += 2 * rows * whole * compute_;
    // Of a cut stream the normed rows are there whole, and so is their gradient.
    if (layers_.rows_over_x) parts.working += stream_rows_ / slices_ * hidden() * compute_;
    parts.working += chunk * (head.rows * compute_ + 3 * kF32);
    parts.working += std::max({packed_forward(chunk, head), packed_input_gradient(chunk, head),
                               packed_weight_gradient(chunk, head)});
  }

  void add_backward(const BlockLayers& block, const KeptActivations& kept, bool last,
                    MemoryParts& parts) const {
    parts.activations += block_activations(block, {}) - block_activations(block, kept);
    // The block's output and its gradient, and with dropout another one before it.
    parts.working += stream_rows_ * hidden() * compute_ + stream_bytes();
    if (run_.model.dropout > 0) parts.working += stream_bytes();
    parts.working += std::max(block.moe ? experts_backward(block) : mlp_backward(block),
                              attention_backward(block));
    if (block.moe) {
      const MoeMemory experts = moe(block, rows_ / slices_, expert_rows_ / slices_);
      parts.gathered += experts.gathered();
      parts.scattering += experts.scattering();
    }
    if (gathers()) add_moving(parts, block, last);
  }

  // Of the rows of a slice, all and those of the stream, as wide as the residual stream is here.
  std::int64_t whole_bytes() const { return rows_ / slices_ * hidden() * compute_; }
  std::int64_t stream_bytes() const { return stream_rows_ / slices_ * hidden() * compute_; }

  /// What backward of a normal layer holds: the gradient of its input, of a cut stream before its
  /// sum too, and the input where it is gathered.
  std::int64_t normal_backward(const LinearSpec& linear) const {
    const Block matrix = block_of(linear);
    const std::int64_t tokens = rows_ / slices_;
    std::int64_t bytes = whole_bytes();
    if (layers_.rows_over_x) bytes += stream_bytes();
    if (regathers_) bytes += whole_bytes();
    // dW goes before dI where nothing is summed over x, and the input's gradient is not there yet.
    const std::int64_t product = rounded_gradient(matrix) + packed_weight_gradient(tokens, matrix);
    return bytes + std::max(grid_.shape().x == 1 ? product - whole_bytes() : product,
                            packed_input_gradient(tokens, matrix));
  }
  /// With the gradients of the activation and of what it was made of.
  std::int64_t mlp_backward(const BlockLayers& block) const {
    const std::int64_t widths = block_of(block.up).rows + block_of(block.down).cols;
    return rows_ / slices_ * widths * compute_ + normal_backward(block.up);
  }
  std::int64_t experts_backward(const BlockLayers& block) const {
    // With the gradient of the input.
    return moe(block, rows_ / slices_, expert_rows_ / slices_).backward() + stream_bytes();
  }
  /// With the gradients of the residual stream before the MLP, of the heads' outputs and of their
  /// queries, keys and values.
  std::int64_t attention_backward(const BlockLayers& block) const {
    const std::int64_t widths = block_of(block.projection).cols + block_of(block.qkv).rows;
    return stream_bytes() + rows_ / slices_ * widths * compute_ + normal_backward(block.qkv);
  }

  /// Weights and gradients over z while the block's MLP or experts run backward.
  void add_moving(MemoryParts& parts, const BlockLayers& block, bool last) const {
    const Block first =
        block.moe ? block_of({router_weight_spec(block.moe->router)}) : block_of(block.up);
    const std::vector<Block> order = {first, block_of(block.projection), block_of(block.qkv)};
    const std::size_t ahead =
        run_.overlap.all_gather ? static_cast<std::size_t>(run_.overlap.prefetch_depth) : 0;
    const bool is_cached =
        static_cast<std::size_t>(run_.overlap.cache_layers) >= layers_.blocks.size();
    for (std::size_t i = 0; i <= std::min(ahead, order.size() - 1) && !is_cached; ++i) {
      parts.gathered += order[i].elements() * compute_;
    }
    const ParameterSpec table = token_table_spec(layers_.embedding);
    const Block head = block_of({layers_.head ? *layers_.head : table});
    // The head's gradient may still be on its way, with those of the block's first two matrices.
    const std::int64_t wire = run_.overlap.grad_dtype == WireType::kBf16 ? 2 : kF32;
    const std::int64_t z = grid_.shape().z;
    std::vector<Block> gradients;
    if (last) gradients.push_back(head);
    if (block.has_mlp())
      gradients.insert(gradients.end(), {block_of(block.down), block_of(block.up)});
    const std::size_t most = run_.overlap.reduce_scatter ? kScattersInFlight + 1 : 1;
    if (gradients.size() > most) gradients.erase(gradients.begin(), gradients.end() - most);
    for (const Block& g : gradients) {
      parts.scattering += g.elements() * wire + g.elements() / z * wire;
    }
  }

  const RunSpec& run_;
  const Coords at_;
  const Grid grid_;
  const ModelLayers layers_;
  const std::vector<KeptActivations> kept_;
  const std::int64_t compute_;      ///< Bytes of an element.
  const std::int64_t rows_;         ///< Tokens of a micro-batch of this rank.
  const std::int64_t stream_rows_;  ///< Of these, those of the residual stream.
  const std::int64_t slices_;
  const bool regathers_;
  std::int64_t expert_rows_ = 0;
};

}  // namespace

MemoryPrediction predict_memory(const RunSpec& run, Coords at, ExpertLoad load) {
  return MemoryModel(run, at, load).predict();
}

}  // namespace fourfold
