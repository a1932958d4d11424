#include "parallel/qk_norm.h"

#include "comm/await_work.h"
#include "comm/tensor_buffer.h"
#include "kernels/norm.h"
#include "parallel/overlap_scheduler.h"

namespace fourfold {

QkNorm4D::QkNorm4D(const ParallelContext& context, const QkNormSpec& spec, std::int64_t q_columns,
                   std::int64_t k_columns)
    : context_(context), spec_(spec), gains_(context, qk_norm_parameters(spec)) {
  const std::int64_t sharing = split() ? context.size(Axis::kX) : 1;
  const std::int64_t q_width = spec.whole ? q_columns : spec.q.out;
  const std::int64_t k_width = spec.whole ? k_columns : spec.k.out;
  Part& q = parts_[0];
  Part& k = parts_[1];
  q = {0, q_columns / q_width, q_width, q_width * sharing, 0, 0};
  k = {q_columns, k_columns / k_width, k_width, k_width * sharing, q_width, q.groups};
}

kernels::QkColumns QkNorm4D::columns(const Part& part, const at::Tensor& qkv) const {
  const Part& k = parts_[1];
  return {qkv.size(0), part.groups, part.width, qkv.size(1), k.first_column + k.groups * k.width};
}

at::Tensor QkNorm4D::empty_statistics(std::int64_t rows) const {
  return empty_tensor({parts_[0].groups + parts_[1].groups, rows}, DType::kF32);
}

// A key head that s neighbours share is added s times, and stands s times in global_width.
Async<void> QkNorm4D::reduce_statistics(const at::Tensor& qkv, const Saved& saved) const {
  {
    const TimedSpan span = context_.timed("norm of heads");
    with_type(context_.compute, [&]<class T>(T type) {
      for (const Part& part : parts_) {
        kernels::qk_sum_squares(of(part, saved.input, type), columns(part, qkv),
                                of(part, saved.rstd));
      }
    });
  }
  Communicator& x = context_.grid.group({Axis::kX});
  co_await finished(x.all_reduce(buffer_of(saved.rstd), ReduceOp::kSum, forward_lane(context_)));
  for (const Part& part : parts_) {
    float* rstd = of(part, saved.rstd);
    kernels::rstd_from_sum(rstd, qkv.size(0) * part.groups, part.global_width, spec_.eps, rstd);
  }
}

Async<void> QkNorm4D::forward(const at::Tensor& qkv, Saved& saved) const {
  const Part& k = parts_[1];
  saved.input = qkv.narrow(1, 0, k.first_column + k.groups * k.width).contiguous();
  const bool known = saved.rstd.defined();
  if (!known) saved.rstd = empty_statistics(qkv.size(0));
  if (!known && split()) co_await reduce_statistics(qkv, saved);
  const TimedSpan span = context_.timed("norm of heads");
  with_type(context_.compute, [&]<class T>(T type) {
    for (const Part& part : parts_) {
      const auto where = columns(part, qkv);
      const T* in = of(part, saved.input, type);
      if (known || split()) {
        kernels::qk_norm_apply(in, where, of(part, saved.rstd), gain(part), of(part, qkv, type));
      } else {
        kernels::qk_norm_forward(in, where, gain(part), spec_.eps, of(part, qkv, type),
                                 of(part, saved.rstd));
      }
    }
  });
}

Async<void> QkNorm4D::backward(const at::Tensor& d_qkv, const Saved& saved) {
  at::Tensor sums;
  if (split()) {
    sums = empty_statistics(d_qkv.size(0));
    {
      const TimedSpan span = context_.timed("norm of heads backward");
      with_type(context_.compute, [&]<class T>(T type) {
        for (const Part& part : parts_) {
          kernels::qk_norm_backward_sums(of(part, d_qkv, type), of(part, saved.input, type),
                                         columns(part, d_qkv), of(part, saved.rstd), gain(part),
                                         of(part, sums));
        }
      });
    }
    Communicator& x = context_.grid.group({Axis::kX});
    co_await finished(x.all_reduce(buffer_of(sums), ReduceOp::kSum, forward_lane(context_)));
  }
  const TimedSpan span = context_.timed("norm of heads backward");
  with_type(context_.compute, [&]<class T>(T type) {
    for (const Part& part : parts_) {
      T* d = of(part, d_qkv, type);
      const T* in = of(part, saved.input, type);
      float* d_gain = gains_.gradient() + part.first_gain;
      if (split()) {
        kernels::qk_norm_backward_apply(d, in, columns(part, d_qkv), of(part, saved.rstd),
                                        gain(part), of(part, sums), part.global_width, d_gain);
      } else {
        kernels::qk_norm_backward(d, in, columns(part, d_qkv), of(part, saved.rstd), gain(part),
                                  d_gain);
      }
    }
  });
}

}  // namespace fourfold
