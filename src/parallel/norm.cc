#include "parallel/norm.h"

#include "comm/await_work.h"
#include "comm/tensor_buffer.h"
#include "kernels/norm.h"
#include "parallel/overlap_scheduler.h"

namespace fourfold {
namespace {

const float* floats_or_null(const at::Tensor& t) {
  return t.defined() ? elements<float>(t) : nullptr;
}

}  // namespace

Norm4D::Norm4D(const ParallelContext& context, const NormSpec& spec)
    : context_(context),
      spec_(spec),
      parameters_(context, norm_parameters(spec)),
      local_width_(parameters_.rows() / (spec.bias ? 2 : 1)) {}

Async<void> Norm4D::reduce_statistics(const at::Tensor& x, Statistics& statistics) const {
  const std::int64_t rows = x.size(0), cols = x.size(1);
  Communicator& y = context_.grid.group({Axis::kY});
  float* rstd = elements<float>(statistics.rstd);
  if (!spec_.centred) {
    {
      const TimedSpan span = context_.timed("norm statistics");
      with_type(context_.compute,
                [&]<class T>(T) { kernels::rms_sum_squares(elements<T>(x), rows, cols, rstd); });
    }
    co_await finished(
        y.all_reduce(buffer_of(statistics.rstd), ReduceOp::kSum, forward_lane(context_)));
    kernels::rstd_from_sum(rstd, rows, spec_.width, spec_.eps, rstd);
    co_return;
  }
  // The parts' moments are gathered and merged on every rank alike, in ascending order.
  const at::Tensor moments = empty_tensor({y.size(), 2, rows}, DType::kF32);
  float* mine = elements<float>(moments) + y.rank() * 2 * rows;
  {
    const TimedSpan span = context_.timed("norm statistics");
    with_type(context_.compute, [&]<class T>(T) {
      kernels::row_mean_m2(elements<T>(x), rows, cols, mine, mine + rows);
    });
  }
  const std::vector<std::int64_t> equal(y.size(), 2 * rows);
  co_await finished(y.all_gather(ConstBuffer(mine, 2 * rows, DType::kF32), buffer_of(moments),
                                 equal, forward_lane(context_)));
  const std::vector<std::int64_t> widths = split_counts(spec_.width, y.size());
  const float* first = elements<float>(moments);
  kernels::merge_mean_m2(first, first + rows, widths.data(), y.size(), 2 * rows, rows,
                         elements<float>(statistics.mean), rstd);
  kernels::rstd_from_sum(rstd, rows, spec_.width, spec_.eps, rstd);
}

Async<at::Tensor> Norm4D::forward(const at::Tensor& x, Statistics& statistics) const {
  const std::int64_t rows = x.size(0), cols = x.size(1);
  statistics.rstd = empty_tensor({rows}, DType::kF32);
  if (spec_.centred) statistics.mean = empty_tensor({rows}, DType::kF32);
  float* mean = spec_.centred ? elements<float>(statistics.mean) : nullptr;
  float* rstd = elements<float>(statistics.rstd);
  const at::Tensor y = empty_tensor({rows, cols}, context_.compute);
  const bool split = context_.size(Axis::kY) > 1;
  if (split) co_await reduce_statistics(x, statistics);
  const TimedSpan span = context_.timed("norm");
  with_type(context_.compute, [&]<class T>(T) {
    const T* in = elements<T>(x);
    T* out = elements<T>(y);
    if (split) {
      kernels::norm_apply(in, mean, rstd, gain(), bias(), rows, cols, out);
    } else if (spec_.centred) {
      kernels::layer_norm_forward(in, gain(), bias(), spec_.eps, rows, cols, out, mean, rstd);
    } else {
      kernels::rms_norm_forward(in, gain(), spec_.eps, rows, cols, out, rstd);
    }
  });
  co_return y;
}

at::Tensor Norm4D::apply(const at::Tensor& x, const Statistics& statistics) const {
  const TimedSpan span = context_.timed("norm");
  at::Tensor y = empty_tensor(x.sizes(), context_.compute);
  with_type(context_.compute, [&]<class T>(T) {
    kernels::norm_apply(elements<T>(x), floats_or_null(statistics.mean),
                        elements<float>(statistics.rstd), gain(), bias(), x.size(0), x.size(1),
                        elements<T>(y));
  });
  return y;
}

Async<at::Tensor> Norm4D::backward(const at::Tensor& dy, const at::Tensor& x,
                                   const Statistics& statistics, const at::Tensor& residual) {
  const std::int64_t rows = x.size(0), cols = x.size(1);
  const float* mean = floats_or_null(statistics.mean);
  const float* rstd = elements<float>(statistics.rstd);
  float* d_gain = parameters_.gradient();
  float* d_bias = spec_.bias ? d_gain + local_width_ : nullptr;
  const at::Tensor dx = empty_tensor({rows, cols}, context_.compute);
  const bool split = context_.size(Axis::kY) > 1;
  at::Tensor sums;  // Over y, of each row: what its gradient needs of the whole row.
  if (split) {
    sums = zero_tensor({2, rows}, DType::kF32);
    {
      const TimedSpan span = context_.timed("norm backward sums");
      with_type(context_.compute, [&]<class T>(T) {
        kernels::norm_backward_sums(elements<T>(dy), elements<T>(x), mean, rstd, gain(), rows, cols,
                                    elements<float>(sums), elements<float>(sums) + rows);
      });
    }
    Communicator& parts = context_.grid.group({Axis::kY});
    co_await finished(parts.all_reduce(buffer_of(sums), ReduceOp::kSum, forward_lane(context_)));
  }
  const TimedSpan span = context_.timed("norm backward");
  with_type(context_.compute, [&]<class T>(T) {
    const T* bypass = residual.defined() ? elements<T>(residual) : nullptr;
    if (split) {
      kernels::norm_backward_apply(elements<T>(dy), elements<T>(x), mean, rstd, gain(),
                                   elements<float>(sums), elements<float>(sums) + rows, spec_.width,
                                   bypass, rows, cols, elements<T>(dx), d_gain, d_bias);
    } else {
      kernels::norm_backward(elements<T>(dy), elements<T>(x), mean, rstd, gain(), bypass, rows,
                             cols, elements<T>(dx), d_gain, d_bias);
    }
  });
  co_return dx;
}

}  // namespace fourfold
