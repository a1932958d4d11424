#pragma once

#include <ATen/core/TensorBody.h>

#include <string>
#include <vector>

#include "layout/parameter_spec.h"
#include "parallel/context.h"

namespace fourfold {

/// This rank's share of a parameter. Rows are dim 0; all tensors are dense.
struct Parameter {
  ParameterSpec spec;
  Region block;    ///< What a product uses, whole over z.
  Region stored;   ///< The block's rows that this rank stores (TensorLayout).
  Region updated;  ///< The stored rows that this rank's optimizer updates (ZeRO-1: its replica's).

  at::Tensor weight;      ///< Stored rows, compute type.
  at::Tensor gradient;    ///< Stored rows, f32, a sum.
  at::Tensor master;      ///< Updated rows, f32; in fp32 runs a view of weight.
  at::Tensor exp_avg;     ///< Updated rows, f32.
  at::Tensor exp_avg_sq;  ///< Updated rows, f32.

  /// Whether this rank counts these elements where each of the model's is counted once: it is the
  /// first of those that update the same rows.
  bool counted = true;

  /// Updated rows of weight and of gradient, as views.
  at::Tensor updated_weight() const;
  at::Tensor updated_gradient() const;
};

/// Parameters that lie one after the other in memory because one operation uses them together
/// (q|k|v, gate|up, a rank's experts), and apart everywhere else. All have the same local width and
/// the same number of expert ranks.
class ParameterGroup {
 public:
  /// `name` is that of plans and timelines; empty: the first parameter's.
  ParameterGroup(const ParallelContext& context, std::vector<ParameterSpec> specs,
                 std::string name = {});
  ParameterGroup(const ParameterGroup&) = delete;
  ParameterGroup& operator=(const ParameterGroup&) = delete;

  std::vector<Parameter>& parameters() { return parameters_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }

  const std::string& name() const { return name_; }
  std::int64_t rows() const { return rows_; }  ///< Of the blocks together.
  std::int64_t cols() const { return cols_; }  ///< 1 for vectors.

 protected:
  const ParallelContext& context() const { return context_; }
  /// The ranks that store shards of these parameters: over z, or fewer for experts.
  Communicator& storers() const;
  /// Stored rows of all members: [sum of stored rows, cols].
  const at::Tensor& weights() const { return weights_; }
  const at::Tensor& gradients() const { return gradients_; }

  /// Starts the all-gather over the storers of the members' stored rows into their blocks' rows of
  /// `whole`.
  std::vector<Work> start_gather_of_shards(const at::Tensor& whole, Lane lane) const;
  /// Starts the reduce-scatter over them of the members' rows of `whole` into `part`, which has the
  /// shape of gradients().
  std::vector<Work> start_scatter_to_shards(const at::Tensor& whole, const at::Tensor& part,
                                            Lane lane) const;

 private:
  void allocate();
  void initialise(Parameter& parameter);
  /// Elements of each storer's part of a member.
  std::vector<std::int64_t> counts_of_shards(const Parameter& parameter) const;

  const ParallelContext& context_;
  std::string name_;
  std::vector<Parameter> parameters_;
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 1;
  at::Tensor weights_;
  at::Tensor gradients_;
};

}  // namespace fourfold
